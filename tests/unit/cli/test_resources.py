"""`kube-rdma resources` from the outside, against an API server in memory."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, DEPLOYMENTS, POD
from kube_rdma.adapters.cluster.kinds.resource_api import DEVICE_CLASS
from kube_rdma.cli.resources import resources
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.reports import NodeReport, ReportedPool
from kube_rdma.reports.node_report import report_status
from kube_rdma.resources.reader import QUOTA
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

KINDS = (*(DAEMON_SETS, DEPLOYMENTS, NODE_REPORT, IP_POOL), *(DEFINITION, DEVICE_CLASS, QUOTA))
CLUSTER_WIDE = ("nodes", "nodereports", "ippools", "deviceclasses")
NAMESPACED = ("pods", "network-attachment-definitions", "daemonsets", "deployments")
NOW = "2026-01-01T00:00:00Z"
NIC = "rdma/nic"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


def meta(name, namespace="", **more):
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


class World:
    """Two nodes with eight shares each, two networks, a class, a pod of another namespace."""

    def __init__(self):
        self.server = FakeServer(KINDS)
        for name in ("node-1", "node-2"):
            self.node(name)
        self.network("rails", "kube-rdma", {"pools": {"0": "rail-0", "1": "rail-1"}})
        self.network("lone", "kube-rdma", {"pool": "rail-0"})
        self.pool("rail-0")
        self.pool("rail-1")
        self.device_class("rdma")
        self.pod("busy", "other", "node-1", 3)
        self.pod("mine", "default", "node-2", 2)
        self.pod("ended", "default", "node-2", 2, "Succeeded")

    def node(self, name, shares="8", serve="", **spec):
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
        status = {"allocatable": {NIC: shares, "cpu": "8"}, "conditions": ready}
        self.server.put(NODE, {"metadata": meta(name), "spec": spec, "status": status})
        pool = ReportedPool(NIC, "shared", 8, 8, 8, serve)
        made = report_status(None, NodeReport("0.1.0", (), (), (pool,)), NOW)
        document = {"metadata": meta(name), "status": msgspec.to_builtins(made)}
        self.server.put(NODE_REPORT, document)

    def network(self, name, namespace, ipam):
        config = {"type": "kube-rdma", "ipam": {"type": "kube-rdma-ipam", **ipam}}
        document = {
            "metadata": meta(name, namespace, annotations={RESOURCE: NIC}),
            "spec": {"config": json.dumps(config)},
        }
        self.server.put(DEFINITION, document)

    def pool(self, name, **spec):
        spec = {"ranges": [{"subnet": "10.0.0.0/24"}], **spec}
        document = {"metadata": meta(name), "spec": spec, "status": {"free": "222"}}
        self.server.put(IP_POOL, document)

    def device_class(self, name, **spec):
        cel = {"cel": {"expression": 'device.driver == "rdma.kube-rdma.io"'}}
        document = {"metadata": meta(name), "spec": {"selectors": [cel], **spec}}
        self.server.put(DEVICE_CLASS, document)

    def pod(self, name, namespace, node, shares, phase="Running"):
        limits = {"resources": {"limits": {NIC: str(shares)}}}
        document = {
            "metadata": meta(name, namespace),
            "spec": {"nodeName": node, "containers": [limits]},
            "status": {"phase": phase},
        }
        self.server.put(POD, document)

    def agent(self, *words):
        spec = {"containers": [{"image": "kube-rdma:1", "args": ["agent", *words]}]}
        document = {"metadata": meta("agent", "kr"), "spec": {"template": {"spec": spec}}}
        self.server.put(DAEMON_SETS, document)

    def one_namespace_alone(self):
        """As a RoleBinding to view: nothing of the cluster, and lists of the namespace alone."""
        self.server.forbidden |= {("list", name) for name in CLUSTER_WIDE}
        self.server.forbidden |= {("watch", name) for name in CLUSTER_WIDE}
        self.server.forbidden |= {("list", f"*/{name}") for name in NAMESPACED}

    def run(self, *words):
        return CliRunner().invoke(resources, [*words], obj=opener_of(self.server))

    def document(self, *words):
        result = self.run(*words, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def world():
    return World()


PAGE = """\
RESOURCE  MODE    NODES  SHARES  FREE  ON A NODE  USED HERE  QUOTA LEFT
rdma/nic  shared  2      16      11    6          2          -

CLASS OF CLAIMS  RESOURCE
rdma             -

NETWORK          RESOURCE  FREE ADDRESSES
kube-rdma/lone   rdma/nic  222
kube-rdma/rails  rdma/nic  222

