"""The table people read and the document programs read, word for word."""

from __future__ import annotations

import json

import pytest

from kube_base.frozen import replace
from kube_rdma.hardware.views.documents import document
from kube_rdma.hardware.views.table import devices_page
from kube_rdma.lib.json_values import camel_case
from kube_rdma.lib.page import page_text
from kube_rdma.model.card import Function, IommuGroup, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import Fault, NamespaceMode, Survey, Verdict

GID = Gid(3, "0000:0000:0000:0000:0000:ffff:c0a8:6f0a", GidType.ROCE_V2, "eth1")
UP = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, "eth1", (GID,))
DOWN = Port(2, PortState.DOWN, PhysicalState.DISABLED, LinkLayer.INFINIBAND, None, None, ())
UVERBS = CharDevice(CharKind.UVERBS, "/dev/infiniband/uverbs0", 231, 192)
RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)
CARD = Device(
    name="mlx5_0",
    identity="0000:81:00.0",
    node_guid="b8ce:f603:000a:1c50",
    node_type="CA",
    driver="mlx5_core",
    firmware="16.35.4506",
    pci=PciAddress("0000:81:00.0"),
    numa_node=1,
    ports=(UP, DOWN),
    char_devices=(UVERBS,),
)
BARE = Device("rxe0", "rxe0", None, "CA", None, None, None, None, (), ())
SURVEY = Survey((CARD, BARE), RDMA_CM, NamespaceMode.SHARED, (Fault("class/x", "is empty"),))
VERDICTS = (
    Verdict(CARD, ()),
    Verdict(BARE, ("no uverbs device: modprobe ib_uverbs", "no port: dmesg may say why")),
)

GOLDEN_TABLE = """\
DEVICE  PORT  STATE   LINK        RATE  NETDEV  NUMA  PCI           GIDS  USABLE
mlx5_0     1  ACTIVE  Ethernet    100G  eth1       1  0000:81:00.0     1  yes
           2  DOWN    InfiniBand     -  -                              0
rxe0       -  -       -              -  -          -  -                -  no
  └ no uverbs device: modprobe ib_uverbs
  └ no port: dmesg may say why

1 of 2 devices usable.
RDMA namespace mode: shared (every network namespace sees every device).
Note: mind the gap.
1 thing could not be read:
  class/x: is empty"""


def table(verdicts, survey, notes=(), width=100):
    return page_text(devices_page(verdicts, survey, notes), width)


def test_the_table_word_for_word():
    assert table(VERDICTS, SURVEY, ("mind the gap",)) == GOLDEN_TABLE


def test_of_many_faults_the_number_is_shown():
    many = replace(SURVEY, faults=SURVEY.faults * 4)
    assert table(VERDICTS, many).endswith("\n4 things could not be read; see faults in -o json.")


GOLDEN_NO_DEVICES = """\
No RDMA devices.

  Is there a card?   lspci -nn lists it; dmesg says why its driver (mlx5_ib,
                     bnxt_re, irdma, efa, ...) did not register it.
  No card at hand?   Soft-RoCE runs on any Ethernet interface:
                         modprobe rdma_rxe
                         rdma link add rxe0 type rxe netdev eth0

RDMA namespace mode: unknown.
1 thing could not be read:
  RDMA netlink: no such thing"""


def test_without_devices_the_table_helps_on():
    survey = Survey((), None, NamespaceMode.UNKNOWN, (Fault("RDMA netlink", "no such thing"),))
    assert table((), survey) == GOLDEN_NO_DEVICES


