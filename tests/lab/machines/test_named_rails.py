"""Rails by name between nodes whose cables are known: the installation of preset rails on leaves.

Programs are given names alone. Interfaces count the bytes: what MPI and UCX send leaves by net1,
and eth0 has no more than questions of DNS. Then two cables change places, and both ends are named.
"""

import json

import pytest

from kube_rdma_lab import cables, cluster, waiting
from tests.documents.shell import Shell
from tests.kit import manifests, mpi
from tests.kit.pods import sleeping_pod
from tests.kit.two_rails import installed

NEAR, FAR, SERVICE, RAIL = "trainer-0", "trainer-1", "rail-0", "kube-rdma/rail-0"
APP = {"app": "trainer"}
BYTES, ROUNDS = 1 << 16, 100
QUESTIONS = 32 << 10  # bytes of DNS on eth0, at most: a search of five domains, for both families
LEAVES = {"node-1": "leaf-a", "node-2": "leaf-a", "node-3": "leaf-b", "node-4": "leaf-b"}
# Where node-3's first card is plugged in, which then gets the place of node-2's; and back.
SWAPPED, BACK = "node-2 ens2f0 leaf-b/1", "node-2 ens2f0 leaf-a/3"
ENDS = (
    "node-2 rxe0 is in leaf-b Ethernet1/1, and belongs in leaf-a Ethernet1/3; "
    "node-3 rxe0 is in leaf-a Ethernet1/3, and belongs in leaf-b Ethernet1/1"
)


def trainers():
    """A StatefulSet of two pods on two nodes, each with a card of rail 0, and its Services."""
    pod = sleeping_pod("", limits={"rdma/nic": 1})
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": APP}}
    pod["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    }
    annotations = {"k8s.v1.cni.cncf.io/networks": RAIL}
    spec = {
        "replicas": 2,
        "serviceName": "trainer",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": APP},
        "template": {"metadata": {"labels": APP, "annotations": annotations}, "spec": pod["spec"]},
    }
    asks = {"kube-rdma.io/pods": "app=trainer", "kube-rdma.io/network": RAIL}
    meta = {"name": SERVICE, "annotations": asks}
    return (
        manifests.manifest("v1", "Service", meta, {"clusterIP": "None"}),
        manifests.manifest("apps/v1", "StatefulSet", "trainer", spec),
    )


@pytest.fixture(scope="module")
def rails(leaves):
    """Agents and controller of preset rails, with names and with addresses for two rails."""
    with installed(leaves, "controller.names=true"):
        yield leaves


@pytest.fixture(scope="module")
def trained(rails):
    """The trainers, once each finds the other by its name on the rail."""
    documents = trainers()
    cluster.apply(rails, *documents)
    try:
        status = "jsonpath={.status.readyReplicas}=2"
        cluster.wait(rails, "statefulset/trainer", f"--for={status}")
        for pod, other in ((NEAR, FAR), (FAR, NEAR)):
            what = f"{other} by name at its address of the rail"
            waiting.until(
                rails, what, lambda p=pod, o=other: found(rails, p, o) == {address(rails, o)}
            )
        yield rails
    finally:
        names = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in documents]
        cluster.kubectl(rails, "delete", *names, "--cascade=foreground", "--wait")


@pytest.fixture
def shell(rails):
    with Shell({"KUBE_RDMA_LAB": rails.state.name, "KUBECONFIG": str(rails.kubeconfig)}) as opened:
        yield opened


def named(pod):
    return f"{pod}.{SERVICE}"


def address(lab, pod):
    """The address of a pod's net1, as its annotation has it."""
    notes = cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"]
    (own,) = json.loads(notes["kube-rdma.io/network-status"])
    return own["ips"][0].partition("/")[0]


def found(lab, pod, other):
    """The addresses that a pod finds by another one's name; none where there is no such name."""
    shown = mpi.shell(lab, pod, f"getent ahosts {named(other)} || true")
    return {line.split()[0] for line in shown.splitlines()}


