"""The device plugin on the real kubelet: exact devices, and nothing lost across restarts."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def lab(recorded):
    """Native nodes: the device plugin asks for cards, recorded ones do."""
    return recorded


def pod(name, *, shares=0, command=("sleep", "1000000")):
    """Return a pod on node-1 that asks for so many shares of rdma/hca."""
    container = {"name": "c", "image": "kube-rdma.io/lab/verbs:1", "command": list(command)}
    if shares:
        container["resources"] = {"limits": {scc.RESOURCE: str(shares)}}
    spec = {"restartPolicy": "Never", "nodeName": "node-1", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def run_pod(lab, tmp_path):
    """Start a pod, wait for a condition of it, remove it at the end."""
    started = []

    def run(document, wait_for):
        name = document["metadata"]["name"]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        cluster.kubectl(lab, "apply", "-f", str(path))
        started.append(name)
        try:
            cluster.wait(lab, f"pod/{name}", f"--for={wait_for}")
        except Unavailable as error:
            raise AssertionError(cluster.get(lab, f"pod/{name}")["status"]) from error
        return name

    yield run
    cluster.kubectl(lab, "delete", "pod", *started, "--grace-period=0", "--force")


def test_a_pod_that_asks_for_nothing_sees_no_card(lab, run_pod):
    name = run_pod(
        pod("without", command=("ls", "/dev/infiniband")), "jsonpath={.status.phase}=Failed"
    )
    assert "No such file or directory" in cluster.kubectl(lab, "logs", name)


def test_more_shares_than_there_are_is_refused_by_the_kubelet(lab, run_pod):
    name = run_pod(pod("greedy", shares=1001), "jsonpath={.status.phase}=Failed")
    status = cluster.get(lab, f"pod/{name}")["status"]
    assert scc.RESOURCE in status["message"]


def plugin_log(lab):
    """Where node-1 keeps the log of the plugin's pod, None while there is no pod.

    Those of earlier pods lie beside it. It is the node's own file, because `kubectl logs` asks
    the kubelet.
    """
    pods = cluster.get(lab, "pods", "-n", "kube-system", "--field-selector=spec.nodeName=node-1")
    for agent in (pod["metadata"] for pod in pods["items"]):
        return f"/var/log/pods/kube-system_{agent['name']}_{agent['uid']}/*/*.log"
    return None


def test_a_kubelet_restart_loses_nothing(lab, run_pod):
    count = f"cat {plugin_log(lab)} | grep -c registered"
    before = int(cluster.shell(lab, "node-1", count))
    cluster.shell(lab, "node-1", "sv", "-w", "60", "force-restart", "kubelet")
    cluster.until_on_node(lab, "node-1", f"[ $({count}) -gt {before} ]")
    cluster.wait_for_resource(lab, scc.RESOURCE, "1k")
    run_pod(pod("after-restart", shares=1), "condition=Ready")


def test_the_resource_returns_after_the_plugin_s_pod_was_replaced(lab, run_pod):
    """The kubelet's word counts: the API server shows the resource of before for a while."""
    words = ("-n", "kube-system", "delete", "pods", "-l", "name=rdma-sriov-dp-ds")
    cluster.kubectl(lab, *words)
    log = waiting.until(lab, "a new pod of the device plugin", lambda: plugin_log(lab))
    cluster.until_on_node(lab, "node-1", f"cat {log} 2>/dev/null | grep -q registered")
    cluster.wait_for_resource(lab, scc.RESOURCE, "1k")
    run_pod(pod("after-replacement", shares=1), "condition=Ready")
