"""Asks who may have the cards of which a part is not on the node, and remembers since when.

Part of the loop of role plugin; pools/rules/absence says what follows. Three know of pods
that have a card: the kubelet from Allocate until the pod has ended, late binding (promises,
bindings), and the records of attached networks, which are on the disk before the first interface
moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools import Pool, PoolSpec
from kube_rdma.pools.rules.absence import Absences, absent, is_away, is_bare
from kube_rdma.pools.rules.health import Holders
from kube_rdma.pools.rules.pools import Held
from kube_rdma.pools.rules.selection import moves


class AbsentCards:
    """One per agent; `records` tell the cards of pods, None while they cannot be read."""

    def __init__(self, records: Sequence[Callable[[], frozenset[CardId] | None]]) -> None:
        self._sources = records
        self.now = Absences()
        self._bare: frozenset[CardId] = frozenset()  # had an RDMA device, show none
        self._lost: frozenset[CardId] = frozenset()  # those of them that no pod can have

    def look(self, node: Sequence[Card], held: Holders | None, pools: Mapping[str, Pool]) -> None:
        """Compare the cards of a survey with what is recorded now, which has to be later.

        `held` are the kubelet's words, None while nothing can be said; `pools` those of the look
        before, which know which cards had RDMA devices.
        """
        pooled = [(pool, card) for pool in pools.values() for card in pool.cards]
        had = {card.id for _, card in pooled if card.devices or card.id in self._bare}
        leave = {card.id for pool, card in pooled if moves(pool.spec)}
        self._bare = frozenset(card.id for card in node if card.id in had and is_bare(card))
        records = self._records()
        alone = {card.id for card in node if not is_away(card)} - leave
        lost = self._lost if records is None else alone - records
        self._lost = self._bare & lost
        explained = None
        if held is not None and records is not None:
            explained = records | {card for cards in held.values() for card in cards}
        clock = asyncio.get_running_loop().time
        self.now = absent(self.now, node, explained, clock(), self._bare & leave)

    @property
    def gone(self) -> frozenset[CardId]:
        """The cards that no pod can be given, for what is missing of them."""
        return self.now.moved | self._lost

    def stays(self, pools: Mapping[str, Pool], specs: Sequence[PoolSpec]) -> Held:
        """The cards that lack a part, by the resource of the `pools` that had them.

        What chose a card (its RDMA device, its interface's name) may be out of sight with it.
        """
        away = self.now.away | self._bare
        had = (pool for pool in pools.values() if pool.spec in specs)
        return {
            pool.spec.resource: {card.id for card in pool.cards if card.id in away} for pool in had
        }

    def _records(self) -> frozenset[CardId] | None:
        """The cards that records of the agent give to pods; None while they cannot be read."""
        records = [cards() for cards in self._sources]
        whole = [cards for cards in records if cards is not None]
        return frozenset[CardId]().union(*whole) if len(whole) == len(records) else None
