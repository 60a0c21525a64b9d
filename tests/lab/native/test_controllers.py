"""Two controllers on two nodes: a drain takes them by turns, as their PodDisruptionBudget says."""

import json

import pytest

from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc

EXAMPLE = scc.examples() / "s3-network" / "controller.yaml"
NAMESPACE = "mlnx-network-operator"
DEPLOYMENT = "deployment/kube-rdma-controller"
NODES = ("node-1", "node-2")


@pytest.fixture
def lab(native):
    """Native nodes with the example's controller, which its agent's file gives a namespace."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(native, space)
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", str(EXAMPLE))
    cluster.wait(native, "-n", NAMESPACE, DEPLOYMENT, "--for=condition=Available")
    yield native
    cluster.kubectl(native, "uncordon", *NODES)
    cluster.kubectl(native, "delete", "-f", str(EXAMPLE), "--cascade=foreground")
    cluster.kubectl(native, "delete", "namespace", NAMESPACE)


def running(lab):
    """The pods by the nodes that they run on."""
    listed = cluster.get(lab, "-n", NAMESPACE, "pods", "-l", "name=kube-rdma-controller")["items"]
    return {
        each["spec"]["nodeName"]: each["metadata"]["name"]
        for each in listed
        if "nodeName" in each["spec"] and "deletionTimestamp" not in each["metadata"]
    }


def evict(lab, tmp_path, pod):
    """Ask as a drain does, once."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    path = tmp_path / "eviction.json"
    path.write_text(json.dumps(eviction))
    place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    cluster.kubectl(lab, "create", "--raw", place, "-f", str(path))


def disruptions(lab):
    """How many copies the API server would let go now."""
    budget = cluster.get(lab, "-n", NAMESPACE, "pdb/kube-rdma-controller")
    return budget.get("status", {}).get("disruptionsAllowed")


def test_a_drain_waits_until_the_other_copy_is_back(lab, tmp_path):
    """Nothing new can start on the nodes, so the second copy may not go."""
    waiting.until(lab, "copies on both nodes", lambda: running(lab).keys() == set(NODES))
    waiting.until(lab, "a budget for one", lambda: disruptions(lab) == 1)
    first, second = running(lab).values()
    cluster.kubectl(lab, "cordon", *NODES)
    evict(lab, tmp_path, first)
    with pytest.raises(Unavailable, match="violate the pod's disruption budget"):
        evict(lab, tmp_path, second)
    cluster.kubectl(lab, "uncordon", *NODES)
    waiting.until(lab, "a budget for one", lambda: disruptions(lab) == 1)
    evict(lab, tmp_path, second)
