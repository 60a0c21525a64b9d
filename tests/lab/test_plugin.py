"""The device plugin on the real kubelet: exact devices, and nothing lost across restarts."""

import json

import pytest

from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc


def pod(name, *, shares=0, command=("sleep", "1000000")):
    """Return a pod on node-1 that asks for so many shares of rdma/hca."""
    container = {"name": "c", "image": "kube-rdma.io/lab/verbs:1", "command": list(command)}
    if shares:
        container["resources"] = {"limits": {scc.RESOURCE: str(shares)}}
    spec = {"restartPolicy": "Never", "nodeName": "node-1", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def run_pod(lab, proof, tmp_path):
    """Start a pod, wait for a condition of it, remove it at the end."""
    started = []

    def run(document, wait_for):
        name = document["metadata"]["name"]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        scc.kubectl(lab, "apply", "-f", str(path))
        started.append(name)
        try:
            scc.kubectl(lab, "wait", f"pod/{name}", f"--for={wait_for}", "--timeout=100s")
        except Unavailable as error:
            raise AssertionError(scc.get(lab, f"pod/{name}")["status"]) from error
        return name

    yield run
    scc.kubectl(lab, "delete", "pod", *started, "--grace-period=0", "--force")


def test_a_pod_that_asks_for_nothing_sees_no_card(lab, run_pod):
    name = run_pod(
        pod("without", command=("ls", "/dev/infiniband")), "jsonpath={.status.phase}=Failed"
    )
    assert "No such file or directory" in scc.kubectl(lab, "logs", name)


def test_a_container_may_read_and_write_its_devices_but_make_none(lab, proof):
    first = scc.PODS[0]
    node = "/dev/infiniband/uverbs0"
    scc.kubectl(lab, "exec", first, "--", "sh", "-c", f"exec 3<>{node}")
    # uverbs0 is the pool's, /dev/kmsg (1:11) is not; a privileged container could open it.
    script = "mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg"
    with pytest.raises(Exception, match="Operation not permitted"):
        scc.kubectl(lab, "exec", first, "--", "sh", "-c", script)


def test_more_shares_than_there_are_is_refused_by_the_kubelet(lab, run_pod):
    name = run_pod(pod("greedy", shares=1001), "jsonpath={.status.phase}=Failed")
    status = scc.get(lab, f"pod/{name}")["status"]
    assert scc.RESOURCE in status["message"]


def plugin_log(lab):
    """Where node-1 keeps the log of the plugin that runs now; those of earlier pods lie beside it.

    The node's own file, because `kubectl logs` asks the kubelet.
    """
    pods = scc.get(lab, "pods", "-n", "kube-system", "--field-selector=spec.nodeName=node-1")
    (agent,) = (each["metadata"] for each in pods["items"])
    return f"/var/log/pods/kube-system_{agent['name']}_{agent['uid']}/*/*.log"


def test_a_kubelet_restart_loses_nothing(lab, proof, run_pod):
    count = f"cat {plugin_log(lab)} | grep -c registered"
    before = int(labs.run(lab.ssh("node-1", "sh", "-c", count)))
    labs.run(lab.ssh("node-1", "sv", "-w", "60", "force-restart", "kubelet"))
    wait = f"until [ $({count}) -gt {before} ]; do sleep 0.2; done"
    labs.run(lab.ssh("node-1", "timeout", "90", "sh", "-c", wait))
    scc.wait_for_resource(lab, "1k")
    run_pod(pod("after-restart", shares=1), "condition=Ready")


def test_the_resource_returns_after_the_plugin_s_pod_was_replaced(lab, proof, run_pod):
    words = ("-n", "kube-system", "delete", "pods", "-l", "name=rdma-sriov-dp-ds")
    scc.kubectl(lab, *words)
    scc.kubectl(lab, "rollout", "status", "daemonset/rdma-device-plugin", "-n", "kube-system")
    scc.wait_for_resource(lab, "1k")
    run_pod(pod("after-replacement", shares=1), "condition=Ready")
