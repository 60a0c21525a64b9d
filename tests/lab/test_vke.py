"""Seed S1's node on the lab: its label alone makes the resource, and the resource tells the truth.

The real kubelet, kernel and API server; the cards are the lab's, two per node.
"""

import json
import shlex
from contextlib import contextmanager

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc

RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
NODE = "node-1"
AGENT = "kube-rdma agent --role=plugin --role=node --networks"
CARDS = 2  # with RDMA, on each node of the lab


def label(lab, value):
    """Label the node; an empty value takes the label away."""
    scc.kubectl(
        lab, "label", "node", NODE, f"{LABEL}={value}" if value else f"{LABEL}-", "--overwrite"
    )


def wait_for(lab, count, resource=RESOURCE):
    """Wait until the node's allocatable shows so many."""
    scc.wait_for_resource(lab, count, resource=resource, node=NODE)


def agent_log(lab):
    """What the agent on the node has said."""
    pods = scc.get(
        lab,
        "pods",
        "-n",
        "kube-rdma",
        "-l",
        "name=rdma-device-plugin",
        f"--field-selector=spec.nodeName={NODE}",
    )
    (pod,) = [each["metadata"]["name"] for each in pods["items"]]
    return scc.kubectl(lab, "logs", "-n", "kube-rdma", pod)


def events(lab, reason):
    """The notes of Events of this reason about the node."""
    words = ("events.events.k8s.io", "-A", f"--field-selector=reason={reason}")
    return [each["note"] for each in scc.get(lab, *words)["items"]]


@contextmanager
def pod(lab, tmp_path, name, **spec):
    """A pod on the node that holds one share; removed at the end."""
    container = {
        "name": "c",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],  # ends when asked
        "resources": {"limits": {RESOURCE: "1"} | spec.pop("limits", {})},
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": spec.pop("annotations", {})},
        "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 1}
        | spec,
    }
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(document))
    scc.kubectl(lab, "apply", "-f", str(path))
    try:
        yield name
    finally:
        scc.kubectl(lab, "delete", "pod", name, "--ignore-not-found")


def ready(lab, name):
    """Wait until a pod is Ready."""
    scc.kubectl(lab, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s", seconds=100)


@pytest.mark.parametrize(("mode", "count"), [("exclusive", 2), ("shared-multi", 32), ("shared", 2)])
def test_a_label_alone_makes_the_resource(vke, mode, count):
    label(vke, mode)
    wait_for(vke, count)


def test_devices_are_bound_late_and_are_exactly_those_of_the_card(vke, tmp_path):
    """CDI is proven on this runtime, so the container gets its devices by a file of its own."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    assert "devices are given at Allocate" not in agent_log(vke)
    with pod(vke, tmp_path, "late") as name:
        ready(vke, name)
        nodes = scc.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes
        listed = labs.run(vke.ssh(NODE, "ls", "/var/run/cdi"))
        assert "kube-rdma-start-" in listed


def test_a_pod_that_asks_for_a_network_waits_for_it_and_says_why(vke, tmp_path):
    """Fail closed, with a sentence in the pod's event: its sandbox is not made."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    annotations = {"k8s.v1.cni.cncf.io/networks": "rdma"}
    with pod(vke, tmp_path, "waiting", annotations=annotations) as name:
        wait_for_event(vke, "FailedCreatePodSandBox", "there is no network default/rdma")
        assert scc.get(vke, f"pod/{name}")["status"]["phase"] == "Pending"


def test_a_change_of_mode_waits_for_a_pod(vke, tmp_path):
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, tmp_path, "holds") as name:
        ready(vke, name)
        label(vke, "shared-multi")
        wait_for_event(vke, "ModeChangePending")
        (note, *_) = events(vke, "ModeChangePending")
        assert f"default/{name}" in note
    wait_for(vke, 16 * CARDS)


def wait_for_event(lab, reason, text="note"):
    """Wait until an Event of a reason has a text; the API server is asked, nothing announces it."""
    ask = lab.kubectl("get", "events.events.k8s.io", "-A", f"--field-selector=reason={reason}")
    condition = f"until {shlex.join(ask)} -o json | grep -q '{text}'; do sleep 0.3; done"
    labs.run(["timeout", "60", "sh", "-c", condition], seconds=70)


def test_a_link_that_goes_down_takes_its_share_and_gives_it_back(vke):
    label(vke, "shared")
    wait_for(vke, CARDS)
    labs.run(vke.ssh(NODE, "ip", "link", "set", "ens3f0", "down"))
    try:
        wait_for(vke, CARDS - 1)
        assert any("ens3f0" in note for note in events(vke, "RDMACardUnhealthy"))
    finally:
        labs.run(vke.ssh(NODE, "ip", "link", "set", "ens3f0", "up"))
    wait_for(vke, CARDS)


@pytest.mark.slow
def test_a_kubelet_killed_at_once_gets_everything_again(vke, tmp_path):
    """SIGKILL leaves its socket behind; what pods hold is still known afterwards."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, tmp_path, "outlives") as name:
        ready(vke, name)
        before = agent_log(vke).count("event=registered")
        labs.run(vke.ssh(NODE, "sh", "-c", "kill -9 $(pidof kubelet)"))
        wait_for_log(vke, "event=registered", before + 1)
        wait_for(vke, CARDS)
        nodes = scc.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")
        assert "uverbs" in nodes


def wait_for_log(lab, text, count):
    """Wait until the agent on the node has logged a text so often."""
    log = "/var/log/pods/kube-rdma_rdma-device-plugin-*/agent/*.log"
    until = f"until [ $(cat {log} | grep -c '{text}') -ge {count} ]; do sleep 0.2; done"
    labs.run(lab.ssh(NODE, "timeout", "90", "sh", "-c", until))


@pytest.mark.slow
def test_an_agent_killed_at_once_knows_its_promises(vke, tmp_path):
    """The container of a late-bound pod restarts after the agent did, with the same devices."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, tmp_path, "promised") as name:
        ready(vke, name)
        before = agent_log(vke).count("event=registered")
        labs.run(vke.ssh(NODE, "pkill", "-KILL", "-f", AGENT))
        wait_for_log(vke, "event=registered", before + 1)
        scc.kubectl(vke, "exec", name, "--", "sh", "-c", "kill 1")
        restarts = "{.status.containerStatuses[0].restartCount}=1"
        scc.kubectl(vke, "wait", f"pod/{name}", f"--for=jsonpath={restarts}", "--timeout=90s")
        ready(vke, name)
        assert "uverbs" in scc.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")
    wait_for(vke, CARDS)


@pytest.mark.slow
def test_containerd_may_restart(vke, tmp_path):
    label(vke, "shared")
    wait_for(vke, CARDS)
    labs.run(vke.ssh(NODE, "sv", "-w", "60", "force-restart", "containerd"))
    with pod(vke, tmp_path, "after-containerd") as name:
        ready(vke, name)
        assert "uverbs" in scc.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")