def test_sentences_are_wrapped_to_the_width_and_nothing_is_lost():
    reason = " ".join(f"word{i}" for i in range(40))
    survey = replace(SURVEY, devices=(BARE,))
    lines = table((Verdict(BARE, (reason,)),), survey, (reason,), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    shown = " ".join(lines).split()
    assert sum(word.startswith("word") for word in shown) == 80


def test_the_columns_stand_under_their_heads_for_any_width_of_name():
    long = replace(CARD, name="rocep129s0f0v17", ports=(replace(UP, netdev="enp129s0f0v17x"),))
    head, row, *_ = table((Verdict(long, ()),), replace(SURVEY, devices=(long,))).splitlines()
    assert row.index("enp129s0f0v17x") == head.index("NETDEV")
    assert row.index("yes") == head.index("USABLE")
    assert len(row) <= 120


GOLDEN_DOCUMENT = {
    "devices": [
        {
            "name": "mlx5_0",
            "identity": "0000:81:00.0",
            "nodeGuid": "b8ce:f603:000a:1c50",
            "nodeType": "CA",
            "driver": "mlx5_core",
            "firmware": "16.35.4506",
            "pci": "0000:81:00.0",
            "numaNode": 1,
            "auxiliary": None,
            "subfunction": None,
            "switchdev": False,
            "seat": None,
            "ports": [
                {
                    "number": 1,
                    "state": "ACTIVE",
                    "physicalState": "LinkUp",
                    "linkLayer": "Ethernet",
                    "rateGbps": 100.0,
                    "netdev": "eth1",
                    "bond": None,
                    "lid": None,
                    "smLid": None,
                    "pkey": None,
                    "representor": False,
                    "neighbour": None,
                    "gids": [
                        {
                            "index": 3,
                            "value": "0000:0000:0000:0000:0000:ffff:c0a8:6f0a",
                            "type": "RoCE v2",
                            "netdev": "eth1",
                        }
                    ],
                }
            ],
            "charDevices": [
                {"kind": "uverbs", "path": "/dev/infiniband/uverbs0", "major": 231, "minor": 192}
            ],
            "usable": True,
            "reasons": [],
        }
    ],
    "functions": [],
    "gpus": [],
    "management": [],
    "rdmaCm": {"kind": "rdma_cm", "path": "/dev/infiniband/rdma_cm", "major": 10, "minor": 58},
    "namespaceMode": "shared",
    "notes": ["mind the gap"],
    "faults": [{"path": "class/x", "reason": "is empty"}],
}


def test_the_document_key_by_key():
    card = replace(CARD, ports=(UP,))
    shown = document((Verdict(card, ()),), replace(SURVEY, devices=(card,)), ("mind the gap",))
    assert json.loads(json.dumps(shown)) == GOLDEN_DOCUMENT


def test_what_is_not_known_is_null_in_the_document():
    shown = document((Verdict(BARE, ("no port",)),), Survey((BARE,), None, NamespaceMode.UNKNOWN))
    (device,) = json.loads(json.dumps(shown))["devices"]
    unknown = {key for key, value in device.items() if value is None}
    assert unknown == {
        "nodeGuid",
        "driver",
        "firmware",
        "pci",
        "numaNode",
        "seat",
        "auxiliary",
        "subfunction",
    }
    assert (device["usable"], device["reasons"], shown["rdmaCm"]) == (False, ["no port"], None)


ROOT = PciAddress("0000:80:01.0")
PF, VF = PciAddress("0000:81:00.0"), PciAddress("0000:81:00.2")
PF_POSITION = PciPosition(PF, "pci0000:80", (ROOT, PF), 1, None, (VF,), 8)
VF_POSITION = PciPosition(VF, "pci0000:80", (ROOT, VF), 1, PF)
GPU_POSITION = PciPosition(
    PciAddress("0000:01:00.0"), "pci0000:00", (PciAddress("0000:01:00.0"),), None
)


def pci_cells(*devices):
    survey = replace(SURVEY, devices=devices, faults=())
    verdicts = tuple(Verdict(device, ()) for device in devices)
    head, *rows = table(verdicts, survey).splitlines()
    at = slice(head.index("PCI"), head.index("  GIDS"))
    return [row[at].strip() for row in rows[: len(devices)]]


def test_functions_and_their_parts_are_told_in_the_pci_column():
    one = replace(CARD, ports=(UP,))
    card = replace(one, position=PF_POSITION)
    virtual = replace(one, name="mlx5_1", pci=VF, position=VF_POSITION)
    part = replace(one, name="mlx5_2", position=PF_POSITION, subfunction=88)
    assert pci_cells(card, virtual, part) == [
        "0000:81:00.0 (1 VF)",
        "0000:81:00.2 (VF of mlx5_0)",
        "0000:81:00.0 (SF 88)",
    ]
    assert pci_cells(virtual) == ["0000:81:00.2 (VF of 0000:81:00.0)"]
    two = replace(
        card, position=replace(PF_POSITION, virtual_functions=(VF, PciAddress("0000:81:00.3")))
    )
    assert pci_cells(two) == ["0000:81:00.0 (2 VFs)"]


def test_a_bond_stands_beside_the_interface_that_is_in_it():
    bonded = replace(CARD, ports=(replace(UP, bond="bond0"),))
    survey = replace(SURVEY, devices=(bonded,))
    assert "eth1 (bond0)  " in table((Verdict(bonded, ()),), survey)


def test_the_table_of_a_bonded_card_with_virtual_functions_has_at_most_120_columns():
    port = replace(UP, netdev="enp129s0f0np0", bond="bond0", link_layer=LinkLayer.INFINIBAND)
    device = replace(CARD, name="mlx5_bond_0", ports=(port,), position=PF_POSITION)
    virtual = replace(CARD, name="mlx5_11", ports=(UP,), pci=VF, position=VF_POSITION)
    verdicts = (Verdict(device, ()), Verdict(virtual, ()))
    shown = table(verdicts, replace(SURVEY, devices=(device, virtual)))
    assert max(map(len, shown.splitlines())) <= 120


def test_positions_and_gpus_in_the_document():
    gpu = Gpu(GPU_POSITION, 0x030200, 0x10DE, 0x2330, "nvidia")
    survey = Survey((replace(CARD, position=PF_POSITION),), None, NamespaceMode.UNKNOWN, (), (gpu,))
    shown = json.loads(json.dumps(document((Verdict(survey.devices[0], ()),), survey)))
    assert shown["devices"][0]["seat"] == {
        "pci": "0000:81:00.0",
        "root": "pci0000:80",
        "path": ["0000:80:01.0", "0000:81:00.0"],
        "numaNode": 1,
        "physicalFunction": None,
        "virtualFunctions": ["0000:81:00.2"],
        "sriovTotal": 8,
    }
    (shown_gpu,) = shown["gpus"]
    assert shown_gpu.pop("seat")["root"] == "pci0000:00"
    assert shown_gpu == {
        "pci": "0000:01:00.0",
        "numaNode": None,
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x2330",
        "driver": "nvidia",
    }


def test_functions_and_partition_keys_in_the_document():
    netdev = Netdev("ib0", "infiniband", up=True, carrier=False, default_route=True)
    function = Function(VF_POSITION, 0x15B3, 0x101C, "mlx5_core", (netdev,), None, 0)
    card = replace(CARD, ports=(replace(UP, pkey=0x7FFF),))
    bound = replace(function, driver="vfio-pci", group=IommuGroup(41, ((PF, "mlx5_core"),)))
    survey = replace(SURVEY, devices=(card,), functions=(function, bound))
    shown = json.loads(json.dumps(document((Verdict(card, ()),), survey)))
    assert shown["devices"][0]["ports"][0]["pkey"] == "0x7fff"
    assert shown["functions"].pop()["iommuGroup"] == {
        "number": 41,
        "others": [[PF, "mlx5_core"]],
        "guarded": True,
    }
    assert shown["functions"] == [
        {
            "pci": VF,
            "numaNode": VF_POSITION.numa_node,
            "vendor": "0x15b3",
            "device": "0x101c",
            "driver": "mlx5_core",
            "acpiIndex": None,
            "physicalFunction": "0000:81:00.0",
            "vfIndex": 0,
            "netdevs": [
                {
                    "name": "ib0",
                    "linkType": "infiniband",
                    "up": True,
                    "carrier": False,
                    "defaultRoute": True,
                    "master": None,
                    "representor": False,
                }
            ],
            "iommuGroup": None,
        }
    ]


def test_a_soft_device_does_not_lend_its_name_to_the_card_below_it():
    soft = replace(CARD, name="arxe0", pci=None, position=PF_POSITION)
    virtual = replace(CARD, name="mlx5_1", pci=VF, position=VF_POSITION)
    verdicts = (Verdict(soft, ()), Verdict(virtual, ()))
    shown = table(verdicts, replace(SURVEY, devices=(soft, virtual)))
    assert "0000:81:00.2 (VF of 0000:81:00.0)" in shown


@pytest.mark.parametrize("kind", [Device, Port, Gid, CharDevice])
def test_the_document_has_every_field_of_the_model(kind):
    """A field that is added to the model must not be forgotten here."""
    (device,) = document((Verdict(CARD, ()),), SURVEY)["devices"]
    port = device["ports"][0]
    values = {
        Device: device,
        Port: port,
        Gid: port["gids"][0],
        CharDevice: device["charDevices"][0],
    }
    assert {*map(camel_case, kind.__struct_encode_fields__)} <= values[kind].keys()


def test_the_switch_of_a_port_has_a_column_where_one_is_known():
    survey = SURVEY.with_neighbours({"mlx5_0/1": "leaf-1 Ethernet1/1"})
    verdicts = tuple(
        replace(verdict, device=device)
        for verdict, device in zip(VERDICTS, survey.devices, strict=True)
    )
    head, first, second, bare, *_ = page_text(devices_page(verdicts, survey), 120).splitlines()
    assert head.endswith("USABLE  SWITCH")
    assert first.endswith("yes     leaf-1 Ethernet1/1")
    assert second.endswith("0          -")
    assert bare.endswith("no      -")
    assert "SWITCH" not in page_text(devices_page(VERDICTS, SURVEY), 120)
    ports = document(verdicts, survey)["devices"][0]["ports"]
    assert [port["neighbour"] for port in ports] == ["leaf-1 Ethernet1/1", None]
