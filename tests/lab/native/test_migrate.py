"""From each device plugin to kube-rdma and back, by the words that `kube-rdma migrate plan` prints.

The kubelet is real, and so is the shared plugin of Mellanox (tests/kit/shared_plugin.py), which
also stands in for the closed ones, under the DaemonSets of their documents: it names its shares as
the plugin of SCC does. NVIDIA's operators are stand-ins (tests/kit/vendor_operator.py). Pods run on
every node all the while; the kubelet's checkpoint says who holds which share.
"""

import json
from contextlib import ExitStack

import pytest

from kube_rdma.attach.rules.conflist import CELLO_RDMA, SAVED
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.product import REFERENCE
from tests.documents.shell import Shell
from tests.kit import device_plugins as vendors
from tests.kit import share_pods as pods
from tests.kit import shared_plugin as kit
from tests.kit import vendor_operator as operators

NODES = ("node-1", "node-2")
GONE = ("--ignore-not-found", "--wait")
HCA = "rdma/hca"
VKE, MODE = "vke.volcengine.com/rdma", "vke.node.rdma.mode"
LEFT = json.dumps({"cniVersion": "0.3.1", "name": "rdma", "plugins": [{"type": CELLO_RDMA}]})
LEFT_FILE = "/etc/cni/net.d/20-rdma.conflist"
NVIDIA = "nvidia-network-operator"
STAND_IN, STAND_IN_FOLDER = "stand-in", "/stand-in"


def config(prefix, name, shares):
    """What the plugin of Mellanox is to offer."""
    entry = {
        "resourcePrefix": prefix,
        "resourceName": name,
        "rdmaHcaMax": shares,
        "selectors": {"vendors": ["15b3"]},
    }
    return json.dumps({"configList": [entry]})


def config_map(name, namespace, text):
    """A ConfigMap with the plugin's key."""
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"config.json": text},
    }


class Origin:
    """A plugin as its document installs it, run by the program of Mellanox on the lab's nodes."""

    def __init__(self, document, resource, shares, *, read="", offered=""):
        """`read`: the text of its own ConfigMap; `offered`: what the stand-in reads instead."""
        self.document, self.resource, self.shares = document, resource, shares
        self.namespace = document["metadata"]["namespace"]
        self.objects = [config_map("rdma-devices", self.namespace, read)] if read else []
        if offered:
            self.objects.append(config_map(STAND_IN, self.namespace, offered))
        self._equip(stand_in=bool(offered))

    def _equip(self, *, stand_in):
        """Give the DaemonSet the program that lies on the nodes, with what that needs."""
        pod = self.document["spec"]["template"]["spec"]
        real = kit.vendors()["spec"]["template"]["spec"]
        (container,), (program,) = pod["containers"], real["containers"]
        same = ("image", "command", "env", "securityContext")
        container |= {key: program[key] for key in same}
        names = {one["mountPath"] for one in container["volumeMounts"]}
        for mount in program["volumeMounts"]:
            volume = next(one for one in real["volumes"] if one["name"] == mount["name"])
            if mount["mountPath"] not in names and "hostPath" in volume:
                container["volumeMounts"].append(mount)
                pod["volumes"].append(volume)
        if stand_in:
            container["args"] = [f"--config-file={STAND_IN_FOLDER}/config.json"]
            container["volumeMounts"].append({"name": STAND_IN, "mountPath": STAND_IN_FOLDER})
            pod["volumes"].append({"name": STAND_IN, "configMap": {"name": STAND_IN}})
        pod |= {key: real[key] for key in ("hostNetwork", "priorityClassName", "tolerations")}

    @property
    def quantity(self):
        """How the API server writes the number of shares."""
        return "1k" if self.shares == 1000 else str(self.shares)


def shared():
    return Origin(vendors.shared(), kit.RESOURCE, 12, read=vendors.SHARED_TEXT)


