"""Keeps the condition ``kube-rdma.io/CardsHealthy`` of this node as the cards of its pools are.

A NodeKeeper: pools/rules/health/condition makes the condition of each look. An agent that ends in
order removes its condition: nobody would keep it true. One that is killed leaves it, and the
kubelet then counts no healthy share of its resources.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.node import NodeCondition, NodeState
from kube_rdma.pools.rules.health.condition import condition
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace
from kube_rdma.reports.rules.node_report import AgentLook

FAREWELL_SECONDS = 2.0  # for the last patch; a pod has 30 s to end, an API server may be away


class CardCondition(NodeKeeper[NodeCondition | None]):
    """The condition of one agent's node; None where its pools have no cards."""

    part = "node condition"
    failure = "node condition not written"

    def __init__(self, nodes: Nodes, pace: WritePace | None = None) -> None:
        super().__init__(pace or WritePace())
        self._nodes = nodes
        self._begun = False  # a write: its answer may be lost, so the condition may be there

    def _wanted(self, look: AgentLook) -> NodeCondition | None:
        return condition(look.cards)

    def _agrees(self, node: NodeState, wanted: NodeCondition | None) -> bool:
        return node.cards == wanted

    async def _write(self, node: NodeState, wanted: NodeCondition | None) -> NodeState:
        self._begun = True
        await self._nodes.set_cards(node, wanted)
        return replace(node, cards=wanted)

    async def run(self) -> None:
        """Write until cancelled, and remove the condition then, if that goes quickly."""
        try:
            await super().run()
        finally:
            node = self._node
            if node and (self._begun or node.cards):
                with suppress(KubeError, TimeoutError):
                    async with asyncio.timeout(FAREWELL_SECONDS):
                        await self._nodes.set_cards(node, None)
