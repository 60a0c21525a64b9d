"""Which devices are usable: verbs need a device node and a port that carries traffic."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.discovery import judge, notes

GID = Gid(1, "fe80:0000:0000:0000:bace:f6ff:fe0a:1c50", GidType.ROCE_V2, "eth1")
UP = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, "eth1", (GID,))
UVERBS = CharDevice(CharKind.UVERBS, "/dev/infiniband/uverbs0", 231, 192)
RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)
CARD = Device(
    name="mlx5_0",
    identity="0000:81:00.0",
    node_guid=None,
    node_type="CA",
    driver="mlx5_core",
    firmware=None,
    pci=PciAddress("0000:81:00.0"),
    numa_node=None,
    ports=(UP,),
    char_devices=(UVERBS,),
)


def reasons_against(device, *functions):
    survey = Survey((device,), RDMA_CM, NamespaceMode.SHARED, functions=functions)
    (verdict,) = judge(survey)
    assert verdict.usable is not bool(verdict.reasons)
    return verdict.reasons


def down(state, physical, layer=LinkLayer.ETHERNET, netdev="eth1"):
    return replace(UP, state=state, physical_state=physical, link_layer=layer, netdev=netdev)


def test_a_card_with_a_device_node_and_one_active_port_is_usable():
    assert reasons_against(CARD) == ()
    other = replace(down(PortState.DOWN, PhysicalState.POLLING), number=2)
    assert reasons_against(replace(CARD, ports=(UP, other))) == ()


def test_without_uverbs_the_module_is_named_and_without_ports_the_log_of_the_kernel():
    no_uverbs = "no uverbs device, so no program can open it: modprobe ib_uverbs"
    no_port = "no port: the driver has registered none, dmesg may say why"
    assert reasons_against(replace(CARD, char_devices=())) == (no_uverbs,)
    assert reasons_against(replace(CARD, ports=())) == (no_port,)
    assert reasons_against(replace(CARD, char_devices=(), ports=())) == (no_uverbs, no_port)


IB = LinkLayer.INFINIBAND
REMEDIES = [
    (down(PortState.DOWN, PhysicalState.DISABLED), "ip link set eth1 up"),
    (
        down(PortState.DOWN, PhysicalState.DISABLED, netdev=None),
        "no interface of it is in this network namespace; a pod has it",
    ),
    (down(PortState.DOWN, PhysicalState.POLLING), "cable and the switch port behind eth1"),
    (down(PortState.DOWN, PhysicalState.POLLING, netdev=None), "cable and the switch port"),
    (down(PortState.DOWN, PhysicalState.LINK_UP), "cable and the switch port behind eth1"),
    (down(PortState.DOWN, PhysicalState.POLLING, IB, None), "cable and the switch port"),
    (down(PortState.DOWN, PhysicalState.LINK_UP, IB, None), "opensm"),
    (down(PortState.INIT, PhysicalState.LINK_UP, IB, None), "opensm"),
    (down(PortState.DOWN, PhysicalState.DISABLED, IB, None), "ibportstate"),
    (down(PortState.UNKNOWN, PhysicalState.UNKNOWN), "could not be read"),
]


@pytest.mark.parametrize(("port", "remedy"), REMEDIES)
def test_a_port_that_is_not_active_comes_with_state_and_remedy(port, remedy):
    (reason,) = reasons_against(replace(CARD, ports=(port,)))
    assert reason.startswith(f"no port is ACTIVE; port 1 is {port.state} ({port.physical_state}): ")
    assert remedy in reason


POSITION = PciPosition(PciAddress("0000:81:00.0"), "pci0000:80", (), 0)


@pytest.mark.parametrize(
    ("up", "remedy"),
    [(True, "check the cable and the switch port behind eth1"), (False, "ip link set eth1 up")],
)
def test_a_roce_port_is_disabled_without_a_carrier_too_so_its_interface_tells(up, remedy):
    """mlx5_query_port_roce, bnxt_re_query_port and the core's iWARP say Disabled for both."""
    netdev = Netdev("eth1", "ether", up, False if up else None)
    function = Function(POSITION, 0x15B3, 0x101D, "mlx5_core", (netdev,))
    card = replace(CARD, ports=(down(PortState.DOWN, PhysicalState.DISABLED),))
    (verdict,) = judge(Survey((card,), RDMA_CM, NamespaceMode.SHARED, functions=(function,)))
    assert verdict.reasons == (f"no port is ACTIVE; port 1 is DOWN (Disabled): {remedy}",)


def test_ports_of_one_fault_have_one_remedy():
    one = down(PortState.DOWN, PhysicalState.POLLING, netdev=None)
    (reason,) = reasons_against(replace(CARD, ports=(one, replace(one, number=2))))
    assert reason == (
        "no port is ACTIVE; port 1 is DOWN (Polling), port 2 is DOWN (Polling): "
        "check the cable and the switch port"
    )