def scc():
    offered = config("rdma", "hca", 1000)
    return Origin(vendors.scc(), HCA, 1000, read='{"mode": "hca"}\n', offered=offered)


def ack():
    return Origin(vendors.ack(), HCA, 1000, offered=config("rdma", "hca", 1000))


def nvidia():
    return Origin(vendors.nvidia(), kit.RESOURCE, 12, read=vendors.SHARED_TEXT)


def vke():
    return Origin(vendors.vke(), VKE, 8, offered=config("vke.volcengine.com", "rdma", 8))


STARTS = {
    "shared-plugin": shared,
    "nvidia-operator": nvidia,
    "nvidia-operator-0.1": nvidia,
    "scc": scc,
    "ack": ack,
    "vke": vke,
}
# The two ways that users take most; the others are the first one under other names.
UNDRAINED = [
    "shared-plugin",
    "nvidia-operator",
    *(pytest.param(one, marks=pytest.mark.slow) for one in ("nvidia-operator-0.1", "scc", "ack")),
]


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes that can run the plugin of Mellanox."""
    kit.put_program(native, NODES)
    return native


@pytest.fixture
def shell(native, tmp_path):
    """A shell of somebody whose kubectl speaks with the lab's cluster, in a folder of their own."""
    variables = {"KUBECONFIG": str(native.kubeconfig), "HOME": str(tmp_path)}  # for its cache
    with Shell(variables, native.state.binaries) as opened:
        opened.check(f"cd {tmp_path}")
        yield opened


def policy_of(start, origin):
    """The policy of NVIDIA's operator that has its plugin installed."""
    section = {"image": "k8s-rdma-shared-dev-plugin", "config": vendors.SHARED_TEXT}
    if start == "nvidia-operator":
        return operators.policy("nic-cluster-policy", "", "rdmaSharedDevicePlugin", section)
    return operators.policy("nic-cluster-policy", origin.namespace, "devicePlugin", section)


@pytest.fixture
def begun(lab):
    """Install an origin and wait until its plugin serves; all of it is gone at the end."""
    with ExitStack() as stack:
        yield lambda start: install(lab, stack, start)
    cluster.kubectl(lab, "uncordon", *NODES)
    cluster.kubectl(lab, "label", "node", "--all", "kube-rdma.io/agent-")


def install(lab, stack, start):
    """The origin of a start, whose plugin serves both nodes."""
    origin = STARTS[start]()
    stack.callback(pods.end, lab)
    meta = origin.document["metadata"]
    words = ("-n", origin.namespace, f"daemonset/{meta['name']}", *GONE)
    stack.callback(cluster.kubectl, lab, "delete", *words)
    if start.startswith("nvidia"):
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NVIDIA}}
        cluster.apply(lab, space)
        kind = operators.definition(namespaced=start != "nvidia-operator")
        cluster.apply(lab, kind, *origin.objects)
        stack.callback(cluster.delete_definition, lab, kind["metadata"]["name"])
        known_to_kubectl(lab, namespaced=start != "nvidia-operator")
        wanted = policy_of(start, origin)
        cluster.apply(lab, wanted)
        deletes = start == "nvidia-operator"
        stack.enter_context(operators.working(lab, wanted, origin.document, deletes=deletes))
    else:
        cluster.apply(lab, *origin.objects, origin.document)
    for one in origin.objects:
        words = ("-n", origin.namespace, "configmap", one["metadata"]["name"], *GONE)
        stack.callback(cluster.kubectl, lab, "delete", *words)
    cluster.wait_for_resource(lab, origin.resource, origin.quantity)
    return origin


def known_to_kubectl(lab, *, namespaced):
    """Wait until the kind has this scope; kubectl keeps that of the start before until it asks."""
    words = (
        "api-resources",
        f"--api-group={operators.GROUP}",
        f"--namespaced={namespaced}".lower(),
    )
    purpose = "the scope of NicClusterPolicy"
    waiting.until(lab, purpose, lambda: "NicClusterPolicy" in cluster.kubectl(lab, *words))