For rdma/nic. A share is one virtual interface of each physical card.
    metadata:
      annotations:
        k8s.v1.cni.cncf.io/networks: kube-rdma/rails
    spec:
      containers:
      - name: main
        resources:
          limits: {rdma/nic: 1}

As a claim of class rdma:
    # kube-rdma claim --class rdma | kubectl apply -f -
    spec:
      resourceClaims:
      - {name: rdma, resourceClaimTemplateName: rdma}
      containers:
      - name: main
        resources:
          claims: [{name: rdma}]
"""


def test_a_page_has_what_there_is_what_is_free_and_what_to_write(world):
    result = world.run()
    assert (result.output, result.exit_code) == (PAGE, 0)


def test_the_rights_of_one_namespace_show_what_it_has_and_name_the_rest(world):
    """The resource is known by the namespace's own pods, and a network of its own."""
    world.one_namespace_alone()
    world.network("own", "default", {"pool": "rail-0"})
    result = world.run()
    assert result.exit_code == 0
    assert "rdma/nic  -     -      -       -     -          2          -" in result.output
    assert "default/own  rdma/nic" in result.output
    squeezed = " ".join(result.output.split())
    for sentence in (
        "? Not seen: the modes and healthy shares of nodes. You may not list nodereports; an",
        "? Not seen: the networks of other namespaces. You may not list",
        "? Not seen: what is free, which pods of all namespaces tell. You may not list pods;",
        "administrator can bind the ClusterRole kube-rdma-view to you.",
    ):
        assert sentence in squeezed
    assert "Add the rule" not in result.output


def test_shared_networks_are_shown_to_who_may_read_those_namespaces(world):
    world.one_namespace_alone()
    world.network("all", "kube-system", {"pool": "rail-0"})
    assert [one["name"] for one in world.document()["networks"]] == ["kube-system/all"]


def test_who_sees_nothing_and_lacks_rights_has_exit_code_6(world):
    world.one_namespace_alone()
    result = world.run("-n", "empty")
    assert result.exit_code == 6
    assert "No resource, class or network for RDMA cards could be seen." in result.output


def test_a_cluster_without_any_of_it_says_so_with_exit_code_0():
    world = World()
    world.server = FakeServer()
    result = world.run()
    expected = "No resource, class or network for RDMA cards is there.\n"
    assert (result.output, result.exit_code) == (expected, 0)


def test_shares_by_claims_are_counted_though_the_kubelet_lists_none(world):
    world.node("node-1", "0", "claims")
    (shares,) = world.document()["resources"]
    assert (shares["shares"], shares["free"], shares["byClaims"]) == (16, 11, True)
    assert "shared by claims" in world.run().output


def test_a_class_with_a_resource_name_needs_no_claim(world):
    world.device_class("rdma", extendedResourceName=NIC)
    assert "As a claim" not in world.run().output
    assert world.document()["classes"][0]["resource"] == NIC


def test_classes_of_other_drivers_are_left_out(world):
    cel = {"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}
    world.server.put(DEVICE_CLASS, {"metadata": meta("gpu"), "spec": {"selectors": [cel]}})
    assert [one["name"] for one in world.document()["classes"]] == ["rdma"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--networks",), {"kube-rdma/lone", "kube-rdma/rails"}),
        (("--networks", "--namespace-isolation"), set()),
        (("--namespace-isolation=kube-rdma",), {"kube-rdma/lone", "kube-rdma/rails"}),
        (("--namespace-isolation", "shared,kube-rdma"), {"kube-rdma/lone", "kube-rdma/rails"}),
    ],
)
def test_networks_that_agents_keep_to_their_namespace_are_counted_alone(world, words, names):
    world.agent(*words)
    document = world.document()
    assert {one["name"] for one in document["networks"]} == names
    assert document["networksOfOthers"] == 2 - len(names)
    hidden = "2 networks more: pods of default may not name them." in world.run().output
    assert hidden is not bool(names)


def test_a_network_whose_pool_is_for_others_may_not_be_named(world):
    world.pool("rail-1", namespaces=["team-a"])
    assert [one["name"] for one in world.document()["networks"]] == ["kube-rdma/lone"]
    team = world.document("-n", "team-a")["networks"]
    assert [one["name"] for one in team] == ["kube-rdma/lone", "kube-rdma/rails"]


def test_a_network_that_is_no_configuration_is_shown_without_addresses(world):
    document = {"metadata": meta("odd", "default"), "spec": {"config": "{"}}
    world.server.put(DEFINITION, document)
    assert world.document()["networks"][0] == {
        "name": "default/odd",
        "resource": "",
        "freeAddresses": "",
    }
