"""SR-IOV on the lab: virtual functions of the igb are real PCI functions that carry verbs."""

import re

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo.perftest import Endpoint, measure
from kube_rdma_lab.topology import NicKind

NETNS = "vf-test"
ADDRESSES = {"node-1": "192.168.111.1", "node-2": "192.168.111.2"}
LIST = """\
for function in /sys/class/net/{card}/device/virtfn*; do
  echo "$(basename $(readlink $function)) $(cat $function/numa_node)" \
    "$(basename $(readlink $function/driver)) $(ls $function/net) $(cat $function/net/*/address)"
done
"""
PREPARE = """\
set -e
ip netns add {netns}
ip link set {vf} netns {netns}
ip -n {netns} address add {address}/24 dev {vf}
ip -n {netns} link set {vf} up
ip netns exec {netns} rdma link add rxe-vf type rxe netdev {vf}
"""


def igb(node):
    """Return the SR-IOV card of a node and its position among the cards."""
    (found,) = (each for each in enumerate(node.nics, 1) if each[1].kind is NicKind.IGB)
    return found


def shell(lab, node, script):
    """Run a shell script on a node."""
    return cluster.shell(lab, node, script)


def test_virtual_functions_have_pci_addresses_a_numa_node_and_the_macs_of_the_topology(lab):
    for node in lab.topology.nodes:
        position, card = igb(node)
        rows = [
            line.split() for line in shell(lab, node.name, LIST.format(card=card.name)).splitlines()
        ]
        assert len({address for address, *_ in rows}) == card.vfs
        assert all(re.fullmatch(r"[0-9a-f:]+\.[0-7]", address) for address, *_ in rows)
        expected = [
            [str(card.numa_node), "igbvf", card.vf(number), node.vf_mac(position, number)]
            for number in range(card.vfs)
        ]
        assert [rest for _, *rest in rows] == expected


@pytest.fixture
def namespaces(lab):
    """A namespace on each node with the first virtual function and Soft-RoCE made on it there."""
    endpoints = []
    try:
        for node in lab.topology.nodes:
            vf, address = igb(node)[1].vf(0), ADDRESSES[node.name]
            shell(lab, node.name, PREPARE.format(netns=NETNS, vf=vf, address=address))
            endpoints.append(Endpoint(node.name, address, inside(lab, node.name)))
        yield endpoints
    finally:
        for node in lab.topology.nodes:
            # The function returns to the node, under its own name.
            shell(lab, node.name, f"rdma link delete rxe-vf; ip netns delete {NETNS}")
            vf = igb(node)[1].vf(0)
            shell(lab, node.name, f"until [ -e /sys/class/net/{vf} ]; do sleep 0.1; done")


def inside(lab, node):
    """Return the way into a node's namespace."""
    return lambda *words: lab.on_node(node, "ip", "netns", "exec", NETNS, *words)


def test_two_functions_in_namespaces_of_two_nodes_talk_verbs_under_their_own_gids(lab, namespaces):
    server, client = namespaces
    words = ("ib_write_bw", "-d", "rxe-vf", "-n", "500", "-F", "--report_gbits")
    outcome = measure(lab, server, client, words)
    assert outcome.iterations == 500
    addresses = [".".join(str(int(part)) for part in gid.split(":")[-4:]) for gid in outcome.gids]
    assert addresses == [client.address, server.address]