def planned(shell):
    """What the command prints for programs."""
    return json.loads(shell.check(f"kube-rdma migrate plan -o json --image {REFERENCE}"))


@pytest.mark.parametrize("start", UNDRAINED)
def test_there_and_back_by_the_printed_words(lab, shell, begun, start):
    """No pod ends, starts anew or is refused, and a full node has each share exactly once."""
    origin = begun(start)
    for node in NODES:
        pods.start(lab, f"old-{node}", node, 3, origin.resource)
    plan = planned(shell)
    assert (plan["start"], plan["resources"]) == (start, [origin.resource])
    assert {one["name"]: one["pods"] for one in plan["nodes"]} == {
        node: [f"default/old-{node}"] for node in NODES
    }
    for way in ("steps", "wayBack"):
        before = pods.running(lab)
        shares = {node: kit.held(lab, node, origin.resource) for node in NODES}
        for step in plan[way]:
            for command in step["commands"]:
                print(shell.check(command))
            if node := step["node"]:
                cluster.wait_for_resource(lab, origin.resource, origin.quantity, node=node)
                pods.start(lab, f"{way.lower()}-{node}", node, 2, origin.resource)
        cluster.wait_for_resource(lab, origin.resource, origin.quantity)
        after = pods.running(lab)
        assert {uid: after[uid] for uid in before} == before
        for node in NODES:
            now = kit.held(lab, node, origin.resource)
            assert {uid: now[uid] for uid in shares[node]} == shares[node]
            pods.no_share_twice(lab, node, origin.resource)
        pods.nothing_failed(lab)
    full(lab, origin)
    assert planned(shell)["start"] == start


def full(lab, origin):
    """Give away what is left on each node: every share is held exactly once."""
    for node in NODES:
        left = origin.shares - len(pods.no_share_twice(lab, node, origin.resource))
        pods.start(lab, f"rest-{node}", node, left, origin.resource)
        every = {str(number) for number in range(origin.shares)}
        assert pods.no_share_twice(lab, node, origin.resource) == every
    pods.nothing_failed(lab)


def deployment(replicas):
    """Pods that are started elsewhere when their node is drained."""
    pod = pods.pod("job", NODES[0], 1, VKE)
    del pod["spec"]["nodeSelector"]
    labels = pod["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "job", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.mark.slow
def test_vke_s_nodes_are_drained_and_come_back(lab, shell, begun):
    """Its pods go elsewhere, so both nodes have some again at the end; none is refused."""
    cluster.kubectl(lab, "label", "node", "--all", f"{MODE}=shared")
    for node in NODES:
        cluster.shell(lab, node, f"echo '{LEFT}' > {LEFT_FILE}")
    origin = begun("vke")
    cluster.apply(lab, deployment(4))
    job = ("deployment/job", "--for=condition=Available")
    try:
        cluster.wait(lab, *job)
        plan = planned(shell)
        assert plan["start"] == "vke"
        for way in ("steps", "wayBack"):
            for step in plan[way]:
                for command in step["commands"]:
                    print(shell.check(command))
                cluster.wait(lab, *job)
                for node in NODES:
                    pods.no_share_twice(lab, node, VKE)
            for node in NODES:  # what the component has left is in Cello's way no more, and back
                aside = f"{LEFT_FILE}{SAVED}" if way == "steps" else LEFT_FILE
                assert cluster.shell(lab, node, f"ls {LEFT_FILE}*").split() == [aside]
            cluster.wait_for_resource(lab, VKE, origin.quantity)
            pods.nothing_failed(lab)
    finally:
        cluster.kubectl(lab, "delete", "deployment", "job", *GONE)
        cluster.kubectl(lab, "label", "node", "--all", f"{MODE}-")
        for node in NODES:
            cluster.shell(lab, node, f"rm -f {LEFT_FILE}*")