@pytest.mark.parametrize("sm_lid", [None, 7])
@pytest.mark.parametrize("state", [PortState.INIT, PortState.ARMED])
def test_a_subnet_manager_is_missing_or_named_by_its_lid(state, sm_lid):
    port = replace(down(state, PhysicalState.LINK_UP, IB, None), sm_lid=sm_lid)
    (reason,) = reasons_against(replace(CARD, ports=(port,)))
    assert ("no subnet manager" in reason) is (sm_lid is None)
    assert ("manager at LID 7" in reason) is (sm_lid == 7)


def test_a_virtual_link_that_is_down_is_raised_on_the_physical_function():
    physical, virtual = PciAddress("0000:41:00.0"), PciAddress("0000:41:00.1")
    position = PciPosition(virtual, "pci0000:40", (virtual,), None, physical)
    port = down(PortState.DOWN, PhysicalState.LINK_UP, IB, None)
    card = replace(CARD, pci=virtual, position=position, ports=(port,))
    (reason,) = reasons_against(card)
    assert "virtual link is down, on 0000:41:00.0" in reason
    netdevs = (Netdev("rep0", "ether", True, True, representor=True),)
    above = Function(PciPosition(physical, "pci0000:40", (physical,), None), 1, 1, None, netdevs)
    assert "link set INTERFACE vf N" in reasons_against(card, above)[0]
    named = replace(above, netdevs=(*netdevs, Netdev("ens1f0", "ether", True, True)))
    assert "link set ens1f0 vf N" in reasons_against(card, named)[0]


@pytest.mark.parametrize("guid", ["0000:0000:0000:0000", "ffff:ffff:ffff:ffff"])
def test_a_virtual_function_without_a_guid_gets_one_on_the_physical_function(guid):
    """Mellanox/network-operator#1646: node_guid of zeros, INIT, and the subnet manager runs."""
    physical, virtual = PciAddress("0000:18:00.0"), PciAddress("0000:18:00.1")
    position = PciPosition(virtual, "pci0000:17", (virtual,), None, physical)
    port = replace(down(PortState.INIT, PhysicalState.LINK_UP, IB, None), sm_lid=4)
    (reason,) = reasons_against(
        replace(CARD, node_guid=guid, pci=virtual, position=position, ports=(port,))
    )
    assert "this function has no GUID, on 0000:18:00.0: ip link set INTERFACE vf N" in reason
    well = replace(
        CARD, node_guid="0200:0a00:0000:0001", pci=virtual, position=position, ports=(port,)
    )
    assert "GUID" not in reasons_against(well)[0]
    (of_the_card,) = reasons_against(replace(CARD, node_guid=guid, ports=(port,)))
    assert "GUID" not in of_the_card, "a physical function has the one it was made with"


@pytest.mark.parametrize(
    ("port", "remedy"),
    [
        (replace(UP, gids=()), "port 1 has no GID: ip link set eth1 up and give it an IP address"),
        (replace(UP, gids=(), netdev=None), "set its interface up and give it an IP address"),
        (replace(UP, gids=(), bond="bond0"), "use the device that carries bond0"),
    ],
)
def test_a_roce_port_without_a_gid_cannot_be_addressed(port, remedy):
    (reason,) = reasons_against(replace(CARD, ports=(port,)))
    assert reason.startswith("no peer can address it; port 1 has no GID: ")
    assert remedy in reason


@pytest.mark.parametrize(
    ("kind", "layer"),
    [("RNIC", LinkLayer.ETHERNET), ("unspecified", LinkLayer.UNKNOWN), ("CA", IB)],
)
def test_only_roce_needs_a_gid(kind, layer):
    port = replace(UP, gids=(), link_layer=layer)
    assert reasons_against(replace(CARD, node_type=kind, ports=(port,))) == ()


@pytest.mark.parametrize(
    ("kind", "usable", "said"), [("CA", True, 1), ("RNIC", False, 1), ("unspecified", True, 0)]
)
def test_a_missing_connection_manager_refuses_iwarp_alone_and_is_noted(kind, usable, said):
    survey = Survey((replace(CARD, node_type=kind),), None, NamespaceMode.SHARED)
    (verdict,) = judge(survey)
    assert verdict.usable is usable
    assert usable or "modprobe rdma_ucm" in verdict.reasons[0]
    assert sum("modprobe rdma_ucm" in note for note in notes(survey)) == said


def test_exclusive_mode_is_noted_and_shared_mode_is_not():
    shared = Survey((CARD,), RDMA_CM, NamespaceMode.SHARED)
    assert notes(shared) == ()
    (note,) = notes(replace(shared, namespace_mode=NamespaceMode.EXCLUSIVE))
    assert "one network namespace each" in note


def test_verdicts_come_in_the_order_of_the_survey():
    other = replace(CARD, name="mlx5_1", char_devices=())
    verdicts = judge(Survey((CARD, other), RDMA_CM, NamespaceMode.SHARED))
    assert [(v.device.name, v.usable) for v in verdicts] == [("mlx5_0", True), ("mlx5_1", False)]
