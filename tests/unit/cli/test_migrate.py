"""`kube-rdma migrate plan` from the outside, against an API server in memory."""

import json

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import CONFIG_MAP, DAEMON_SET, DEPLOYMENTS, POD
from kube_rdma.adapters.cluster.kinds.resource_api import DEVICE_CLASS
from kube_rdma.cli.migrate import migrate
from kube_rdma.migrate import cluster as objects
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit import device_plugins as kit
from tests.kit.opener import opener_of

KINDS = (DAEMON_SET, CONFIG_MAP, DEPLOYMENTS)
SPACE = "kube-system"
READY = {"status": {"numberReady": 2}}


class MigratingWorld:
    """A cluster and one of the commands."""

    command = ""

    def run(self, *words):
        whole = [*self.command.split(), *words]
        return CliRunner().invoke(migrate, whole, obj=opener_of(self.server))

    def refused(self, *words):
        """What it refuses, as main turns it into exit code 3."""
        error = self.run(*words).exception
        assert isinstance(error, Refused)
        return str(error)

    @property
    def verbs(self):
        """Of the requests of the last run."""
        return {request.verb for request in self.server.lines[-1].requests}


class World(MigratingWorld):
    """Two nodes that the shared plugin serves, a pod with a share, and the command."""

    command = "plan --image reg.example.com/kube-rdma:0.1.0"

    def __init__(self):
        self.server = FakeServer(KINDS)
        self.server.put(DAEMON_SET, kit.shared() | READY)
        self.config(kit.SHARED_TEXT)
        for number in (1, 2):
            status = {"allocatable": {"cpu": "4", kit.SHARED_RESOURCE: "12"}}
            meta = {"name": f"node-{number}"}
            self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})
        self.pod("job-0", "Running")
        self.pod("job-1", "Succeeded")

    def config(self, text, namespace=SPACE):
        meta = {"name": "rdma-devices", "namespace": namespace}
        self.server.put(CONFIG_MAP, {"metadata": meta, "data": {"config.json": text}})

    def pod(self, name, phase, field="containers"):
        resources = {"limits": {kit.SHARED_RESOURCE: "1"}}
        spec = {"nodeName": "node-1", "containers": [{"name": "main"}]}
        spec |= {field: [{"name": "c", "resources": resources}]}
        meta = {"name": name, "namespace": "default"}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": phase}})

    def policy(self, namespace=""):
        """NVIDIA's operator in place of the plugin alone."""
        self.server.add(objects.CLUSTER_POLICIES)
        space = namespace or "nvidia-network-operator"
        self.server.remove(DAEMON_SET, "rdma-shared-dp-ds", SPACE)
        self.server.put(DAEMON_SET, kit.nvidia(space, "p") | READY)
        self.config(kit.SHARED_TEXT, space)
        field = "devicePlugin" if namespace else "rdmaSharedDevicePlugin"
        spec = {field: {"config": kit.SHARED_TEXT}, "ofedDriver": {"image": "x"}}
        meta = {"name": "p", **({"namespace": namespace} if namespace else {})}
        self.server.put(objects.CLUSTER_POLICIES, {"metadata": meta, "spec": spec})
        container = {"containers": [{"image": "nvcr.io/nvidia/cloud-native/network-operator:v26"}]}
        deployment = {
            "metadata": {"name": "controller", "namespace": space},
            "spec": {"template": {"spec": container}},
            "status": {"readyReplicas": 1},
        }
        self.server.put(DEPLOYMENTS, deployment)

    def document(self, *words):
        return json.loads(self.run("-o", "json", *words).stdout)


@pytest.fixture
def world():
    return World()


HEAD = """\
# From the shared RDMA device plugin to kube-rdma. Nothing was changed yet.
# Paste one step at a time, and go on when each of its commands ended well.
# Keep this text: the way back names what is there now.
#
# Seen: DaemonSet kube-system/rdma-shared-dp-ds, image ghcr.io/mellanox/k8s-rdma-shared-dev-plugin
#   node-1  rdma/hca_shared_devices_a: 12; 1 pod holds shares (default/job-0)
#   node-2  rdma/hca_shared_devices_a: 12
# ! kube-system/rdma-shared-dp-ds stays, without pods, for the way back.
# ! New nodes get no plugin of kube-rdma without the label kube-rdma.io/agent=on.

# There, step 1 of 4. Install kube-rdma, on no node yet
"""


