"""An installation whose agent and controller have a seccomp profile of their own, and a day of it.

`tests/lab/native/test_seccomp.py` holds it to the profiles; `python -m tests.kit.traced LAB` traces
which system calls it takes, which is where the profiles come from.
"""

import json
from contextlib import contextmanager

from kube_rdma.install.installation import assignment
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.house.tree import ROOT
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

PROFILES = ROOT / "config" / "seccomp"
FOLDER = "/var/lib/kubelet/seccomp/kube-rdma"
SPACE, AGENT, CONTROLLER = "kube-rdma", "kube-rdma-agent", "kube-rdma-controller"
NODE, POD, NETWORK = "node-1", "confined", "confined"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
VALUES = ("crds.install=false", "controller.replicas=1", "claims.enabled=true")
PROFILE_VALUES = (
    "agent.seccompProfile=kube-rdma/agent.json",
    "controller.seccompProfile=kube-rdma/controller.json",
)


def put_profiles(lab):
    """Lay the repository's profiles on all nodes, where the kubelet looks for them."""
    for node in (spec.name for spec in lab.topology.nodes):
        for path in PROFILES.glob("*.json"):
            script = f"mkdir -p {FOLDER} && cat > {FOLDER}/{path.name}"
            waiting.run(lab, lab.on_node(node, "sh", "-c", script), stdin=path.read_text())


@contextmanager
def installed(lab, *values, change=lambda document: document):
    """The preset `default` with claims, each object as `change` has it."""
    scc.install_kinds(lab)
    made = objects([assignment(text) for text in (*VALUES, *values)], "default")
    documents = [change(document) for document in made]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    try:
        cluster.kubectl(lab, "apply", "--server-side", "-f", "-", stdin=text)
        cluster.rollout(lab, AGENT, SPACE)
        cluster.until_chained(lab)
        available = (f"deployment/{CONTROLLER}", "--for=condition=Available")
        cluster.wait(lab, "-n", SPACE, *available)
        cluster.apply(lab, *_network())
        yield
    finally:
        gone = ("--ignore-not-found", "--wait")
        cluster.kubectl(lab, "delete", "net-attach-def", NETWORK, *gone)
        cluster.kubectl(lab, "delete", "-f", "-", *gone, stdin=text)
        cluster.kubectl(lab, "delete", "ippool", NETWORK, *gone)
        blocks = cluster.kubectl(lab, "get", "ipblocks", "-o", "name").split()
        if blocks:
            cluster.kubectl(lab, "delete", *blocks)


def _network():
    """A pool, and a network on the interface that all native nodes have."""
    ipam = {"type": "kube-rdma-ipam", "pool": NETWORK}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "ipam": ipam}
    yield manifests.ip_pool(
        NETWORK, ranges=[{"subnet": "10.83.0.0/24"}], blockSize=8, restSeconds=0
    )
    yield manifests.network(NETWORK, config, "default")


def attached(lab, name=POD):
    """Start a pod with the network; return its address on it."""
    cluster.apply(lab, sleeping_pod(name, annotations={NETWORKS: NETWORK}, nodeName=NODE))
    cluster.ready(lab, name)
    shown = cluster.kubectl(lab, "exec", name, "--", "ip", "-4", "-o", "addr", "show", "net1")
    return shown.split()[3]


def detached(lab, name=POD):
    """End the pod; its sandbox is gone only when the agent took the network back."""
    cluster.kubectl(lab, "delete", "pod", name, "--wait", "--grace-period=1")


def lent(lab, name="lent"):
    """A pod with a share of a card comes and goes."""
    cluster.wait_for_resource(lab, "rdma/nic", "128", node=NODE)
    cluster.apply(lab, sleeping_pod(name, limits={"rdma/nic": 1}, nodeName=NODE))
    cluster.ready(lab, name)
    cluster.kubectl(lab, "delete", "pod", name, "--wait", "--grace-period=1")


def pod_of(lab, label, node=None):
    """The name of the agent's or the controller's pod."""
    chosen = ("pods", "-n", SPACE, "-l", f"name={label}")
    where = (f"--field-selector=spec.nodeName={node}",) if node else ()
    return cluster.get(lab, *chosen, *where)["items"][0]["metadata"]["name"]


def inside(lab, pod, *words):
    """Run words in the container of such a pod."""
    return cluster.kubectl(lab, "exec", "-n", SPACE, pod, "--", *words)
