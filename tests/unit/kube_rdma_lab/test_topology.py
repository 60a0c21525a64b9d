"""The addresses that a topology derives: no two things in a lab share one."""

import ipaddress
from dataclasses import replace

import pytest

from kube_base.errors import Refused
from kube_rdma_lab.network import commands, tap
from kube_rdma_lab.node_files import nics
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import POD_CIDR, TOPOLOGIES, NicKind, RdmaNetns, find

NAMES = [*sorted(TOPOLOGIES), "two-nodes:4", "netns-exclusive:3", "native:32"]


@pytest.mark.parametrize("name", NAMES)
def test_addresses_macs_and_taps_are_unique(name):
    nodes = find(name).nodes
    cards = [(node, nic) for node in nodes for nic in node.nics]
    addresses = [node.ip for node in nodes] + [node.rdma_ip(nic) for node, nic in cards]
    places = [(node, position) for node in nodes for position in range(len(node.nics) + 1)]
    macs = [node.mac(position) for node, position in places]
    macs += [
        node.vf_mac(position, number)
        for node in nodes
        for position, nic in enumerate(node.nics, start=1)
        for number in range(nic.vfs)
    ]
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
    lines = commands(find("two-nodes"), {})
    assert "link set rail0 mtu 9000 up" in lines
    for node in find("two-nodes").nodes:
        for position in (1, 2, 3):
            assert f"link set {tap(node, position)} mtu 9000" in lines


def test_the_control_plane_reaches_every_pod_range():
    lines = commands(find("two-nodes"), {})
    assert "route add 10.244.1.0/24 via 10.89.0.11" in lines
    assert "route add 10.244.2.0/24 via 10.89.0.12" in lines


def test_an_unknown_topology_is_refused_with_those_that_exist():
    with pytest.raises(Refused, match="Choose one of two-nodes, four-cards, netns-exclusive, dri"):
        find("three-nodes")
    with pytest.raises(Refused, match="there is no topology 'two-nodes:many'"):
        find("two-nodes:many")


@pytest.mark.parametrize("name", ["two-nodes", "four-cards"])
def test_a_node_has_cards_on_both_sockets_four_ghosts_on_each_and_an_igb_on_the_second(name):
    for node in find(name).nodes:
        cards = [nic for nic in node.nics if nic.kind is NicKind.VIRTIO]
        assert {nic.numa_node for nic in cards} == {0, 1}
        assert [gpu.numa_node for gpu in node.gpus] == [0] * 4 + [1] * 4
        (igb,) = (nic for nic in node.nics if nic.kind is NicKind.IGB)
        assert igb.numa_node == 1
    assert len(cards) == {"two-nodes": 2, "four-cards": 4}[name]


def test_machines_for_drivers_have_no_soft_roce_at_boot():
    """Nor does a lab of others have images of drivers."""
    assert find("drivers").wants_drivers
    assert not any(find(name).wants_drivers for name in TOPOLOGIES if name != "drivers")
    for node in find("drivers").nodes:
        assert [line.split()[3] for line in nics(node).splitlines()] == ["-", "-"]
    assert find(find("drivers").reference).wants_drivers


def test_one_node_of_netns_exclusive_is():
    modes = [node.rdma_netns for node in find("netns-exclusive").nodes]
    assert modes == [RdmaNetns.SHARED, RdmaNetns.EXCLUSIVE]


def test_nodes_are_repeated_in_turns_and_keep_their_own_addresses():
    made = find("netns-exclusive").with_nodes(3)
    assert [node.name for node in made.nodes] == ["node-1", "node-2", "node-3"]
    assert made.nodes[2].rdma_netns is RdmaNetns.SHARED
    assert find(made.reference) == made
    assert find("two-nodes").with_nodes(1).nodes == find("two-nodes").nodes[:1]
    assert made.with_nodes(2).reference == "netns-exclusive:2"


def test_a_release_stays_with_its_topology_however_it_is_passed_on():
    made = find("older").with_nodes(3)
    assert (made.release, find(made.reference)) == (Release.OLDER, made)
    unnamed = replace(made, name="of a file")
    assert find(unnamed.reference) == unnamed


def test_no_nodes_cannot_be_repeated():
    with pytest.raises(Refused, match="control-plane has no nodes that could be repeated"):
        find("control-plane:2")
