"""Addresses of the node, and announcements that matter."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.kernel.netlink.events import LOST, News, RtnlEvent, Uevent
from kube_rdma.hardware.kernel_events import CardEvents
from kube_rdma.hardware.survey import OwnAddresses, read_own
from kube_rdma.model.kubernetes import NodeState
from tests.kit.nodes import device, function, node, position
from tests.unit.kube_client.test_connect import Server, answer

ADDRESSES = (("Hostname", "node-1"), ("InternalIP", "10.1.0.5"), ("ExternalIP", "192.0.2.5"))


def test_those_of_the_node_object_and_of_the_connection():
    own = OwnAddresses()
    assert own.now() == {}
    assert own.seen(NodeState("node-1", addresses=ADDRESSES))
    assert not own.seen(NodeState("node-1", addresses=ADDRESSES))
    own.connected(lambda: "10.2.0.5")
    assert own.now() == {
        "10.1.0.5": "the node's InternalIP 10.1.0.5",
        "192.0.2.5": "the node's ExternalIP 192.0.2.5",
        "10.2.0.5": "the connection to the API server, from 10.2.0.5",
    }
    own.connected(lambda: "10.1.0.5")
    assert own.now()["10.1.0.5"] == "the node's InternalIP 10.1.0.5"


async def test_they_are_asked_for_once(tmp_path):
    addresses = [{"type": kind, "address": address} for kind, address in ADDRESSES]
    meta = {"name": "node-1", "uid": "u", "resourceVersion": "1"}
    node = {"metadata": meta, "spec": {}, "status": {"addresses": addresses}}
    async with Server(answer(node)).running(tmp_path) as config:
        assert set(await read_own("node-1", connect(config))) == {
            "10.1.0.5",
            "192.0.2.5",
            "127.0.0.1",
        }


async def test_a_node_that_is_not_there_is_said(tmp_path):
    """A slip of its name would spare no card in silence."""
    gone = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
    gone["details"] = {"name": "nod-1", "kind": "nodes"}
    async with Server(answer(gone, 404)).running(tmp_path) as config:
        with pytest.raises(Unavailable, match="no node nod-1"):
            await read_own("nod-1", connect(config))


SURVEY = node(
    function(position(0x81), "eth0"),
    devices=(device(1, None, "veth1"), device(0, position(0x81), "eth0")),
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
    assert events.concern(event)
