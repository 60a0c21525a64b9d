"""The GPU × NIC matrix of `kube-rdma devices --topology`, as `nvidia-smi topo -m` lays it out.

Rows, columns, marks and the two-space ``NIC0: mlx5_0`` lines are nvidia-smi's, so that what reads
its output by fields reads this. Added to it: the NUMA node of NICs, and a legend of the GPUs, for
their numbers follow the PCI address here. pools/rules/topology finds the marks; they come as
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.device import Gpu
from kube_rdma.model.survey import Survey

Marks = Sequence[Sequence[str | None]]  # GPUs, then devices, as rows and as columns

_UNKNOWN = "-"
_SELF = "X"
_NUMA = "NUMA Affinity"
_GAP = "  "

_LEGEND = {
    _SELF: "itself, or another device of the same PCI function",
    "PIX": "at most one PCIe bridge or switch in between",
    "PXB": "several PCIe bridges in between, no host bridge",
    "PHB": "through the PCIe host bridge, as a rule the CPU",
    "NODE": "through two host bridges of one NUMA node",
    "SYS": "through the interconnect of NUMA nodes",
}
_LEGEND_UNKNOWN = f"  {_UNKNOWN:<4} = not known, for the device sits on no PCI function"
_NVLINK = "NVLink is not shown: it is not part of the PCIe tree."
_NOTHING = "No GPUs and no RDMA devices, so there is nothing to be near to."


def topology_text(survey: Survey, marks: Marks) -> str:
    """The matrix with its legends; `marks` as pools/rules/topology.matrix orders them."""
    gpus, nics = _labels(survey)
    if not marks:
        return _NOTHING
    lines = [*_matrix([*gpus, *nics], marks, _nodes(survey)), "", "Legend:", ""]
    lines += [f"  {mark:<4} = {meaning}" for mark, meaning in _LEGEND.items()]
    if any(mark is None for row in marks for mark in row):
        lines.append(_LEGEND_UNKNOWN)
    if nics:
        lines += ["", "NIC Legend:", ""]
        lines += [
            f"  {nic}: {device.name}" for nic, device in zip(nics, survey.devices, strict=True)
        ]
    if gpus:
        lines += ["", "GPU Legend:", ""]
        lines += [f"  {label}: {_named(gpu)}" for label, gpu in zip(gpus, survey.gpus, strict=True)]
        lines += ["", _NVLINK]
    return "\n".join(lines)


def topology_document(survey: Survey, marks: Marks) -> dict[str, object]:
    """The same as JSON values, null where a mark is not known. Keys are stable.

    ``gpus``: label to PCI address; ``nics``: label to device name; ``nearness``: label to label to
    mark, so that GPU 0 and NIC 1 are ``.nearness.GPU0.NIC1``.
    """
    gpus, nics = _labels(survey)
    labels = [*gpus, *nics]
    return {
        "gpus": {label: gpu.seat.pci for label, gpu in zip(gpus, survey.gpus, strict=True)},
        "nics": {label: nic.name for label, nic in zip(nics, survey.devices, strict=True)},
        "nearness": {
            label: {other: _plain(mark) for other, mark in zip(labels, row, strict=True)}
            for label, row in zip(labels, marks, strict=True)
        },
    }


def _labels(survey: Survey) -> tuple[list[str], list[str]]:
    gpus = [f"GPU{i}" for i in range(len(survey.gpus))]
    return gpus, [f"NIC{i}" for i in range(len(survey.devices))]


def _nodes(survey: Survey) -> list[int | None]:
    seats = [gpu.seat.numa_node for gpu in survey.gpus]
    return seats + [device.numa_node for device in survey.devices]


def _matrix(labels: Sequence[str], marks: Marks, nodes: Sequence[int | None]) -> Iterator[str]:
    first = max(map(len, labels))
    widths = [max(len(label), 4) for label in labels]

    def line(head: str, cells: Sequence[str], tail: str) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return _GAP.join([head.ljust(first), *padded, tail])

    yield line("", labels, _NUMA)
    for label, row, node in zip(labels, marks, nodes, strict=True):
        cells = [_cell(mark) for mark in row]
        yield line(label, cells, _UNKNOWN if node is None else str(node))


def _cell(mark: str | None) -> str:
    """A mark; the short ones a little to the right, as nvidia-smi has its X."""
    if mark is None:
        return f" {_UNKNOWN}"
    return f" {_SELF}" if mark == _SELF else str(mark)


def _plain(mark: str | None) -> str | None:
    return None if mark is None else str(mark)


def _named(gpu: Gpu) -> str:
    ids = f"{gpu.seat.pci} [{gpu.vendor:04x}:{gpu.device:04x}]"
    return f"{ids} {gpu.driver}" if gpu.driver else f"{ids} no driver"
