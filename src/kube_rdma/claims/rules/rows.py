"""How the shares of cards are laid into devices, so that pods spread over the cards by themselves.

Below claims/rules/shape. The scheduler takes the first device that fits and weighs none (KEP-4381).
So what spreads pods is the order of the devices: a row has one device of each card, and the rows
come one after the other. Rows grow, so that few of them hold many shares. With eight rows and up to
128 shares of a card no row is larger than all before it: while pods only come, a card has at most
twice the pods of another. docs/decisions/0108 has what was measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from kube_base.frozen import replace
from kube_rdma.claims.rules.names import slot_name
from kube_rdma.model.claims.offered import OfferedCard

Pools = list[list[OfferedCard]]

ROWS = 8
"""Of a pool at most; with 8 cards a slice is full (64 devices)."""

_FINE = 1024  # the pace of growth is a multiple of 1/1024


@lru_cache  # the same few numbers at each look
def row_sizes(slots: int, most: int) -> tuple[int, ...]:
    """How many of a card's shares each row has: 1 each while the rows are enough for that."""
    if slots <= most:
        return (1,) * slots
    if most == 1:
        return (slots,)
    paces = range(_FINE * slots)
    pace = bisect_left(paces, slots, key=lambda pace: sum(_grown(most, pace)))
    *head, _ = _grown(most, pace)
    return tuple(sorted((*head, slots - sum(head))))


def row_count(cards: Sequence[OfferedCard], room: int) -> int:
    """How many rows fit into `room` devices; 1 where each card is one device.

    A power of two: a card that comes or goes seldom changes the rows of the others, whose devices
    claims hold.
    """
    several = [card for pool in spreading(cards) for card in pool]
    others = len(cards) - len(several)
    rows = ROWS
    while rows > 1 and others + rows * len(several) > room:
        rows //= 2
    return rows if several else 1


def spreading(cards: Iterable[OfferedCard]) -> Pools:
    """The shared cards of each pool that has more than one."""
    pools = by_pool(card for card in cards if card.shared)
    return [pool for pool in pools if len(pool) > 1]


def in_rows(pool: Sequence[OfferedCard], most: int) -> Iterator[OfferedCard]:
    """Parts of the cards, row by row: a card's last part has its own name, and most of its shares.

    c0-s0, c1-s0, c0-s1, c1-s1, …, c0, c1.
    """
    sizes = [row_sizes(card.slots, most) for card in pool]
    for row in range(max(map(len, sizes))):
        for card, own in zip(pool, sizes, strict=True):
            if row < len(own):
                name = card.name if row == len(own) - 1 else slot_name(card.name, row)
                yield replace(card, name=name, slots=own[row])


def by_pool(cards: Iterable[OfferedCard]) -> Pools:
    """The cards of each pool."""
    pools: dict[object, list[OfferedCard]] = {}
    for card in cards:
        attributes = dict(card.attributes)
        pools.setdefault((attributes.get("resource"), attributes.get("mode")), []).append(card)
    return list(pools.values())


def _grown(rows: int, pace: int) -> list[int]:
    sizes: list[int] = []
    for _ in range(rows):
        sizes.append(max(1, round(sum(sizes) * pace / _FINE)))
    return sizes
