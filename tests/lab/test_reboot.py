"""A node that is rebooted with pods on it: nothing of ours is lost, nothing leaks."""

import json

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc

NODE = "node-2"
RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"


def pod(name):
    """A bare pod that holds a late-bound card."""
    container = {
        "name": "c",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
        "resources": {"limits": {RESOURCE: 1}},
    }
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start(lab, tmp_path, name):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(pod(name)))
    scc.kubectl(lab, "apply", "-f", str(path))
    scc.kubectl(lab, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s", seconds=100)


def boot_id(lab):
    """Which boot the node is in; empty while it does not answer."""
    try:
        return scc.get(lab, f"node/{NODE}")["status"]["nodeInfo"]["bootID"]
    except Exception:  # noqa: BLE001  the kubelet writes it anew
        return ""


@pytest.mark.slow
def test_a_reboot_loses_nothing_and_leaks_nothing(vke, tmp_path):
    """The kubelet may fail a bare pod that it starts before the plugin is back; new pods run."""
    scc.kubectl(vke, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
    try:
        scc.wait_for_resource(vke, 2, resource=RESOURCE, node=NODE)
        start(vke, tmp_path, "before-reboot")
        before = boot_id(vke)
        labs.run(vke.ssh(NODE, "sh", "-c", "(sleep 1; busybox reboot -f) >/dev/null 2>&1 &"))
        ask = " ".join(vke.kubectl("get", "node", NODE, "-o", "jsonpath={.status.nodeInfo.bootID}"))
        changed = f'until [ -n "$({ask})" ] && [ "$({ask})" != {before} ]; do sleep 1; done'
        labs.run(["timeout", "180", "sh", "-c", changed], seconds=190)
        scc.wait_for_resource(vke, 2, resource=RESOURCE, node=NODE)
        status = scc.get(vke, "pod/before-reboot")["status"]
        assert status["phase"] in {"Running", "Failed"}
        if status["phase"] == "Failed":
            assert status["reason"] == "UnexpectedAdmissionError"
            scc.kubectl(vke, "delete", "pod", "before-reboot")
            start(vke, tmp_path, "first")
        start(vke, tmp_path, "after-reboot")  # both cards can be given away again
        files = labs.run(vke.ssh(NODE, "ls", "/var/run/cdi")).split()
        assert len([file for file in files if file.startswith("kube-rdma-")]) == 2
    finally:
        pods = ("before-reboot", "first", "after-reboot")
        scc.kubectl(
            vke, "delete", "pod", *pods, "--ignore-not-found", "--grace-period=0", "--force"
        )
        scc.kubectl(vke, "label", "node", NODE, f"{LABEL}-")
