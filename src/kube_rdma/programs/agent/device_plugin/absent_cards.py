"""Asks who may have the cards whose interface is not on the node, and remembers since when.

Part of the loop of role plugin; rules/health/absence says what follows. Three know of pods that
have a card: the kubelet from Allocate until the pod has ended, late binding (promises, bindings),
and the records of attached networks, which are on the disk before the first interface moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools.pool import Pool, PoolSpec
from kube_rdma.programs.agent.late_binding.interface import LateBinding
from kube_rdma.rules.health.absence import Absences, absent
from kube_rdma.rules.health.membership import Holders
from kube_rdma.rules.pools.pools import Held

if TYPE_CHECKING:
    from kube_rdma.programs.agent.pod_networks.node_networks import NodeNetworks


class AbsentCards:
    """One per agent. Without `networks` no pod of the node has a network of kube-rdma."""

    def __init__(self, late: LateBinding, networks: NodeNetworks | None) -> None:
        self._late = late
        self._networks = networks
        self.now = Absences()

    def look(self, node: Sequence[Card], held: Holders | None) -> None:
        """Compare the cards of a survey with what is recorded now, which has to be later.

        `held` are the kubelet's words, None while nothing can be said.
        """
        explained = self._explained(held)
        self.now = absent(self.now, node, explained, asyncio.get_running_loop().time())

    def stays(self, pools: Mapping[str, Pool], specs: Sequence[PoolSpec]) -> Held:
        """The cards without an interface, by the resource of the pools that had them, `pools`.

        What chose a card (its RDMA device, its interface's name) may be out of sight with it.
        """
        had = (pool for pool in pools.values() if pool.spec in specs)
        return {
            pool.spec.resource: {card.id for card in pool.cards if card.id in self.now.away}
            for pool in had
        }

    def _explained(self, held: Holders | None) -> frozenset[CardId] | None:
        late = self._late.cards()
        attached = self._networks.cards() if self._networks else frozenset[CardId]()
        if held is None or late is None or attached is None:
            return None
        return late | attached | {card for cards in held.values() for card in cards}
