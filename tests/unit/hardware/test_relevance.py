"""Interfaces of pods wake nobody; cards, what stands on them and what was lost do."""

from __future__ import annotations

import pytest

from kube_rdma.adapters.kernel.netlink.events import LOST, News, RtnlEvent, Uevent
from kube_rdma.hardware.kernel_events import CardEvents
from tests.kit.nodes import device, function, node, seat

SURVEY = node(
    function(seat(0x81), "eth0"), devices=(device(1, None, "veth1"), device(0, seat(0x81), "eth0"))
).survey


@pytest.fixture
def events():
    found = CardEvents()
    found.surveyed(SURVEY)
    return found


def test_a_veth_that_comes_and_goes_with_its_addresses_wakes_nobody(events):
    """As a bridge makes one for a pod; of a bridge's port the kernel tells without its kind."""
    assert not events.concern(Uevent("add", "net", "/devices/virtual/net/veth9"))
    for kind in ("veth", "macvlan", "ipvlan"):
        assert not events.concern(RtnlEvent(News.LINK, 9, "veth9", kind))
    assert not events.concern(RtnlEvent(News.LINK, 9, "veth9"))
    assert not events.concern(RtnlEvent(News.ADDRESS, 9))
    assert not events.concern(RtnlEvent(News.LINK_GONE, 9, "veth9", "veth"))
    assert events.concern(RtnlEvent(News.ADDRESS, 9)), "another interface may have the index"


@pytest.mark.parametrize(
    "event",
    [
        RtnlEvent(News.LINK, 1, "eth0"),
        RtnlEvent(News.LINK, 2, "bond0", "bond"),
        RtnlEvent(News.LINK, 3, "eth0.7", "vlan"),
        RtnlEvent(News.LINK, 4, "veth1", "veth"),
        RtnlEvent(News.ADDRESS, 1),
        RtnlEvent(News.LOST),
        Uevent(LOST),
        Uevent("add", "infiniband", "/devices/virtual/infiniband/rxe9"),
        Uevent("move", "net", "/devices/pci0000:00/0000:81:00.0/net/eth0"),
        Uevent("change", "net", "/devices/virtual/net/veth1"),
        object(),
    ],
)
def test_what_may_be_a_card_s_is_looked_into(events, event):
    """Also a veth on which a soft RDMA device sits."""
    assert events.concern(event)
