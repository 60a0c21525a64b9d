"""Seed S4 on the lab: a virtual function as net1 of each pod, verbs between pods of two nodes."""

import json
import re

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import Endpoint, measure

EXAMPLE = scc.examples() / "s4-infiniband"
PODS = ("training-1", "training-2")
RESOURCE = "rdma/vf"
CARD = "ens4f0"
OWN = "kube-rdma.io/network-status"


@pytest.fixture(scope="module")
def training(lab, proof):
    """The lab with the example's agent, network and pods; and the functions as they were before."""
    scc.install_kinds(lab)
    before = {node.name: functions(lab, node.name) for node in lab.topology.nodes}
    for name in ("agent", "network"):
        scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    try:
        scc.wait_for_resource(lab, 4, resource=RESOURCE)
        for pod in PODS:
            scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/{named(pod)}")
        for pod in PODS:
            scc.kubectl(lab, "wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=110s")
        yield lab, before
    finally:
        scc.kubectl(lab, "delete", "pod", *PODS, "--ignore-not-found", seconds=120)
        for name in ("network", "agent"):
            words = ("delete", "-f", f"{EXAMPLE}/{name}.yaml", "--ignore-not-found")
            scc.kubectl(lab, *words, seconds=120)


def named(pod):
    """The file of a pod."""
    return f"training-pod-{pod.rpartition('-')[2]}.yaml"


def functions(lab, node):
    """A card's virtual functions: what the card tells of them, and their interfaces on the node."""
    told = labs.run(lab.ssh(node, "ip", "link", "show", CARD))
    lines = [line.strip() for line in told.splitlines() if line.strip().startswith("vf ")]
    shown = json.loads(labs.run(lab.ssh(node, "ip", "-j", "link")))
    links = {one["ifname"]: (one["address"], one["mtu"]) for one in shown}
    return lines, {name: seen for name, seen in links.items() if name.startswith(CARD)}


def inside(lab, pod, *words):
    return scc.kubectl(lab, "exec", pod, "--", *words)


def own_status(lab, pod):
    (own,) = json.loads(scc.get(lab, f"pod/{pod}")["metadata"]["annotations"][OWN])
    return own


def test_net1_is_a_function_beside_eth0(training):
    lab, before = training
    for pod in PODS:
        shown = json.loads(inside(lab, pod, "ip", "-j", "address"))
        assert {"eth0", "net1"} < {one["ifname"] for one in shown}
        node = scc.get(lab, f"pod/{pod}")["spec"]["nodeName"]
        (net1,) = (one for one in shown if one["ifname"] == "net1")
        (missing,) = set(before[node][1]) - set(functions(lab, node)[1])
        assert before[node][1][missing][0] == net1["address"]
        nodes = inside(lab, pod, "ls", "/dev/infiniband").split()
        assert len([each for each in nodes if each.startswith("uverbs")]) == 1


def test_the_pods_talk_verbs_over_their_functions(training):
    lab, _ = training
    server, client = (endpoint(lab, pod) for pod in PODS)
    script = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -n 300 -F --report_gbits "$@"'
    outcome = measure(server, client, ("sh", "-c", script, "perftest"))
    assert outcome.addresses == {server.address, client.address}


def endpoint(lab, pod):
    """A pod as a place to run perftest in, on its own device and GID."""
    own = own_status(lab, pod)
    shown = inside(lab, pod, "ip", "-4", "-o", "address", "show", "dev", "net1")
    (address,) = re.findall(r"inet ([\d.]+)/", shown)
    words = ("env", f"DEVICE={own['rdmaDevice']}", f"GID={own['gidIndex']}")
    return Endpoint(pod, address, lambda *more: lab.kubectl("exec", pod, "--", *words, *more))


def test_a_function_returns_as_it_was(training):
    lab, before = training
    scc.kubectl(lab, "delete", "pod", *PODS, seconds=120)
    for node in lab.topology.nodes:
        assert functions(lab, node.name) == before[node.name]
