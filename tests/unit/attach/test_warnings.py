"""What is odd and no fault stands in the agent's log, with its place, and once while it lasts."""

import json

from structlog.testing import capture_logs

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.documents.networks import ANNOTATION
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.kubernetes import PodState
from kube_rdma_testing.cluster.server import FakeServer

META = {"name": "rdma", "namespace": "default"}


def warned(log):
    return [one["warning"] for one in log if one["log_level"] == "warning"]


def put(server, **fields):
    """The definition as it is from now on."""
    config = json.dumps({"type": "macvlan", "master": "ens1f0", **fields})
    server.put(DEFINITION, {"metadata": META, "spec": {"config": config}})


async def test_a_definitions_warnings_are_said_once():
    """For the first pod that asks for it, and again when others come in their place."""
    server = FakeServer((IP_POOL, DEFINITION))
    node = NodeView(NodeViewDependencies(Cluster(server.line()), None, NodeContext({}), None, None))
    said = []
    for fields in ({"mastre": "x"}, {"mastre": "x"}, {}, {"mastre": "x"}, {"vlan": 5}):
        put(server, **fields)
        with capture_logs() as log:
            assert await node.definition("default", "rdma")
        said.append(["mastre" in one for one in warned(log)])
    assert said == [[True], [], [], [True], [False]]


def test_an_annotations_warnings_name_the_pod():
    """A key that is nobody's is ignored, as by Multus."""
    text = '[{"name": "a", "x-team": 1}]'
    pod = PodState("default", "train-0", "uid-1", ((ANNOTATION, text),), (), False)
    with capture_logs() as log:
        assert len(asking(pod, "").asks) == 1
    (warning,) = warned(log)
    assert warning.endswith('networks[0]."x-team": there is no such field, it is ignored')
    assert log[0]["pod"] == "default/train-0"
