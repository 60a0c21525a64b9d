"""`kube-rdma resources` from the outside, against an API server in memory."""

import json

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, DEPLOYMENTS, POD
from kube_rdma.adapters.cluster.kinds.resource_api import DEVICE_CLASS
from kube_rdma.cli.resources import resources
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool, ReportedPort
from kube_rdma.names.cluster import ENDPOINT_SLICE
from kube_rdma.reports.node_report import report_status
from kube_rdma.resources.reader import QUOTA
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.names import endpoint_slice
from tests.kit.opener import opener_of

KINDS = (*(DAEMON_SETS, DEPLOYMENTS, NODE_REPORT, IP_POOL), *(DEFINITION, DEVICE_CLASS, QUOTA))
CLUSTER_WIDE = ("nodes", "nodereports", "ippools", "deviceclasses")
NAMESPACED = ("pods", "network-attachment-definitions", "daemonsets", "deployments")
NOW = "2026-01-01T00:00:00Z"
NIC, RUNTIME = "rdma/nic", "containerd://2.1.0"
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

    def node(self, name, shares="8", serve="", *, mode="shared", link="Ethernet", runtime=RUNTIME):
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
        info = {"containerRuntimeVersion": runtime}
        status = {"allocatable": {NIC: shares, "cpu": "8"}, "conditions": ready, "nodeInfo": info}
        self.server.put(NODE, {"metadata": meta(name), "spec": {}, "status": status})
        pool = ReportedPool(NIC, mode, 8, 8, 8, serve)
        port = ReportedPort("mlx5_0", 1, "ACTIVE", link)
        card = ReportedCard("0000:81:00.0", "mlx5_0", (NIC,), ports=(port,))
        made = report_status(None, NodeReport("0.1.0", (card,), (), (pool,)), NOW)
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

    def pod(self, name, namespace, node, shares, phase="Running", resource=NIC):
        limits = {"resources": {"limits": {resource: str(shares)}}}
        document = {
            "metadata": meta(name, namespace),
            "spec": {"nodeName": node, "containers": [limits]},
            "status": {"phase": phase},
        }
        self.server.put(POD, document)

    def quota(self, **hard):
        status = {"hard": hard, "used": {key: "2" for key in hard if key.startswith("requests.")}}
        self.server.put(QUOTA, {"metadata": meta("cards", "default"), "status": status})

    def without_networks(self):
        for name in ("lone", "rails"):
            self.server.remove(DEFINITION, name, "kube-rdma")

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


def test_containers_that_run_together_hold_shares_together(world):
    """A sidecar runs beside the containers, an init container beside the sidecars before it."""

    def container(shares, **more):
        return {"resources": {"limits": {NIC: str(shares), "cpu": "1"}}, **more}

    def free(*inits):
        spec = {"nodeName": "node-1", "containers": [container(1)], "initContainers": [*inits]}
        document = {"metadata": meta("busy", "other"), "spec": spec, "status": {}}
        world.server.put(POD, document)
        return world.document()["resources"][0]["free"]

    sidecar = container(2, restartPolicy="Always")
    assert free() == 13
    assert free(container(3)) == 11
    assert free(sidecar) == 11
    assert free(sidecar, container(3)) == 9
    assert free(container(3), sidecar) == 11
    assert free(sidecar, sidecar) == 9


def test_services_that_name_addresses_are_listed(world):
    world.server.add(ENDPOINT_SLICE)
    world.server.put(ENDPOINT_SLICE, endpoint_slice(("worker-0", True), ("worker-1", False)))
    world.server.put(ENDPOINT_SLICE, endpoint_slice(("other", True), namespace="other"))
    lines = world.run().stdout.splitlines()
    row = lines.index("NAMES OF ADDRESSES         ADDRESSES  READY") + 1
    assert lines[row].split() == ["HOSTNAME.ring.default.svc", "2", "1"]
    (names,) = world.document()["names"]
    assert names == {"names": "HOSTNAME.ring.default.svc", "addresses": 2, "ready": 1}


PAGE = """\
RESOURCE  MODE    NODES  SHARES  FREE  ON A NODE  USED HERE  QUOTA LEFT
rdma/nic  shared  2      16      11    6          2          -

CLASS OF CLAIMS  RESOURCE
rdma             -

NETWORK          RESOURCE  FREE ADDRESSES
kube-rdma/lone   rdma/nic  222
kube-rdma/rails  rdma/nic  222

For rdma/nic. A share is the one virtual interface of a physical card.
    apiVersion: v1
    kind: Pod
    metadata:
      name: rdma
      annotations:
        k8s.v1.cni.cncf.io/networks: kube-rdma/rails
    spec:
      containers:
      - name: main
        image: kube-rdma:1 # with your programs
        command: [sleep, infinity]
        resources:
          limits: {rdma/nic: 1}

As a claim of class rdma:
    # kube-rdma claim --class rdma | kubectl apply -f -
    apiVersion: v1
    kind: Pod
    metadata:
      name: rdma
    spec:
      resourceClaims:
      - {name: rdma, resourceClaimTemplateName: rdma}
      containers:
      - name: main
        image: kube-rdma:1 # with your programs
        command: [sleep, infinity]
        resources:
          claims: [{name: rdma}]
"""
NONE = (
    "No network that pods of default may name is tied to rdma/nic: on Ethernet (RoCE) a pod "
    "without one cannot use its card. Ask your administrator for one (docs/networks.md)."
)


