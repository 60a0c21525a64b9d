"""Verbs over rails that are routed: ib_write_bw on each rail, and from each rail to each other.

Seed S1's nodes, whose cards get a network with a slice for each node in place of the example's
pool. The lab's own namespace is the router: it has an address of each slice on the bridge of the
rail, so a /31 leads through it although the bridge is one. native/test_routed_rails.py has a
router with a port for each card.
"""

import ipaddress
import json
import subprocess

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo.perftest import in_pod, measure

from .test_vke_network import NODES, OWN, cards, page, s1, start, switch  # noqa: F401  fixtures

pytestmark = pytest.mark.slow
NETWORK = "routed"
SCRIPT = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -n 300 -F --report_gbits -q 1 "$@"'


def slice_of(node, rail):
    return f"10.20.{rail}.{2 * NODES.index(node)}/31"


def pool(rail):
    chosen = [{"node": node, "subnet": slice_of(node, rail)} for node in NODES]
    per_node = {"prefix": 31, "gatewayIndex": 0, "nodes": chosen}
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": f"routed-{rail}"},
        "spec": {
            "ranges": [{"subnet": f"10.20.{rail}.0/28", "perNode": per_node}],
            "routes": [{"dst": "10.20.0.0/16"}],
        },
    }


@pytest.fixture
def routed(s1, start):  # noqa: F811  the fixtures of test_vke_network
    """A pod on each node with all of its cards, each in the slice of its node."""
    rails = range(len(cards(s1)))
    names = {str(rail): f"routed-{rail}" for rail in rails}
    config = {
        "cniVersion": "1.0.0",
        "type": "kube-rdma",
        "ipam": {"type": "kube-rdma-ipam", "pools": names},
    }
    definition = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": NETWORK,
            "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": "vke.volcengine.com/rdma"},
        },
        "spec": {"config": json.dumps(config)},
    }
    cluster.apply(s1, definition, *map(pool, rails))
    gateways = [(f"rail{rail}", slice_of(node, rail)) for rail in rails for node in NODES]
    for bridge, address in gateways:
        in_lab(s1, "ip", "address", "replace", address, "dev", bridge)
    in_lab(s1, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    switch(s1, "shared", *NODES)
    blocks = json.dumps([{"cniConf": {"name": NETWORK}} for _ in rails])
    changes = {"k8s.volcengine.com/pod-networks": blocks}
    pods = [start(len(rails), node, **changes) for node in NODES]
    cluster.ready(s1, *pods)
    yield s1, pods, rails
    cluster.kubectl(s1, "delete", "pod", *pods)
    for bridge, address in gateways:
        in_lab(s1, "ip", "address", "del", address, "dev", bridge)
    cluster.kubectl(s1, "delete", "network-attachment-definitions", NETWORK)
    cluster.kubectl(s1, "delete", "ippools.kube-rdma.io", *names.values())


def in_lab(lab, *words):
    subprocess.run([*lab.enter(), *words], check=True)


def endpoints(lab, pod):
    """Each rail of a pod as a place to run perftest in, by the third octet of its address."""
    told = json.loads(cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"][OWN])
    found = {}
    for one in told:
        (interface,) = map(ipaddress.ip_interface, one["ips"])
        words = ("env", f"DEVICE={one['rdmaDevice']}", f"GID={one['gidIndex']}")
        found[interface.ip.packed[2]] = in_pod(lab, pod, str(interface.ip), *words)
    return found


def test_verbs_reach_each_rail_from_each_other(routed):
    """The GIDs that perftest names are those of the two rails, so no other path was measured."""
    lab, pods, rails = routed
    servers, clients = (endpoints(lab, pod) for pod in pods)
    assert set(servers) == set(clients) == set(rails)
    for mine, client in clients.items():
        for other, server in servers.items():
            outcome = measure(lab, server, client, ("sh", "-c", SCRIPT, "perftest"))
            assert outcome.iterations == 300, (mine, other)
            assert outcome.addresses == {client.address, server.address}, (mine, other)
