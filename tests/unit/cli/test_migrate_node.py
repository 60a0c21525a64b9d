"""`kube-rdma migrate node` from the outside, against an API server in memory."""

import json

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.claim_objects import DEVICE_CLASS
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET, POD
from kube_rdma.cli.migrate import migrate
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

HCA, CLASS, NAME = "rdma/hca", "rdma-hca", "node-1"
POOL = {"resource": HCA, "mode": "hca", "shares": 1000, "healthy": 1000, "cards": 8}


class World:
    """A node of an agent with --claims, a class, a pod of each kind, and the command."""

    def __init__(self, *kinds):
        self.server = FakeServer(kinds or (DAEMON_SET, DEVICE_CLASS, NODE_REPORT))
        status = {"allocatable": {HCA: "1k"}, "nodeInfo": {"kubeletVersion": "v1.36.3"}}
        self.server.put(NODE, {"metadata": {"name": NAME}, "spec": {}, "status": status})
        report = {
            "metadata": {"name": NAME},
            "status": {
                "agentVersion": "0.1.0",
                "pools": [POOL],
                "summary": {"cards": 8, "healthy": 8},
            },
        }
        self.server.put(NODE_REPORT, report)
        self.agent("--claims")
        if not kinds:
            spec = {"extendedResourceName": HCA, "selectors": []}
            self.server.put(DEVICE_CLASS, {"metadata": {"name": CLASS}, "spec": spec})
        self.pod("old", "1")
        claim = {"resourceClaimName": "c", "requestMappings": [{"resourceName": HCA}]}
        self.pod("new", "1", extendedResourceClaimStatus=claim)
        self.pod("over", "1", phase="Succeeded")

    def agent(self, *words):
        args = ["agent", "--role=plugin", "--role=node", *words]
        container = {"image": "kube-rdma.io/kube-rdma:1", "args": args}
        spec = {"selector": {}, "template": {"spec": {"containers": [container]}}}
        meta = {"name": "kube-rdma-agent", "namespace": "kube-rdma"}
        self.server.put(DAEMON_SET, {"metadata": meta, "spec": spec})

    def pod(self, name, count, **status):
        container = {"name": "c", "resources": {"limits": {HCA: count, "cpu": "1"}}}
        spec = {"nodeName": NAME, "containers": [container]}
        meta = {"name": name, "namespace": "default"}
        status = {"phase": "Running", **status}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": status})

    def run(self, *words):
        return CliRunner().invoke(migrate, ["node", *words], obj=opener_of(self.server))

    def refused(self, *words):
        """What it refuses, as main turns it into exit code 3."""
        error = self.run(*words).exception
        assert isinstance(error, Refused)
        return str(error)


@pytest.fixture
def world():
    return World()


HEAD = """\
# From shares of the device plugin to claims, by the same resource names.
# Nothing was changed yet. Paste one step at a time; the way back is below.
#
# Seen: node-1, kubelet v1.36.3; rdma/hca: 1k
#   DeviceClass rdma-hca has rdma/hca
# ! Shares of the device plugin are held by default/old:"""


def test_it_says_what_it_saw_and_prints_both_ways(world):
    result = world.run(NAME)
    assert (result.exit_code, result.output[: len(HEAD)]) == (0, HEAD)
    assert "\n# There, step 1 of 1. Claims serve node-1\n" in result.output
    assert "\n# Back, step 1 of 1. The device plugin serves node-1 again\n" in result.output


def test_it_writes_nothing(world):
    world.run(NAME)
    (line,) = world.server.lines[-1:]
    assert {request.verb for request in line.requests} <= {"get", "list"}


def test_as_json_it_has_all_of_it(world):
    document = json.loads(world.run(NAME, "-o", "json").stdout)
    assert document["offered"] == {HCA: "1k"}
    assert document["classes"] == {HCA: CLASS}
    assert document["pods"] == [
        {"pod": "default/new", "asked": {HCA: 1}, "byClaim": [HCA]},
        {"pod": "default/old", "asked": {HCA: 1}, "byClaim": []},
    ]
    assert [len(document[key]) for key in ("steps", "wayBack", "notes")] == [1, 1, 2]


def test_a_node_that_is_not_there_is_refused(world):
    assert "there is no node nobody" in world.refused("nobody")


def test_a_node_without_an_agent_is_refused(world):
    world.server.remove(NODE_REPORT, NAME)
    assert "no agent of kube-rdma reports a resource of node node-1" in world.refused(NAME)


def test_agents_that_serve_no_claims_are_told(world):
    world.agent()
    assert "claims.enabled=true" in world.refused(NAME)


def test_a_server_without_classes_has_none_of_the_name():
    world = World(DAEMON_SET, NODE_REPORT)
    assert "no DeviceClass has extendedResourceName rdma/hca" in world.refused(NAME)
