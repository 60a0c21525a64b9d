"""Below which socket, host bridge and switch each GPU and card is drawn, and on which rail."""

from __future__ import annotations

import pytest

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.hardware import machines
from kube_rdma.pools.rules.health import node_cards
from kube_rdma.pools.rules.topology import Nearness, nearness, node_topology


def groups(topology):
    """All groups with the socket and host bridge that they are below."""
    return [
        (socket.numa_node, bridge.root, group)
        for socket in topology.sockets
        for bridge in socket.bridges
        for group in bridge.groups
    ]


def topology_of(name):
    return node_topology(read_survey(machines.machine(name)))


def test_a_machine_of_eight_gpus_and_cards():
    found = groups(topology_of("dgx-like"))
    assert [(numa, root, group.switch) for numa, root, group in found] == [
        (0, "pci0000:00", "0000:01:00.0"),
        (0, "pci0000:20", "0000:21:00.0"),
        (1, "pci0000:80", "0000:81:00.0"),
        (1, "pci0000:a0", "0000:a1:00.0"),
    ]
    assert [[gpu.number for gpu in group.gpus] for *_, group in found] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    rails = [(card.card.name, card.rail) for *_, group in found for card in group.cards]
    assert rails == [(f"mlx5_{number}", number) for number in range(8)]


def test_virtual_functions_and_sub_functions_are_parts_of_their_card():
    ((_, _, group),) = groups(topology_of("mlx5-ib-pf-vfs"))
    first, second = group.cards
    assert (first.card.name, first.functions, len(first.parts)) == ("mlx5_0", 4, 2)
    assert (second.card.name, second.functions, second.rail) == ("mlx5_1", 0, 1)
    ((_, _, group),) = groups(topology_of("mlx5-subfunction"))
    (card,) = group.cards
    assert [one.name for one in card.parts] == ["mlx5_1"]
    assert card.functions == 0


def test_a_card_without_an_rdma_device_has_no_rail():
    cards = [card for *_, group in groups(topology_of("lab-node")) for card in group.cards]
    rails = {card.card.name: card.rail for card in cards}
    assert rails == {"rxe0": 0, "rxe1": 1, "ens4f0": None, "eth0": None}


@pytest.mark.parametrize("name", machines.names())
def test_each_gpu_and_card_has_one_place_and_one_switch_means_near(name):
    survey = read_survey(machines.machine(name))
    found = groups(node_topology(survey))
    gpus = [one.gpu for *_, group in found for one in group.gpus]
    assert sorted(gpu.seat.pci for gpu in gpus) == [gpu.seat.pci for gpu in survey.gpus]
    whole = [one.card for *_, group in found for one in group.cards]
    parts = [part for *_, group in found for one in group.cards for part in one.parts]
    drawn = sorted(card.id for card in (*whole, *parts) if card.devices)
    assert drawn == sorted(card.id for card in node_cards(survey) if card.devices)
    for numa, root, group in found:
        seats = [one.gpu.seat for one in group.gpus] + [
            one.card.seat for one in group.cards if one.card.seat
        ]
        assert {(seat.numa_node, seat.root) for seat in seats} <= {(numa, root)}
        if group.switch:
            near = {nearness(seats[0], seat) for seat in seats}
            assert near <= {Nearness.SELF, Nearness.PIX}
