"""Decides what the picture of a node shows: its tree of GPUs and cards, and how near they are.

A survey says where everything sits. `kube-rdma devices --topology` prints the matrix, `--svg`
draws the tree (hardware/views/topology); pools/rules/nearness measures each way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kube_rdma.model import survey as model
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.pools import RailRecord
from kube_rdma.pools.rules.nearness import Nearness, nearness
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma.pools.rules.rails import numbers, physical, recorded

_BELOW_A_SWITCH = 4  # ports on the way: a root port, both sides of a switch, the function itself


def matrix(survey: model.Survey) -> tuple[tuple[Nearness | None, ...], ...]:
    """Return the nearness of each GPU and RDMA device to all others, as rows of a matrix.

    GPUs come first, then RDMA devices, in the order of the survey. A soft device has the position
    of the function below its interface. Without a position the result is SYS for different NUMA
    nodes, else None.
    """
    places: list[tuple[PciPosition | None, int | None]] = []
    places += [(gpu.position, gpu.position.numa_node) for gpu in survey.gpus]
    places += [(device.position, device.numa_node) for device in survey.devices]

    def between(a: int, b: int) -> Nearness | None:
        (position, numa), (other_position, other_numa) = places[a], places[b]
        if a == b:
            return Nearness.SELF
        if position and other_position:
            return nearness(position, other_position)
        both_known = numa is not None and other_numa is not None
        return Nearness.SYS if both_known and numa != other_numa else None

    order = range(len(places))
    return tuple(tuple(between(a, b) for b in order) for a in order)


Spot = tuple[int | None, str, PciAddress | None]
"""The place of a card or GPU: NUMA node, host bridge ("": not known) and PCIe switch."""


def node_topology(survey: model.Survey) -> tuple[model.TopologySocket, ...]:
    """Return the picture of a node: sockets, host bridges, switches, and what is below them."""
    gpus: dict[Spot, list[model.PlacedGpu]] = defaultdict(list)
    for number, gpu in enumerate(survey.gpus):
        gpus[_spot(gpu.position, gpu.position.numa_node)].append(model.PlacedGpu(number, gpu))
    cards: dict[Spot, list[model.PlacedCard]] = defaultdict(list)
    for placed in _placed(node_cards(survey)):
        cards[_spot(placed.card.position, placed.card.numa_node)].append(placed)
    tree: dict[int | None, dict[str, list[model.TopologyGroup]]] = {}
    for spot in sorted({*gpus, *cards}, key=_order):
        numa_node, root, switch = spot
        group = model.TopologyGroup(switch, tuple(gpus.get(spot, ())), tuple(cards.get(spot, ())))
        tree.setdefault(numa_node, {}).setdefault(root, []).append(group)
    sockets = []
    for node, below in tree.items():
        bridges = (model.TopologyBridge(root, tuple(groups)) for root, groups in below.items())
        sockets.append(model.TopologySocket(node, tuple(bridges)))
    return tuple(sockets)


def _order(spot: Spot) -> tuple[bool, int, bool, str, str]:
    """Return the sort key of a place in the machine; unknown parts of a place come last."""
    numa_node, root, switch = spot
    return numa_node is None, numa_node or 0, not root, root, switch or ""


def switch_above(position: PciPosition) -> PciAddress | None:
    """Return the PCIe switch right above a function, by its upper port; None if there is none.

    The kernel shows each port of a switch as a bridge: the upper side, then one for each way down.
    """
    return position.path[-3] if len(position.path) >= _BELOW_A_SWITCH else None


def _spot(position: PciPosition | None, numa_node: int | None) -> Spot:
    return (numa_node, position.root, switch_above(position)) if position else (numa_node, "", None)


def _placed(cards: Sequence[Card]) -> Iterable[model.PlacedCard]:
    """Yield each whole card once, with its rail and the functions divided off from it.

    A function whose physical one was not seen counts as a whole card.
    """
    ids = {card.id for card in cards}
    above = {card.id: _above(card, ids) for card in cards}
    whole = [card for card in cards if above[card.id] == card.id]
    offered = [card for card in cards if card.devices]
    rails = numbers(recorded(RailRecord(), offered, cards, (), idle=True), cards, ())
    for card in whole:
        parts = tuple(one for one in cards if above[one.id] == card.id and one is not card)
        virtual = sum(1 for one in parts if one.position and one.position.physical_function)
        with_devices = tuple(one for one in parts if one.devices)
        yield model.PlacedCard(card, rails.get(card.id), virtual, with_devices)


def _above(card: Card, ids: set[CardId]) -> CardId:
    """Return the id of the whole card that a function belongs to, else the card's own id."""
    above = physical(card)
    return above if above in ids else card.id
