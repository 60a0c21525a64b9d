"""Sorts the GPUs and cards of a node by what they sit below: NUMA node, host bridge, PCIe switch.

Between the survey and the picture of `kube-rdma devices --svg`. Virtual functions and sub-functions
belong to their card and are not placed by themselves. Rails are those that cards have where no
policy says otherwise and all of them are in pools (pools/rules/rails).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.node_topology import (
    NodeTopology,
    PlacedCard,
    PlacedGpu,
    TopologyBridge,
    TopologyGroup,
    TopologySocket,
)
from kube_rdma.model.pools.rails import RailRecord
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.health.evaluate import node_cards
from kube_rdma.pools.rules.rails import numbers, physical, recorded

_BELOW_A_SWITCH = 4  # ports on the way: a root port, both sides of a switch, the function itself


class _Spot(Frozen):
    """Where something sits; what is not known sorts last."""

    numa_node: int | None
    root: str
    switch: PciAddress | None

    @property
    def order(self) -> tuple[bool, int, bool, str, str]:
        """The place among others."""
        numa = -1 if self.numa_node is None else self.numa_node
        return self.numa_node is None, numa, not self.root, self.root, self.switch or ""


def node_topology(survey: Survey) -> NodeTopology:
    """The node by what its parts sit below, in the order of their addresses."""
    gpus: dict[_Spot, list[PlacedGpu]] = defaultdict(list)
    for number, gpu in enumerate(survey.gpus):
        gpus[_spot(gpu.seat, gpu.seat.numa_node)].append(PlacedGpu(number, gpu))
    cards: dict[_Spot, list[PlacedCard]] = defaultdict(list)
    for placed in _placed(node_cards(survey)):
        cards[_spot(placed.card.seat, placed.card.numa_node)].append(placed)
    groups = {
        spot: TopologyGroup(spot.switch, tuple(gpus.get(spot, ())), tuple(cards.get(spot, ())))
        for spot in sorted({*gpus, *cards}, key=lambda spot: spot.order)
    }
    nodes = dict.fromkeys(spot.numa_node for spot in groups)
    return NodeTopology(tuple(TopologySocket(node, _bridges(groups, node)) for node in nodes))


def switch_above(seat: PciPosition) -> PciAddress | None:
    """The upper side of the PCIe switch that a function is right below, if it is below one.

    The kernel shows each port of a switch as a bridge: the upper side, then one for each way down.
    """
    return seat.path[-3] if len(seat.path) >= _BELOW_A_SWITCH else None


def _spot(seat: PciPosition | None, numa_node: int | None) -> _Spot:
    return _Spot(numa_node, seat.root, switch_above(seat)) if seat else _Spot(numa_node, "", None)


def _bridges(
    groups: Mapping[_Spot, TopologyGroup], numa_node: int | None
) -> tuple[TopologyBridge, ...]:
    below: dict[str, list[TopologyGroup]] = defaultdict(list)
    for spot, group in groups.items():
        if spot.numa_node == numa_node:
            below[spot.root].append(group)
    return tuple(TopologyBridge(root, tuple(group)) for root, group in below.items())


def _placed(cards: Sequence[Card]) -> Iterable[PlacedCard]:
    """Each physical card once; a function whose physical one is not there stands for itself."""
    ids = {card.id for card in cards}
    above = {card.id: _above(card, ids) for card in cards}
    whole = [card for card in cards if above[card.id] == card.id]
    offered = [card for card in cards if card.devices]
    rails = numbers(recorded(RailRecord(), offered, cards, (), idle=True), cards, ())
    for card in whole:
        parts = tuple(one for one in cards if above[one.id] == card.id and one is not card)
        virtual = sum(1 for one in parts if one.seat and one.seat.physical_function)
        with_devices = tuple(one for one in parts if one.devices)
        yield PlacedCard(card, rails.get(card.id), virtual, with_devices)


def _above(card: Card, ids: set[CardId]) -> CardId:
    """The card that this one is a part of, itself as a rule."""
    above = physical(card)
    return above if above in ids else card.id
