"""Two controllers on two nodes: a drain takes them by turns, and one of them evicts pods."""

import json
import time

import pytest

from kube_base.errors import Unavailable
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


STUCK = {"app": "stuck"}
# An image that no node has and nobody fetches: the pod is there and does not start.
STUCK_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "stuck", "namespace": NAMESPACE},
    "spec": {
        "selector": {"matchLabels": STUCK},
        "template": {
            "metadata": {"labels": STUCK},
            "spec": {
                "containers": [{"name": "c", "image": "lab/none:1", "imagePullPolicy": "Never"}]
            },
        },
    },
}


def stuck(lab):
    """The uid of the pod that does not start with its name and node, None while there is none."""
    for each in cluster.get(lab, "-n", NAMESPACE, "pods", "-l", "app=stuck")["items"]:
        meta, node = each["metadata"], each["spec"].get("nodeName")
        if node and each["status"]["phase"] == "Pending" and "deletionTimestamp" not in meta:
            return meta["uid"], meta["name"], node
    return None


def mark(lab, pod, **request):
    """Ask for a pod's end as its agent does."""
    for verb, value in (("label", "true"), ("annotate", json.dumps(request))):
        pair = f"kube-rdma.io/needs-restart={value}"
        cluster.kubectl(lab, "-n", NAMESPACE, verb, "--overwrite", f"pod/{pod}", pair)


def test_a_pod_that_cannot_start_is_evicted_and_its_owner_makes_another(lab):
    """With outdated device nodes, as its agent says; one that waits for its networks may wait."""
    cluster.apply(lab, STUCK_SET)
    uid, pod, node = waiting.until(lab, "a pod that does not start", lambda: stuck(lab))
    request = {"node": node, "at": int(time.time()), "why": "a test"}
    mark(lab, pod, **request)
    assert stuck(lab) == (uid, pod, node)
    mark(lab, pod, **request, outdated=True)
    waiting.until(lab, "another pod", lambda: (stuck(lab) or (uid,))[0] != uid)
    logs = cluster.kubectl(lab, "-n", NAMESPACE, "logs", "-l", "name=kube-rdma-controller")
    assert "pod evicted for outdated device nodes" in logs
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "replicaset/stuck")
