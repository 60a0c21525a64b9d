"""A kubelet that starts tells of no pods: a card that a pod of the plugin holds is no claim's.

The real kubelet and scheduler of Kubernetes 1.36, and cards for one pod at a time. A pod has one as
a share; then claims serve the node, and its kubelet starts anew. docs/decisions/0111 has who knows
what meanwhile.
"""

import json

import pytest

from kube_rdma.install.installation import assignment, objects
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.pools.documents.config import SERVE_LABEL
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.kit import share_pods
from tests.kit.pods import sleeping_pod
from tests.kit.shared_plugin import held

NODE = "node-1"
NAMESPACE, AGENT = "kube-rdma", "kube-rdma-agent"
OWN, CLASS = "rdma/own", "own-cards"
POLICY = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "NodePolicy",
    "metadata": {"name": "own"},
    "spec": {"pools": [{"resource": OWN, "mode": "exclusive"}]},
}
VALUES = (
    "claims.enabled=true",
    f"claims.classes=[{{name: {CLASS}, resource: {OWN}}}]",
    f"agent.config='{json.dumps(POLICY)}'",
)
GONE = ("--ignore-not-found", "--wait", "--grace-period=1")

# Agents of its own and a change of the way that waits for the node's next report: over 30 s.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(native):
    """Agents that can serve claims, and a class; the plugin serves at first."""
    scc.install_kinds(native)
    made = objects([assignment(word) for word in VALUES], "default")
    cluster.apply(native, *made)
    try:
        cluster.rollout(native, AGENT, NAMESPACE)
        waiting.until(native, "shares", lambda: allocatable(native) > 1)
        yield native
    finally:
        cluster.kubectl(native, "delete", "pods", "-n", "default", "--all", *GONE)
        cluster.kubectl(native, "label", "node", "--all", f"{SERVE_LABEL}-")
        items = [one for one in made if one["kind"] != "CustomResourceDefinition"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(native, "delete", "-f", "-", *words, stdin=text)
        cluster.kubectl(native, "delete", "resourceslices", "--all")


def allocatable(lab):
    """How many shares the scheduler counts on the node."""
    return int(cluster.get(lab, f"node/{NODE}")["status"]["allocatable"].get(OWN, 0))


def devices(lab):
    """The devices of the node's slices."""
    listed = cluster.get(lab, "resourceslices")["items"]
    mine = (one["spec"] for one in listed if one["spec"]["driver"] == DRIVER)
    return {
        device["name"]
        for spec in mine
        if spec["nodeName"] == NODE
        for device in spec.get("devices", ())
    }


def doors(lab, name):
    """The verbs devices that a pod opens."""
    files = cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband").split()
    return {one for one in files if one.startswith("uverbs")}


def is_ready(lab, name):
    conditions = cluster.get(lab, f"pod/{name}")["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def claiming(name):
    """A pod for one more card, by the name of the resource."""
    made = sleeping_pod(
        name,
        nodeSelector={"kubernetes.io/hostname": NODE},
        terminationGracePeriodSeconds=1,
    )
    made["spec"]["containers"][0]["resources"] = {"limits": {OWN: "1"}}
    return made


def test_a_card_of_a_running_pod_is_no_claims_while_the_kubelet_starts(lab):
    """Slices are looked at again and again until the kubelet has started a pod by claim."""
    cards = allocatable(lab)
    uid = share_pods.start(lab, "old", NODE, 1, OWN)
    (share,) = held(lab, NODE, OWN)[uid]
    taken = share.rpartition("-")[0].replace(":", "-").replace(".", "-")
    cluster.kubectl(lab, "label", "node", NODE, f"{SERVE_LABEL}=claims")
    waiting.until(lab, "the slices of the node", lambda: len(devices(lab)) == cards - 1)
    assert taken not in devices(lab)
    cluster.shell(lab, NODE, "sv", "-w", "60", "force-restart", "kubelet")
    offered = set()
    cluster.apply(lab, claiming("new"))

    def started():
        offered.update(devices(lab))
        return is_ready(lab, "new")

    waiting.until(lab, "a pod by claim beside a kubelet that starts", started)
    assert taken not in offered
    assert doors(lab, "new").isdisjoint(doors(lab, "old"))
    assert held(lab, NODE, OWN)[uid] == [share]
    cluster.kubectl(lab, "delete", "pod", "old", *GONE)
    waiting.until(lab, "the card of the pod that ended", lambda: taken in devices(lab))
