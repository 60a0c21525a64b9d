"""A pod that starts while the runtime does not call us gets its network late, on a real node.

The agent of seed S3's example is stopped, so that nobody repairs the configuration while a pod
starts without us; then it goes on. The pod holds no share: an annotation alone lets it run.
"""

import base64
import json
import time

import pytest

from kube_rdma.model.errors import Unavailable
from kube_rdma.rules.conflist import without
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc

EXAMPLE = scc.examples() / "s3-network"
CONFIG = scc.examples().parent / "config"
AGENT = "kube-rdma agent --role=plugin --role=node --networks"
FOLDER = "/etc/cni/net.d"
POD, NETWORK, ADDRESS = "late-pod", "late-net", "192.168.113.7"
CONF = {
    "cniVersion": "1.0.0",
    "type": "macvlan",
    "master": "ens2f0",
    "ipam": {"type": "static", "addresses": [{"address": f"{ADDRESS}/24"}]},
}
DEFINITION = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": NETWORK},
    "spec": {"config": json.dumps(CONF)},
}


@pytest.fixture(scope="module")
def node(lab, proof):
    """A node of the lab with the agent of the example; its name."""
    for path in sorted(CONFIG.glob("*/*.yaml")):
        scc.kubectl(lab, "apply", "-f", str(path))
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/agent.yaml")
    rollout = ("rollout", "status", "daemonset/rdma-shared-dp-ds", "-n", "kube-rdma")
    scc.kubectl(lab, *rollout, "--timeout=120s", seconds=150)
    pods = scc.get(lab, "pods", "-n", "kube-rdma", "-l", "name=rdma-shared-dp-ds")["items"]
    chosen = pods[0]["spec"]["nodeName"]
    put(lab, DEFINITION)
    try:
        until(lab, chosen, f"grep -q kube-rdma {FOLDER}/*.conflist")
        yield chosen
    finally:
        scc.kubectl(lab, "delete", "pod", POD, "--ignore-not-found", seconds=120)
        scc.kubectl(lab, "delete", "net-attach-def", NETWORK, "--ignore-not-found")
        scc.kubectl(lab, "delete", "-f", f"{EXAMPLE}/agent.yaml", "--ignore-not-found", seconds=120)


def put(lab, document):
    """Apply an object."""
    path = lab.home / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    scc.kubectl(lab, "apply", "-f", str(path))


def on(lab, node, script, seconds=120):
    return labs.run(lab.ssh(node, "sh", "-c", script), seconds=seconds)


def signal(lab, node, name):
    """Signal the agent. Without a shell, whose own words would be found too."""
    labs.run(lab.ssh(node, "pkill", name, "-f", AGENT))


def until(lab, node, condition, seconds=90):
    """Wait on the node until a command of its shell succeeds; Unavailable when it never does."""
    script = f"for i in $(seq {seconds * 2}); do {condition} && exit 0; sleep 0.5; done; exit 1"
    on(lab, node, script, seconds=seconds + 30)


def unchain(lab, node):
    """Take our entry out of the node's configuration, as a network plugin that restarts does."""
    name = on(lab, node, f"grep -l kube-rdma {FOLDER}/*.conflist").split()[0]
    text = without(on(lab, node, f"cat {name}"))
    assert "kube-rdma" not in text
    coded = base64.b64encode(text.encode()).decode()
    on(lab, node, f"echo {coded} | base64 -d > {name}.new && mv {name}.new {name}")


def late_pod(node):
    container = {
        "name": "main",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": POD,
            "annotations": {"k8s.v1.cni.cncf.io/networks": NETWORK},
        },
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
    }


def links(lab):
    return scc.kubectl(lab, "exec", POD, "--", "ip", "-4", "-o", "addr", "show")


def test_a_pod_that_started_without_us_gets_net1_late(lab, node):
    """It runs without its network until the agent is back, and keeps its container."""
    signal(lab, node, "-STOP")
    try:
        unchain(lab, node)
        put(lab, late_pod(node))
        scc.kubectl(lab, "wait", f"pod/{POD}", "--for=condition=Ready", "--timeout=90s")
        assert "net1" not in links(lab)
    finally:
        signal(lab, node, "-CONT")
    status = "jsonpath={.metadata.annotations.kube-rdma\\.io/network-status}"
    scc.kubectl(lab, "wait", f"pod/{POD}", f"--for={status}", "--timeout=120s", seconds=150)
    assert ADDRESS in links(lab)
    (container,) = scc.get(lab, f"pod/{POD}")["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def test_the_pod_is_told(lab, node):
    """By an Event; the configuration is as it was before somebody rewrote it."""
    until(lab, node, f"grep -q kube-rdma {FOLDER}/*.conflist")
    query = ("events", "--field-selector", f"involvedObject.name={POD},reason=NetworksAttachedLate")
    deadline = time.monotonic() + 60
    while not scc.get(lab, *query)["items"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_its_end_takes_the_network_back(lab, node):
    """As if its ADD had been the runtime's."""
    scc.kubectl(lab, "delete", "pod", POD, seconds=60)
    with pytest.raises(Unavailable):
        on(lab, node, "ls /var/lib/kube-rdma/attachments | grep -q attached-")
