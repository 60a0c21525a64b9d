"""Which devices are usable: verbs need an open door and a port that carries traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    LinkLayer,
    PciAddress,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.rules.discovery import judge, notes

UP = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, "eth1", ())
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


def reasons_against(device):
    (verdict,) = judge(Survey((device,), RDMA_CM, NamespaceMode.SHARED))
    assert verdict.usable is not bool(verdict.reasons)
    return verdict.reasons


def down(state, physical, layer=LinkLayer.ETHERNET, netdev="eth1"):
    return replace(UP, state=state, physical_state=physical, link_layer=layer, netdev=netdev)


def test_a_card_with_a_door_and_an_active_port_is_usable():
    assert reasons_against(CARD) == ()


def test_one_active_port_of_two_is_enough():
    other = replace(down(PortState.DOWN, PhysicalState.POLLING), number=2)
    assert reasons_against(replace(CARD, ports=(UP, other))) == ()


def test_without_uverbs_the_module_is_named():
    assert reasons_against(replace(CARD, char_devices=())) == (
        "no uverbs device, so no program can open it: modprobe ib_uverbs",
    )


def test_without_ports_there_is_nothing_to_carry_traffic():
    assert reasons_against(replace(CARD, ports=())) == (
        "no port: the driver has registered none, dmesg may say why",
    )


IB = LinkLayer.INFINIBAND
REMEDIES = [
    (down(PortState.DOWN, PhysicalState.DISABLED), "ip link set eth1 up"),
    (down(PortState.DOWN, PhysicalState.DISABLED, netdev=None), "set its interface up"),
    (down(PortState.DOWN, PhysicalState.POLLING), "cable and the switch port behind eth1"),
    (down(PortState.DOWN, PhysicalState.POLLING, netdev=None), "cable and the switch port"),
    (down(PortState.INIT, PhysicalState.LINK_UP, IB, None), "opensm"),
    (down(PortState.DOWN, PhysicalState.DISABLED, IB, None), "ibportstate"),
    (down(PortState.UNKNOWN, PhysicalState.UNKNOWN), "could not be read"),
]


@pytest.mark.parametrize(("port", "remedy"), REMEDIES)
def test_a_port_that_is_not_active_comes_with_state_and_remedy(port, remedy):
    (reason,) = reasons_against(replace(CARD, ports=(port,)))
    assert reason.startswith(f"no port is ACTIVE; port 1 is {port.state} ({port.physical_state}): ")
    assert remedy in reason


def test_every_reason_is_given_at_once():
    assert len(reasons_against(replace(CARD, char_devices=(), ports=()))) == 2


@pytest.mark.parametrize("kind", ["CA", "RNIC", "unspecified"])
def test_a_missing_connection_manager_refuses_no_device(kind):
    survey = Survey((replace(CARD, node_type=kind),), None, NamespaceMode.SHARED)
    assert judge(survey)[0].usable


@pytest.mark.parametrize(("kind", "said"), [("CA", 1), ("RNIC", 1), ("unspecified", 0)])
def test_a_missing_connection_manager_is_noted_where_it_could_be_used(kind, said):
    survey = Survey((replace(CARD, node_type=kind),), None, NamespaceMode.SHARED)
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
