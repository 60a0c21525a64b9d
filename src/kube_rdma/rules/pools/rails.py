"""Which rail a card is on: a number of its physical function, which no other card's fate changes.

Between rules/pools/pools, whose cards it numbers, and the addresses of pods, which rails choose. By
themselves cards are numbered by address, the same on all nodes of one kind. A card that is gone
keeps its number. One that comes between others would shift them, so while pods hold cards it has a
number behind all others, and its own when the node is idle. A policy may list the cards instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_rdma.model.card import Card, CardId
from kube_rdma.model.rails import RailRecord


def physical(card: Card) -> CardId:
    """The physical function that a card is or is a part of; a soft device without one: itself."""
    seat = card.seat
    return CardId(seat.physical_function or seat.pci) if seat else card.id


def recorded(
    before: RailRecord,
    offered: Iterable[Card],
    node: Sequence[Card],
    listed: Sequence[str],
    *,
    idle: bool,
) -> RailRecord:
    """What to remember from now on.

    `offered` are the cards of all pools, `node` all that the node has, `listed` what the policy
    lists. `idle`: it is certain that no pod holds a card.
    """
    present = set(map(physical, offered))
    new = sorted(present.difference(before.functions))
    functions = (*before.functions, *new)
    if idle:
        functions = tuple(sorted(functions))
    names = {name: card for name, card in before.names if name in listed}
    names |= {name: card for name, card in _names(node) if name in listed}
    return RailRecord(functions, tuple(sorted(names.items())))


def numbers(
    record: RailRecord, node: Iterable[Card], listed: Sequence[str]
) -> Mapping[CardId, int]:
    """The rail of each card of the node that has one, virtual functions included.

    With a list the cards that it names have its order, and others have no rail.
    """
    names = dict(record.names)
    order = [names.get(entry, CardId(entry.lower())) for entry in listed] or record.functions
    rails = {function: rail for rail, function in enumerate(order)}
    parts = {card.id: rails[of] for card in node if (of := physical(card)) in rails}
    return rails | parts


def _names(node: Iterable[Card]) -> Iterable[tuple[str, CardId]]:
    """The interfaces of physical cards."""
    for card in node:
        if card.function and card.function.seat.physical_function is None:
            yield from ((netdev.name, physical(card)) for netdev in card.function.netdevs)
        elif card.function is None:
            ports = (port.netdev for device in card.devices for port in device.ports)
            yield from ((name, physical(card)) for name in ports if name and card.seat is None)