def test_it_says_what_it_saw_prints_what_a_shell_takes_and_writes_nothing(world):
    """Each line is a comment or part of a command; the plugin's own text is in the values."""
    result = world.run()
    assert world.verbs <= {"get", "list"}
    assert (result.exit_code, result.output[: len(HEAD)]) == (0, HEAD)
    assert "".join(f"    {line}\n" for line in kit.SHARED_TEXT.splitlines()) in result.output
    assert "# Back, step 4 of 4. Remove kube-rdma\n" in result.output


def test_a_pod_whose_sidecar_alone_has_a_share_holds_it_too(world):
    world.pod("job-2", "Running", "initContainers")
    assert "2 pods hold shares (default/job-0, default/job-2)" in world.run().output


def test_without_an_image_there_is_no_plan():
    result = CliRunner().invoke(migrate, ["plan"])
    assert result.exit_code == 2
    assert "No image of kube-rdma is named" in result.stderr


def test_as_json_it_has_all_of_it(world):
    document = world.document("--image", "r.example/kube-rdma:1")
    assert document["start"] == "shared-plugin"
    assert document["daemonSet"] == "kube-system/rdma-shared-dp-ds"
    assert document["policy"] is None
    assert document["nodes"][0] == {
        "name": "node-1",
        "offered": {kit.SHARED_RESOURCE: "12"},
        "label": "",
        "unschedulable": False,
        "pods": ["default/job-0"],
    }
    assert [step["node"] for step in document["steps"]] == [None, None, "node-1", "node-2"]
    assert [step["node"] for step in document["wayBack"]] == ["node-1", "node-2", None, None]
    assert 'repository: "r.example/kube-rdma"' in document["steps"][0]["commands"][0]


@pytest.mark.parametrize(
    ("namespace", "start", "policy"),
    [
        ("", "nvidia-operator", "NicClusterPolicy p"),
        ("mlnx", "nvidia-operator-0.1", "NicClusterPolicy mlnx/p"),
    ],
)
def test_a_policy_s_section_is_kept_in_the_way_back(world, namespace, start, policy):
    """The rest of the policy, such as its driver, is not touched."""
    world.policy(namespace)
    document = world.document()
    assert (document["start"], document["policy"]) == (start, policy)
    back = [one for step in document["wayBack"] for one in step["commands"]]
    (again,) = [one for one in back if "patch nicclusterpolicy p" in one]
    assert json.dumps(kit.SHARED_TEXT)[1:-1] in again
    assert "ofedDriver" not in again
    assert not any("No Deployment" in note for note in document["notes"])


def test_kube_rdma_s_own_daemonset_is_nothing_to_leave(world):
    own = kit.shared()
    own["spec"]["template"]["spec"]["containers"][0]["image"] = "r.example/kube-rdma:1"
    world.server.put(DAEMON_SET, own)
    result = world.run()
    assert result.exit_code == 0
    assert result.output.startswith("kube-rdma serves the nodes already (kube-system/rdma-shared")
    assert world.document()["steps"] == []


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("list", "daemonsets"),
        ("list", "nodes"),
        ("list", "nicclusterpolicies"),
        ("get", "configmaps"),
    ],
)
def test_a_right_without_which_a_plan_would_be_wrong_is_named(world, verb, resource):
    world.policy()
    world.server.forbidden.add((verb, resource))
    assert f'resources: ["{resource}"]' in world.refused()


def test_all_missing_rights_are_named_at_once(world):
    world.server.forbidden |= {("list", "daemonsets"), ("list", "nodes")}
    assert world.refused().count("Add the rule") == 2