def sent(lab, pod):
    """The bytes that a pod has sent, by interface."""
    shown = json.loads(mpi.shell(lab, pod, "ip -j -s link"))
    return {one["ifname"]: one["stats64"]["tx"]["bytes"] for one in shown}


class Sent:
    """What both pods send while something runs: much by net1, and nothing but DNS by eth0."""

    def __init__(self, lab):
        self._lab = lab

    def __enter__(self):
        self._before = self._now()

    def __exit__(self, kind, error, trace):
        after = self._now()
        self.bytes = {
            name: sum(after[pod][name] - self._before[pod][name] for pod in after)
            for name in ("eth0", "net1")
        }

    def _now(self):
        return {pod: sent(self._lab, pod) for pod in (NEAR, FAR)}


@pytest.mark.slow  # UCX, which carries it, is in every run
def test_mpi_by_names_sends_its_bytes_by_net1(trained):
    counted = Sent(trained)
    with counted:
        mpi.let_in(trained, NEAR, FAR)
        hosts = (named(NEAR), named(FAR))
        sizes = mpi.ping_pong(trained, NEAR, FAR, *mpi.BY_NAMES, hosts=hosts)
    assert max(sizes) >= mpi.LARGEST
    assert counted.bytes["net1"] > 2 * mpi.ROUNDS * sum(sizes)
    assert counted.bytes["eth0"] < QUESTIONS


def test_ucx_by_a_name_sends_its_bytes_by_net1(trained):
    counted = Sent(trained)
    with counted:
        cluster.kubectl(trained, "exec", FAR, "--", "sh", "-c", "ucx_perftest >/dev/null 2>&1 &")
        asks = f"ucx_perftest {named(FAR)} -t tag_bw -s {BYTES} -n {ROUNDS}"
        mpi.shell(trained, NEAR, f"until {asks}; do sleep 1; done")
    assert counted.bytes["net1"] > BYTES * ROUNDS
    assert counted.bytes["eth0"] < QUESTIONS


def labels(lab, key):
    nodes = cluster.get(lab, "nodes")["items"]
    return {one["metadata"]["name"]: one["metadata"]["labels"].get(key) for one in nodes}


def test_nodes_get_the_labels_of_their_leaves(rails):
    for key in ("kube-rdma.io/leaf", "kube-rdma.io/block"):
        waiting.until(rails, f"{key} of all nodes", lambda k=key: labels(rails, k) == LEAVES)


def nodes_with(lab, text):
    """The nodes of which an Event says so of their cables."""
    words = ("events.events.k8s.io", "-A", "--field-selector=reason=CablesWrong")
    events = cluster.get(lab, *words)["items"]
    return {one["regarding"]["name"] for one in events if text in one["note"]}


def test_two_swapped_cables_are_named_with_both_ends_and_mended(rails, shell):
    key = "kube-rdma.io/leaf"
    waiting.until(rails, "labels of all nodes", lambda: labels(rails, key) == LEAVES)
    places = cables.read(rails.home)
    assert "8 cables of 4 nodes are accepted" in shell.check("kube-rdma fabric accept")
    shell.check(f"kube-rdma lab cable {SWAPPED}")
    try:
        both = {"node-2", "node-3"}
        waiting.until(rails, "Events of both ends", lambda: nodes_with(rails, ENDS) == both)
        shown = shell.check("! kube-rdma fabric show")
        assert "CablesSwapped" in shown
        assert ENDS in " ".join(shown.split())
        assert "CablesSwapped" in shell.check("kube-rdma status || true")
    finally:
        shell.check(f"kube-rdma lab cable {BACK}")
    assert cables.read(rails.home) == places
    cluster.until_event(rails, "CablesMended")
    waiting.until(rails, "labels of all nodes", lambda: labels(rails, key) == LEAVES)
    shell.check("kube-rdma fabric show")
