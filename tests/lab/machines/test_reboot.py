"""A node that is rebooted with pods on it: nothing of ours is lost, nothing leaks."""

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until
from tests.kit.pods import sleeping_pod

NODE = "node-2"
RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"


def start(lab, name):
    """A bare pod that holds a late-bound card, Ready."""
    pod = sleeping_pod(name, limits={RESOURCE: 1}, nodeName=NODE, terminationGracePeriodSeconds=1)
    cluster.apply(lab, pod)
    cluster.ready(lab, name)


def boot_id(lab):
    """Which boot the node is in; empty while it does not answer."""
    try:
        return cluster.get(lab, f"node/{NODE}")["status"]["nodeInfo"]["bootID"]
    except Exception:  # noqa: BLE001  the kubelet writes it anew
        return ""


@pytest.mark.slow
def test_a_reboot_loses_nothing_and_leaks_nothing(vke):
    """The kubelet may fail a bare pod that it starts before the plugin is back; new pods run."""
    cluster.kubectl(vke, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
    try:
        cluster.wait_for_resource(vke, RESOURCE, 2, node=NODE)
        start(vke, "before-reboot")
        before = boot_id(vke)
        cluster.shell(vke, NODE, "(sleep 1; busybox reboot -f) >/dev/null 2>&1 &")
        until(vke, "another boot of the node", lambda: boot_id(vke) not in {"", before})
        cluster.wait_for_resource(vke, RESOURCE, 2, node=NODE)
        status = cluster.get(vke, "pod/before-reboot")["status"]
        assert status["phase"] in {"Running", "Failed"}
        if status["phase"] == "Failed":
            assert status["reason"] == "UnexpectedAdmissionError"
            cluster.kubectl(vke, "delete", "pod", "before-reboot")
            start(vke, "first")
        start(vke, "after-reboot")  # both cards can be given away again
        files = cluster.shell(vke, NODE, "ls", "/var/run/cdi").split()
        assert len([file for file in files if file.startswith("kube-rdma-")]) == 2
    finally:
        pods = ("before-reboot", "first", "after-reboot")
        cluster.kubectl(
            vke, "delete", "pod", *pods, "--ignore-not-found", "--grace-period=0", "--force"
        )
        cluster.kubectl(vke, "label", "node", NODE, f"{LABEL}-")
