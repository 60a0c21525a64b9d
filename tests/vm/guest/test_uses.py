"""What a card of a real machine is used for, also by a pod that the node cannot look into."""

from __future__ import annotations

import json

import pytest

from kube_rdma.adapters.kernel.sriov.netdev_usage import read_uses
from kube_rdma.model.card import Use

from .world import run

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]


def test_a_macvlan_inside_a_pod_is_seen_by_its_mac(cards, pod):
    (net1,) = json.loads(run("ip", "-n", pod, "-j", "link", "show", "net1"))
    found = read_uses(cards)
    assert found[cards[0]] == Use(guests=(net1["address"],))
    assert found[cards[1]] == Use(), "it is up, which is no use"


def test_addresses_and_vlans_of_the_node_are_uses(cards):
    run("ip", "address", "add", "10.9.0.1/24", "dev", cards[0])
    run("ip", "link", "add", "link", cards[1], "name", "vlan7", "type", "vlan", "id", "7")
    try:
        found = read_uses(cards)
    finally:
        run("ip", "link", "delete", "vlan7")
    assert found[cards[0]] == Use(addresses=("10.9.0.1/24",), routes=("10.9.0.0/24",))
    assert found[cards[1]] == Use(above=("vlan7",))
