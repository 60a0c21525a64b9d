"""The matrix word for word, and read back as scripts read nvidia-smi's."""

from __future__ import annotations

import json

from kube_rdma.hardware.views.topology import topology_document, topology_text
from kube_rdma.model.device import Device, Gpu, PciAddress, PciPosition
from kube_rdma.model.survey import NamespaceMode, Survey


def position(pci, numa):
    return PciPosition(PciAddress(pci), "pci0000:00", (PciAddress(pci),), numa)


def device(name, numa):
    return Device(name, name, None, "CA", None, None, None, numa, (), ())


SURVEY = Survey(
    devices=(device("mlx5_0", 0), device("rxe0", None)),
    rdma_cm=None,
    namespace_mode=NamespaceMode.UNKNOWN,
    gpus=(
        Gpu(position("0000:03:00.0", 0), 0x030200, 0x10DE, 0x2330, "nvidia"),
        Gpu(position("0000:83:00.0", 1), 0x120000, 0x1002, 0x74A1, None),
    ),
)
MARKS = (
    ("X", "SYS", "PIX", None),
    ("SYS", "X", "SYS", None),
    ("PIX", "SYS", "X", None),
    (None, None, None, "X"),
)

GOLDEN = """\
      GPU0  GPU1  NIC0  NIC1  NUMA Affinity
GPU0   X    SYS   PIX    -    0
GPU1  SYS    X    SYS    -    1
NIC0  PIX   SYS    X     -    0
NIC1   -     -     -     X    -

Legend:

  X    = itself, or another device of the same PCI function
  PIX  = at most one PCIe bridge or switch in between
  PXB  = several PCIe bridges in between, no host bridge
  PHB  = through the PCIe host bridge, as a rule the CPU
  NODE = through two host bridges of one NUMA node
  SYS  = through the interconnect of NUMA nodes
  -    = not known, for the device sits on no PCI function

NIC Legend:

  NIC0: mlx5_0
  NIC1: rxe0

GPU Legend:

  GPU0: 0000:03:00.0 [10de:2330] nvidia
  GPU1: 0000:83:00.0 [1002:74a1] no driver

NVLink is not shown: it is not part of the PCIe tree."""


def test_the_matrix_word_for_word():
    assert topology_text(SURVEY, MARKS) == GOLDEN


def test_columns_stay_in_line_for_two_digits():
    many = tuple(device(f"mlx5_{i}", 0) for i in range(12))
    marks = tuple(tuple("X" if i == j else "NODE" for j in range(12)) for i in range(12))
    survey = Survey(many, None, NamespaceMode.UNKNOWN)
    head, *rows = topology_text(survey, marks).split("\n\n")[0].split("\n")
    for row in rows:
        assert row.index("0", len(row) - 2) == head.index("NUMA Affinity")
    assert rows[11].index(" X ") == head.index("NIC11")


def test_without_gpus_nothing_is_said_of_them():
    survey = Survey(SURVEY.devices[:1], None, NamespaceMode.UNKNOWN)
    shown = topology_text(survey, (("X",),))
    assert "GPU" not in shown
    assert "NVLink" not in shown
    assert "not known" not in shown


def test_without_anything_one_sentence_says_so():
    shown = topology_text(Survey((), None, NamespaceMode.UNKNOWN), ())
    assert shown == "No GPUs and no RDMA devices, so there is nothing to be near to."


def test_the_document_key_by_key():
    shown = json.loads(json.dumps(topology_document(SURVEY, MARKS)))
    assert shown["gpus"] == {"GPU0": "0000:03:00.0", "GPU1": "0000:83:00.0"}
    assert shown["nics"] == {"NIC0": "mlx5_0", "NIC1": "rxe0"}
    assert shown["nearness"]["GPU0"] == {"GPU0": "X", "GPU1": "SYS", "NIC0": "PIX", "NIC1": None}
