"""RDMA netlink in our own words against the kernel's: rxe links made by `rdma`."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Attribute, Netlink, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_read import NETLINK_RDMA, Attr, Command, read_links
from kube_rdma.model.device import PhysicalState, PortState
from kube_rdma.model.survey import NamespaceMode

from .world import run, until

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]

NLDEV = 5 << 10


def the_link(name):
    """The device of that name as netlink shows it, None while it is not there."""
    return next((device for device in read_links().devices if device.name == name), None)


def test_a_link_is_seen_with_its_port_and_interface(cards, link):
    link("rxe0", cards[0])
    (port,) = until(lambda: the_link("rxe0")).ports
    until(lambda: the_link("rxe0").ports[0].state is PortState.ACTIVE)
    assert (port.number, port.netdev) == (1, cards[0])
    run("ip", "link", "set", cards[0], "down")
    (port,) = until(lambda: [p for p in the_link("rxe0").ports if p.state is not PortState.ACTIVE])
    assert (port.state, port.physical_state) == (PortState.DOWN, PhysicalState.DISABLED)


def test_links_are_told_apart_and_gone_ones_are_gone(cards, link):
    for name, card in zip(("rxe0", "rxe1"), cards, strict=True):
        link(name, card)
    found = {device.name: device for device in read_links().devices}
    assert found.keys() == {"rxe0", "rxe1"}
    assert found["rxe0"].index != found["rxe1"].index
    assert [found[name].ports[0].netdev for name in ("rxe0", "rxe1")] == list(cards)
    run("rdma", "link", "delete", "rxe0")
    assert [device.name for device in read_links().devices] == ["rxe1"]


def test_the_kernel_says_how_devices_relate_to_namespaces():
    view = read_links()
    assert view.namespace_mode is NamespaceMode.SHARED
    assert view.faults == ()


def test_a_port_in_a_pod_has_no_interface_here(pod, link):
    link("rxep", "net1", pod)
    assert [port.netdev for port in the_link("rxep").ports] == [None]


def test_a_device_that_is_not_there_is_refused_with_the_kernel_s_errno():
    nobody = encode_attributes([Attribute(Attr.DEV_INDEX, (4711).to_bytes(4, "little"))])
    with Netlink(NETLINK_RDMA) as netlink, pytest.raises(Unavailable, match="Invalid argument"):
        netlink.ask(NLDEV | Command.GET, nobody)


def test_a_refusal_carries_the_kernel_s_own_sentence():
    short = encode_attributes([Attribute(Attr.DEV_INDEX, b"\1")])
    with Netlink(NETLINK_RDMA) as netlink, pytest.raises(Unavailable) as refused:
        netlink.ask(NLDEV | Command.GET, short)
    assert "policy validation" in str(refused.value)
