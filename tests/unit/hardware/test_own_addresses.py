"""Which addresses of a node keep their cards, and how they are asked for once."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.hardware.survey import OwnAddresses, read_own
from kube_rdma.model.kubernetes import NodeState
from tests.unit.kube_client.test_connect import Server, answer

ADDRESSES = (("Hostname", "node-1"), ("InternalIP", "10.1.0.5"), ("ExternalIP", "192.0.2.5"))


def test_those_of_the_node_object_and_of_the_connection():
    """A name is no address; the Node object's word is the better known."""
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
    """By `config check --node`."""
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
