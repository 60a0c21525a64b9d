"""Seed S4 on the lab: a virtual function as net1 of each pod, verbs between pods of two nodes."""

import json
import re

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo.perftest import in_pod, measure
from tests.documents.on_lab import followed

PODS = ("training-1", "training-2")
CARD = "ens4f0"
OWN = "kube-rdma.io/network-status"


@pytest.fixture(scope="module")
def training(lab, proof):
    """The lab as the example's page makes it; and the functions as they were before."""
    before = {node.name: functions(lab, node.name) for node in lab.topology.nodes}
    with followed(lab, "examples/s4-infiniband/README.md"):
        yield lab, before


def functions(lab, node):
    """A card's virtual functions: what the card tells of them, and their interfaces on the node."""
    told = cluster.shell(lab, node, "ip", "link", "show", CARD)
    lines = [line.strip() for line in told.splitlines() if line.strip().startswith("vf ")]
    shown = json.loads(cluster.shell(lab, node, "ip", "-j", "link"))
    links = {one["ifname"]: (one["address"], one["mtu"]) for one in shown}
    return lines, {name: seen for name, seen in links.items() if name.startswith(CARD)}


def inside(lab, pod, *words):
    return cluster.kubectl(lab, "exec", pod, "--", *words)


def own_status(lab, pod):
    (own,) = json.loads(cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"][OWN])
    return own


def test_net1_is_a_function_beside_eth0(training):
    lab, before = training
    for pod in PODS:
        shown = json.loads(inside(lab, pod, "ip", "-j", "address"))
        assert {"eth0", "net1"} < {one["ifname"] for one in shown}
        node = cluster.get(lab, f"pod/{pod}")["spec"]["nodeName"]
        (net1,) = (one for one in shown if one["ifname"] == "net1")
        (missing,) = set(before[node][1]) - set(functions(lab, node)[1])
        assert before[node][1][missing][0] == net1["address"]
        nodes = inside(lab, pod, "ls", "/dev/infiniband").split()
        assert len([each for each in nodes if each.startswith("uverbs")]) == 1


def test_the_pods_talk_verbs_over_their_functions(training):
    lab, _ = training
    server, client = (endpoint(lab, pod) for pod in PODS)
    script = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -n 300 -F --report_gbits "$@"'
    outcome = measure(lab, server, client, ("sh", "-c", script, "perftest"))
    assert outcome.addresses == {server.address, client.address}


def endpoint(lab, pod):
    """A pod as a place to run perftest in, on its own device and GID."""
    own = own_status(lab, pod)
    shown = inside(lab, pod, "ip", "-4", "-o", "address", "show", "dev", "net1")
    (address,) = re.findall(r"inet ([\d.]+)/", shown)
    words = ("env", f"DEVICE={own['rdmaDevice']}", f"GID={own['gidIndex']}")
    return in_pod(lab, pod, address, *words)


def test_a_function_returns_as_it_was(training):
    lab, before = training
    cluster.kubectl(lab, "delete", "pod", *PODS)
    for node in lab.topology.nodes:
        assert functions(lab, node.name) == before[node.name]
