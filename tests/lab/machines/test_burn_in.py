"""Two new nodes, one of which loses packets, are measured before they take pods.

Copies of a pod on the nodes' own networks measure soft cards by perftest, as BandwidthChecks do.
"""

import pytest

from kube_rdma.model import repair as model
from kube_rdma_lab import cluster, waiting
from tests.kit import manifests
from tests.kit.gangs import LOSS
from tests.kit.pods import sleeping_pod
from tests.kit.two_rails import installed

pytestmark = pytest.mark.slow  # a card that loses packets is measured until perftest gives up

NEW, LOSSY, GOOD = "node-1", "node-2", ["node-3", "node-4"]
SPACE, CHECK, POLICY = "kube-rdma", "nightly", "new-nodes"
TAINT = f"{model.BURN_IN}=:NoSchedule"


@pytest.fixture
def lab(leaves):
    """Agents of mode hca, a controller that may run pods in its namespace, and two new nodes."""
    with installed(
        leaves, "controller.repair=true", preset="rdma-ib", resource="rdma/ib", shares="1k"
    ):
        binding = ("rolebinding", "kube-rdma-checks", "-n", SPACE)
        words = (
            "--clusterrole=kube-rdma-bandwidth-check",
            f"--serviceaccount={SPACE}:kube-rdma-controller",
        )
        cluster.kubectl(leaves, "create", *binding, *words)
        cluster.shell(leaves, LOSSY, f"iptables -I INPUT {LOSS}")
        cluster.kubectl(leaves, "taint", "node", NEW, LOSSY, TAINT)
        try:
            yield leaves
        finally:
            cluster.kubectl(leaves, "delete", "repairpolicy", POLICY)
            cluster.kubectl(leaves, "delete", "bandwidthchecks", "--all", "-n", SPACE)
            cluster.shell(leaves, LOSSY, f"iptables -D INPUT {LOSS}")
            cluster.kubectl(leaves, "taint", "nodes", *new(leaves), f"{model.BURN_IN}-")
            cluster.kubectl(leaves, "annotate", "nodes", "--all", f"{model.BURN_IN}-")
            cluster.kubectl(leaves, "delete", *binding)


def new(lab):
    """The nodes with the taint."""
    return [
        one["metadata"]["name"]
        for one in cluster.get(lab, "nodes")["items"]
        if any(taint["key"] == model.BURN_IN for taint in one["spec"].get("taints", ()))
    ]


def test_the_good_node_is_admitted_with_a_receipt_and_the_lossy_one_is_named(lab):
    pod = sleeping_pod("", limits={"rdma/ib": 1}, hostNetwork=True)
    # One machine has all processors.
    spec = {"template": {"spec": pod["spec"]}, "nodes": GOOD, "iterations": 100}
    spec |= {"minBandwidth": "30M", "tolerancePercent": 90, "pairSeconds": 60}
    version, name = "kube-rdma.io/v1alpha1", {"name": CHECK, "namespace": SPACE}
    check = manifests.manifest(version, "BandwidthCheck", name, spec)
    asked = {"burnIn": {"check": CHECK, "soakSeconds": 0}, "enforce": True}
    cluster.apply(lab, check, manifests.manifest(version, "RepairPolicy", POLICY, asked))
    waiting.until(lab, "one new node", lambda: new(lab) == [LOSSY])
    receipt = cluster.get(lab, f"nodereport/{NEW}")["status"]["receipt"]
    assert receipt["peers"] == GOOD
    assert receipt["result"].startswith("All is well")
    mark = cluster.get(lab, f"node/{LOSSY}")["metadata"]["annotations"][model.BURN_IN]
    assert "are bad" in mark
    assert cluster.until_event(lab, "BurnInFailed", "are bad")
    assert "receipt" not in cluster.get(lab, f"nodereport/{LOSSY}")["status"]
