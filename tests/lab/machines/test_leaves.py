"""Leaf switches of a lab: what cards hear of them, and what a moved cable changes and does not."""

import pytest

from kube_rdma_lab import cables, cluster, waiting
from tests.documents.shell import Shell
from tests.kit.heard_lldp import heard

MOVED = "kube-rdma lab cable node-2 ens2f0 leaf-b/1"  # where node-3 has its first card


@pytest.fixture
def shell(leaves):
    with Shell({"KUBE_RDMA_LAB": leaves.state.name}) as opened:
        yield opened


def plugged(lab):
    return {(each.node, each.card): (each.leaf, each.port_name) for each in cables.read(lab.home)}


def hears(lab, node, card, place):
    """Wait until a card hears a port; frames of before the change may come first."""
    waiting.until(lab, f"{place} at {card} of {node}", lambda: heard(lab, node, card) == place)


def reaches(lab, node, address):
    """Wait until a node reaches another one's card."""
    cluster.until_on_node(lab, node, f"ping -c 1 -W 1 {address}")


def test_each_card_hears_the_port_that_its_cable_is_plugged_into(leaves):
    places = plugged(leaves)
    assert len(set(places.values())) == 8
    for (node, card), place in places.items():
        assert heard(leaves, node, card) == place


def test_two_cables_change_places_and_their_rail_still_reaches_all(leaves, shell):
    before = plugged(leaves)
    assert "node-3  ens2f0  0     leaf-b  Ethernet1/1" in shell.check("kube-rdma lab cable")
    table = shell.check(MOVED)
    assert "node-2  ens2f0  0     leaf-b  Ethernet1/1" in table
    assert "node-3  ens2f0  0     leaf-a  Ethernet1/3" in table
    hears(leaves, "node-2", "ens2f0", before["node-3", "ens2f0"])
    hears(leaves, "node-3", "ens2f0", before["node-2", "ens2f0"])
    reaches(leaves, "node-2", "192.168.50.11")
    shell.check("kube-rdma lab cable node-2 ens2f0 out")
    cluster.until_on_node(leaves, "node-1", "! ping -c 1 -W 1 192.168.50.12")
    shell.check("kube-rdma lab cable node-2 ens2f0 leaf-a/3")  # node-3's is pushed out
    shell.check("kube-rdma lab cable node-3 ens2f0 leaf-b/1")
    assert plugged(leaves) == before
    hears(leaves, "node-2", "ens2f0", before["node-2", "ens2f0"])
    reaches(leaves, "node-1", "192.168.50.12")
