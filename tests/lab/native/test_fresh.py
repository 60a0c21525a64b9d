"""A node after a roll-out, a roll-back and an agent's absence is as one that never had a pod.

Pods with a network, an address of a pool and devices of a card begin and end meanwhile; then the
node's links, addresses, routes, rules, CNI and CDI files and the agent's records are compared with
what they were on the day of the installation. Both templates of the DaemonSet are of one image:
tests/lab/machines/test_upgrade.py has an older one, and virtual functions.
"""

import json

import pytest
import yaml

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network"
NAMESPACE, DAEMON_SET = "mlnx-network-operator", "rdma-shared-dp-ds"
CONTROLLER = f"{EXAMPLE}/controller.yaml"
NODE, CARDS, PREFIX = "node-1", 8, "10.77."
RESOURCE, NETWORK = "rdma/fresh", "fresh"
PODS = ("first", "second", "third", "fourth", "asked", "forced", "stays", "next")
POLICY = manifests.node_policy("fresh", {"resource": RESOURCE, "mode": "shared"})
CONFIG = {
    "cniVersion": "1.0.0",
    "type": "macvlan",
    "master": "eth0",
    "ipam": {"type": "whereabouts", "range": f"{PREFIX}0.0/24"},
}
DEFINITION = manifests.network(NETWORK, CONFIG, "default")
BRIDGE = "cni0"  # of the cluster's own network; its plugin makes it for the first pod, and it stays
# Of pods of before: what the agent still has to take back, and addresses that are being proved.
LEFT = (
    "ls /var/lib/kube-rdma/addresses /var/lib/kube-rdma/bindings | grep json | grep -v journal;"
    " ip -6 -o address show tentative"
)
# What a node shows, by the command that shows it; a file with its content. A lock names its holder.
FILES = "cd {0} 2>/dev/null && find . -type f ! -name .lock | sort | xargs -r sha256sum"
LOOKS = {
    "links": "ip -br link",
    "addresses": "ip -br address show scope global",
    "routes": "ip route show table all; ip -6 route show table all",
    "rules": "ip rule; ip -6 rule",
    "neighbours that are proxied": "ip neighbour show proxy",
    "configurations of CNI": FILES.format("/etc/cni/net.d"),
    "binaries of CNI": FILES.format("/opt/cni/bin"),
    "devices of CDI": FILES.format("/var/run/cdi"),
    "records": FILES.format("/var/lib/kube-rdma"),
    "files of the day": "find /run/kube-rdma | sort",
    "namespaces": "ls /var/run/netns | wc -l",
}
NEXT = "=== the next look ==="


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with seed S3's agent and controller, a pool of single cards and a network."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.apply(native, *agent())
    cluster.kubectl(native, "apply", "-f", CONTROLLER)
    cluster.apply(native, DEFINITION)
    served(native)
    cluster.wait(
        native, "-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available"
    )
    cluster.until_on_node(native, NODE, "grep -q kube-rdma /etc/cni/net.d/*")
    yield native
    end(native, *PODS, "--ignore-not-found")
    cluster.label_cards(native)
    cluster.kubectl(native, "delete", "-f", CONTROLLER, "--cascade=foreground")
    cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/agent.yaml", "--cascade=foreground")
    cluster.kubectl(native, "delete", "network-attachment-definitions", NETWORK)
    blocks = cluster.get(native, "ipblocks")["items"]
    for name in [block["metadata"]["name"] for block in blocks if PREFIX in json.dumps(block)]:
        cluster.kubectl(native, "delete", "ipblock", name)


def agent():
    """The example's objects, with a pool of this file's."""
    documents = list(yaml.safe_load_all((EXAMPLE / "agent.yaml").read_text()))
    (settings,) = [document for document in documents if document["kind"] == "ConfigMap"]
    settings["data"] = {"config.json": json.dumps(POLICY)}
    return documents


@pytest.fixture(scope="module")
def fresh(lab):
    """The node on the day of the installation, once nothing of an earlier file's pods is left."""
    nothing_left(lab)
    return picture(lab)


def nothing_left(lab):
    cluster.until_on_node(lab, NODE, f'[ -z "$({LEFT})" ]')


def picture(lab):
    """What a node shows; the lines of each look, all by one shell."""
    script = f"; echo {NEXT}; ".join(f"({look})" for look in LOOKS.values())
    shown = cluster.shell(lab, NODE, script).split(f"{NEXT}\n")
    looks = zip(LOOKS, shown, strict=True)
    return {
        what: [line for line in text.splitlines() if BRIDGE not in line] for what, text in looks
    }