def test_a_page_has_what_there_is_what_is_free_and_what_to_write(world):
    world.agent("--networks")
    result = world.run()
    assert (result.output, result.exit_code) == (PAGE, 0)


@pytest.mark.parametrize(
    ("mode", "link", "named", "note"),
    [
        ("shared", "Ethernet", True, True),
        ("sriov", "Ethernet", True, True),
        ("shared-multi", "InfiniBand", False, False),
        ("sriov", "InfiniBand", True, False),  # its network writes the function's GUID
        ("exclusive", "Unknown", True, False),  # as EFA; but its networks are there to be named
        ("hca", "Ethernet", False, False),
    ],
)
def test_a_pod_names_a_network_where_its_card_needs_one(world, mode, link, named, note):
    """Where it needs one and none is there, a sentence stands in place of a pod without."""
    for name in ("node-1", "node-2"):
        world.node(name, mode=mode, link=link)
    (shares,) = world.document()["resources"]
    metadata = yaml.safe_load(shares["write"])["metadata"]
    assert ("annotations" in metadata, shares["notes"]) == (named, [])
    world.without_networks()
    (shares,) = world.document()["resources"]
    assert (shares["write"] == "", shares["notes"]) == (note, [NONE] * note)
    assert (NONE in " ".join(world.run().output.split())) is note


def test_a_card_of_a_node_that_nobody_saw_may_need_a_network(world):
    world.one_namespace_alone()
    (shares,) = world.document()["resources"]
    assert (shares["notes"], "limits: {rdma/nic: 1}" in shares["write"]) == ([NONE], True)


def test_cards_of_vke_need_no_definition(world):
    """Their block names a network that agents have themselves."""
    world.pod("vke", "default", "node-1", 1, resource="vke.volcengine.com/rdma")
    _, shares = world.document()["resources"]
    (annotation,) = yaml.safe_load(shares["write"])["metadata"]["annotations"].items()
    assert annotation == ("k8s.volcengine.com/pod-networks", '[{"cniConf": {"name": "rdma"}}]')
    assert shares["notes"] == []


@pytest.mark.parametrize(
    ("words", "runtime", "locks"),
    [
        (("--networks",), "containerd://2.1.0", False),
        (("--networks",), "containerd://1.7.0", True),
        (("--networks",), "cri-o://1.34.0", False),
        ((), "containerd://2.1.0", True),
    ],
)
def test_a_pod_adds_ipc_lock_where_no_agent_lifts_the_limit(world, words, runtime, locks):
    world.agent(*words)
    world.node("node-1", runtime=runtime)
    assert ("IPC_LOCK" in world.document()["resources"][0]["write"]) is locks


def test_keys_of_a_quota_that_count_nothing_are_named(world):
    """Kubernetes takes them and limits nothing by them."""
    objects = {"count/jobs.batch": "1", "rdma.deviceclass.resource.k8s.io/devices": "1"}
    world.quota(**{"limits.rdma/nic": "1", NIC: "1", "limits.a.b/rdma": "1", **objects})
    (shares,) = world.document()["resources"]
    assert shares["quotaLeft"] is None
    assert shares["notes"] == [
        f"{key} of ResourceQuota cards counts nothing: Kubernetes counts requests.rdma/nic alone."
        for key in ("limits.rdma/nic", NIC)
    ]
    world.quota(**{"requests.rdma/nic": "5"})
    (shares,) = world.document()["resources"]
    assert (shares["quotaLeft"], shares["notes"]) == (3, [])


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


def test_where_claims_alone_give_shares_no_limit_is_told(world):
    """The command for a claim then has the network; a class may have one of its own."""
    world.node("node-1", "0", "claims")
    (shares,) = world.document()["resources"]
    told = ["Claims alone give shares of rdma/nic: ask for a device of a class."]
    assert (shares["write"], shares["notes"]) == ("", told)
    command = "# kube-rdma claim --class rdma --network kube-rdma/rails | kubectl apply -f -\n"
    assert world.document()["classes"][0]["write"].startswith(command)
    world.without_networks()
    assert "--network" not in world.document()["classes"][0]["write"]
    world.device_class("rdma", extendedResourceName=NIC)
    (shares,) = world.document()["resources"]
    assert ("limits: {rdma/nic: 1}" in shares["write"], shares["notes"]) == (True, [])


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


def test_a_preflight_is_offered_where_the_controller_lets_gangs_measure(world):
    """With the command for the lines that old releases of Kubernetes need, and an image."""

    def controller(*words):
        spec = {"containers": [{"image": "kube-rdma:1", "args": ["controller", *words]}]}
        document = {"metadata": meta("controller", "kr"), "spec": {"template": {"spec": spec}}}
        world.server.put(DEPLOYMENTS, document)

    world.agent()
    controller()
    assert world.document()["preflight"] == []
    assert "preflight" not in world.run().stdout
    controller("--preflight")
    (said,) = world.document()["preflight"]
    assert said.endswith("kube-rdma preflight lines --image kube-rdma:1")
    assert "kube-rdma.io/preflight: ring" in " ".join(world.run().stdout.split())
