"""The addresses that a topology derives: no two things in a lab share one."""

import ipaddress

import pytest

from kube_rdma.model.errors import Refused
from kube_rdma_lab.network import commands, tap
from kube_rdma_lab.topology import POD_CIDR, TOPOLOGIES, find

NAMES = sorted(TOPOLOGIES)


@pytest.mark.parametrize("name", NAMES)
def test_addresses_macs_and_taps_are_unique(name):
    nodes = find(name).nodes
    cards = [(node, nic) for node in nodes for nic in node.nics]
    addresses = [node.ip for node in nodes] + [node.rdma_ip(nic) for node, nic in cards]
    places = [(node, position) for node in nodes for position in range(len(node.nics) + 1)]
    macs = [node.mac(position) for node, position in places]
    taps = [tap(node, position) for node, position in places]
    for values in (addresses, macs, taps):
        assert len(values) == len(set(values))
    assert all(len(name) < 16 for name in taps), "IFNAMSIZ"


@pytest.mark.parametrize("name", NAMES)
def test_pod_ranges_lie_in_the_cluster_range_and_do_not_overlap(name):
    ranges = [ipaddress.ip_network(node.pod_cidr) for node in find(name).nodes]
    assert all(each.subnet_of(ipaddress.ip_network(POD_CIDR)) for each in ranges)
    assert len(set(ranges)) == len(ranges)


def test_every_wire_of_a_rail_carries_9000_bytes():
    lines = commands(find("two-nodes"))
    assert "link set rail0 mtu 9000 up" in lines
    for node in find("two-nodes").nodes:
        for position in (1, 2):
            assert f"link set {tap(node, position)} mtu 9000" in lines


def test_the_control_plane_reaches_every_pod_range():
    lines = commands(find("two-nodes"))
    assert "route add 10.244.1.0/24 via 10.89.0.11" in lines
    assert "route add 10.244.2.0/24 via 10.89.0.12" in lines


def test_an_unknown_topology_is_refused_with_those_that_exist():
    with pytest.raises(Refused, match="Choose one of two-nodes, control-plane"):
        find("three-nodes")