@pytest.mark.parametrize("resource", ["pods", "deployments"])
def test_a_right_that_only_tells_more_is_a_note(world, resource):
    world.server.forbidden.add(("list", resource))
    document = world.document()
    assert any(note.startswith("Not read") and resource in note for note in document["notes"])
    assert document["steps"]


def test_a_configuration_that_kube_rdma_does_not_take_is_refused_with_its_place(world):
    world.config('{"configList": [{"resourceName": "a", "rdmaHcaMax": 0}]}')
    assert "ConfigMap kube-system/rdma-devices, config.json" in world.refused()


def test_what_is_unknown_is_named(world):
    world.server.remove(DAEMON_SET, "rdma-shared-dp-ds", SPACE)
    strange = kit.daemon_set("net", "our-rdma-plugin", {"app": "x"}, image="a/b:1")
    world.server.put(DAEMON_SET, strange)
    assert "DaemonSet net/our-rdma-plugin (image a/b:1)" in world.refused()


# `kube-rdma migrate node` from the outside, against an API server in memory.

HCA, CLASS, NAME = "rdma/hca", "rdma-hca", "node-1"
POOL = {"resource": HCA, "mode": "hca", "shares": 1000, "healthy": 1000, "cards": 8}


class NodeWorld(MigratingWorld):
    """A node of an agent with --claims, a class, a pod of each kind, and the command."""

    command = "node"

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
        container = {"image": "localhost/kube-rdma:1", "args": args}
        spec = {"selector": {}, "template": {"spec": {"containers": [container]}}}
        meta = {"name": "kube-rdma-agent", "namespace": "kube-rdma"}
        self.server.put(DAEMON_SET, {"metadata": meta, "spec": spec})

    def pod(self, name, count, **status):
        container = {"name": "c", "resources": {"limits": {HCA: count, "cpu": "1"}}}
        spec = {"nodeName": NAME, "containers": [container]}
        meta = {"name": name, "namespace": "default"}
        status = {"phase": "Running", **status}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": status})


@pytest.fixture
def on_node():
    return NodeWorld()


NODE_HEAD = """\
# From shares of the device plugin to claims, by the same resource names.
# Nothing was changed yet. Paste one step at a time; the way back is below.
#
# Seen: node-1, kubelet v1.36.3; rdma/hca: 1k
#   DeviceClass rdma-hca has rdma/hca
# ! Shares of the device plugin are held by default/old:"""


def test_it_says_what_it_saw_prints_both_ways_and_writes_nothing(on_node):
    result = on_node.run(NAME)
    assert on_node.verbs <= {"get", "list"}
    assert (result.exit_code, result.output[: len(NODE_HEAD)]) == (0, NODE_HEAD)
    assert "\n# There, step 1 of 1. Claims serve node-1\n" in result.output
    assert "\n# Back, step 1 of 1. The device plugin serves node-1 again\n" in result.output


def test_a_plan_of_a_node_as_json_has_all_of_it(on_node):
    document = json.loads(on_node.run(NAME, "-o", "json").stdout)
    assert document["offered"] == {HCA: "1k"}
    assert document["classes"] == {HCA: CLASS}
    assert document["pods"] == [
        {"pod": "default/new", "asked": {HCA: 1}, "byClaim": [HCA]},
        {"pod": "default/old", "asked": {HCA: 1}, "byClaim": []},
    ]
    assert [len(document[key]) for key in ("steps", "wayBack", "notes")] == [1, 1, 2]


def test_a_node_that_is_not_there_is_refused(on_node):
    assert "there is no node nobody" in on_node.refused("nobody")


def test_a_node_without_an_agent_is_refused(on_node):
    on_node.server.remove(NODE_REPORT, NAME)
    assert "no agent of kube-rdma reports a resource of node node-1" in on_node.refused(NAME)


def test_agents_that_serve_no_claims_are_told(on_node):
    on_node.agent()
    assert "claims.enabled=true" in on_node.refused(NAME)


def test_a_server_without_classes_has_none_of_the_name():
    on_node = NodeWorld(DAEMON_SET, NODE_REPORT)
    assert "no DeviceClass has extendedResourceName rdma/hca" in on_node.refused(NAME)