def served(lab):
    """Wait until the agent of now has offered its cards: the node's status may be of the last."""
    cluster.rollout(lab, DAEMON_SET, NAMESPACE)
    listed = [pod["metadata"] for pod in agents(lab)]
    (agent,) = (each for each in listed if "deletionTimestamp" not in each)
    log = f"/var/log/pods/{NAMESPACE}_{agent['name']}_{agent['uid']}/*/*.log"
    cluster.until_on_node(lab, NODE, f"cat {log} 2>/dev/null | grep -q event=registered")
    cluster.wait_for_resource(lab, RESOURCE, CARDS, node=NODE)


def begin(lab, *names):
    """Pods with all that there is to have, on the node."""
    asks = {"k8s.v1.cni.cncf.io/networks": NETWORK}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1}
    limits = {RESOURCE: 1}
    cluster.apply(
        lab, *(sleeping_pod(name, limits=limits, annotations=asks, **spec) for name in names)
    )


def end(lab, *names, wait=True):
    cluster.kubectl(lab, "delete", "pod", *names, f"--wait={str(wait).lower()}")


def facts(lab, name):
    """What a pod has: its interfaces with addresses, and its device nodes."""
    links = cluster.kubectl(lab, "exec", name, "--", "ip", "-br", "address")
    return links, cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband")


def begun(lab, *names):
    """What pods have that are Ready now, by name: an address of the pool and a card."""
    cluster.ready(lab, *names)
    having = {name: facts(lab, name) for name in names}
    for links, nodes in having.values():
        assert f" {PREFIX}" in links
        assert "uverbs" in nodes
    return having


def rolled(lab, *words):
    """Change the DaemonSet; the pods of the old template are ended one node after the other."""
    cluster.kubectl(lab, "-n", NAMESPACE, *words)


def as_fresh(lab, fresh):
    """Wait until the node shows what it did; a wait in vain ends with what differed."""

    def same():
        now = picture(lab)
        if others := {what: (fresh[what], now[what]) for what in now if now[what] != fresh[what]}:
            raise Unavailable(f"the node is not as it was: {others}")
        return True

    nothing_left(lab)  # takes longest, and less to look at
    until(lab, "the end of every trace of the pods", same)


def test_a_roll_out_and_a_roll_back_leave_a_node_as_a_fresh_one(lab, fresh):
    """A pod ends in the midst of each; whoever stays keeps what it has."""
    begin(lab, "first", "second", "third")
    before = begun(lab, "first", "second", "third")
    assert picture(lab) != fresh

    rolled(lab, "set", "env", f"daemonset/{DAEMON_SET}", "ROLLED=out")
    end(lab, "first", wait=False)
    served(lab)
    begin(lab, "fourth")
    before |= begun(lab, "fourth")

    rolled(lab, "rollout", "undo", f"daemonset/{DAEMON_SET}")
    end(lab, "second", wait=False)
    served(lab)
    for name in ("third", "fourth"):
        assert facts(lab, name) == before[name]

    end(lab, "third", "fourth")
    as_fresh(lab, fresh)


def test_an_absence_while_pods_end_leaves_a_node_as_a_fresh_one(lab, fresh):
    """Asked to end, or ended at once; who begins meanwhile waits for the agent."""
    begin(lab, "asked", "forced", "stays")
    before = begun(lab, "asked", "forced", "stays")
    label = cluster.CARDS_LABEL
    cluster.kubectl(lab, "label", "node", NODE, f"{label}-")
    until(lab, "the end of the node's agent", lambda: not agents(lab))

    end(lab, "asked")
    cluster.kubectl(lab, "delete", "pod", "forced", "--grace-period=0", "--force")
    assert facts(lab, "stays") == before["stays"]

    cluster.label_cards(lab)
    served(lab)
    assert facts(lab, "stays") == before["stays"]
    begin(lab, "next")
    begun(lab, "next")
    end(lab, "stays", "next")
    as_fresh(lab, fresh)


def agents(lab):
    """The agent's pods on the node."""
    chosen = ("-l", f"name={DAEMON_SET}", f"--field-selector=spec.nodeName={NODE}")
    return cluster.get(lab, "-n", NAMESPACE, "pods", *chosen)["items"]
