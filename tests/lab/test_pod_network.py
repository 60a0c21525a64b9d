"""Seed S3's network on the lab: macvlan by annotation, addresses from IPAM, verbs from pod to pod.

The GID in perftest's output is looked at: with a neighbour's a test "works" too.
"""

import json
import re

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import Endpoint, measure

EXAMPLE = scc.examples() / "s3-network"
CONFIG = scc.examples().parent / "config"
PODS = ("rdma-net-pod-1", "rdma-net-pod-2")
RESOURCE = "rdma/hca_shared_devices_a"
STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN = "kube-rdma.io/network-status"
# Each pod names its own device and GID: left to itself, perftest takes the node's and "works" too.
SCRIPT = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -n 500 -F --report_gbits "$@"'
WRITE_TEST = ("sh", "-c", SCRIPT, "perftest")


@pytest.fixture(scope="module")
def networks(lab, proof):
    """The lab with the agent of seed S3's example, its network and its two pods on two nodes."""
    for path in sorted(CONFIG.glob("*/*.yaml")):
        scc.kubectl(lab, "apply", "-f", str(path))
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/agent.yaml")
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/controller.yaml")
    rollout = ("rollout", "status", "daemonset/rdma-shared-dp-ds", "-n", "kube-rdma")
    scc.kubectl(lab, *rollout, "--timeout=120s", seconds=150)
    scc.wait_for_resource(lab, "1k", resource=RESOURCE)
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/rdma-net-ipam.yaml")
    try:
        start(lab, PODS[0])
        scc.kubectl(lab, "cordon", node_of(lab, PODS[0]))
        try:
            start(lab, PODS[1])
        finally:
            scc.kubectl(lab, "uncordon", node_of(lab, PODS[0]))
        yield lab
    finally:
        scc.kubectl(lab, "delete", "pod", *PODS, "--ignore-not-found", seconds=120)
        scc.kubectl(lab, "delete", "-f", f"{EXAMPLE}/agent.yaml", "--ignore-not-found", seconds=120)


def start(lab, pod):
    number = pod.rpartition("-")[2]
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/rdma-test-pod-{number}.yaml")
    scc.kubectl(lab, "wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=120s", seconds=130)


def node_of(lab, pod):
    return scc.get(lab, f"pod/{pod}")["spec"]["nodeName"]


def inside(lab, pod, *words):
    return scc.kubectl(lab, "exec", pod, "--", *words)


def annotation(lab, pod, name):
    return json.loads(scc.get(lab, f"pod/{pod}")["metadata"]["annotations"][name])


def address(lab, pod):
    """The pod's address on net1, as its own namespace shows it."""
    shown = inside(lab, pod, "ip", "-4", "-o", "addr", "show", "dev", "net1")
    return re.search(r"inet (192\.168\.111\.\d+)/24", shown)[1]


def test_net1_is_as_the_document_says(networks):
    found = set()
    for pod in PODS:
        shown = inside(networks, pod, "ip", "link", "show", "dev", "net1")
        assert "mtu 9000" in shown
        found.add(address(networks, pod))
    assert len(found) == 2


def test_the_status_tells_the_interface_and_its_rdma_device(networks):
    for pod in PODS:
        (mine,) = [e for e in annotation(networks, pod, STATUS) if e["interface"] == "net1"]
        assert mine["ips"] == [address(networks, pod)]
        (own,) = annotation(networks, pod, OWN)
        devices = inside(networks, pod, "ls", "/sys/class/infiniband").split()
        assert own["rdmaDevice"] in devices
        assert "gidIndex" in own


def test_the_container_has_the_device_of_its_own_interface_alone(networks):
    for pod in PODS:
        nodes = inside(networks, pod, "ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes


def test_the_pods_reach_each_other_by_ping_and_by_verbs(networks):
    first, second = PODS
    inside(networks, second, "ping", "-c", "3", address(networks, first))
    endpoints = []
    for pod in PODS:
        (own,) = annotation(networks, pod, OWN)
        endpoints.append((pod, own["rdmaDevice"], own["gidIndex"]))
    (server, server_device, server_gid), (client, client_device, client_gid) = endpoints
    outcome = measure(
        endpoint(networks, server, server_device, server_gid),
        endpoint(networks, client, client_device, client_gid),
        WRITE_TEST,
    )
    assert outcome.addresses == {address(networks, pod) for pod in PODS}


def endpoint(lab, pod, device, gid):
    """A pod as a place to run perftest in, on its own device and GID."""
    own = ("env", f"DEVICE={device}", f"GID={gid}")
    return Endpoint(
        pod, address(lab, pod), lambda *words: lab.kubectl("exec", pod, "--", *own, *words)
    )


def test_the_pool_says_how_full_it_is(networks):
    """The network's document brought the pool along; the controller keeps its status."""
    scc.kubectl(networks, "wait", "ippool", "--all", "--for=condition=Ready", "--timeout=60s")
    (pool,) = scc.get(networks, "ippools")["items"]
    (usage,) = pool["status"]["usage"]
    assert usage["held"] >= len(PODS)
    assert usage["nodes"] == len(PODS)


def test_a_deleted_pod_gives_everything_back(networks):
    node = node_of(networks, PODS[0])
    scc.kubectl(networks, "delete", "pod", PODS[0], seconds=60)
    links = labs.run(networks.ssh(node, "rdma", "link"))
    assert not re.search(r"rxe-", links)
    assert labs.run(networks.ssh(node, "ls", "/var/lib/kube-rdma/attachments")).split() == []
