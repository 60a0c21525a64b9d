"""Keepers of two marks of the Node object: the condition CardsHealthy and the startup taint.

pools/rules/condition makes the condition ``kube-rdma.io/CardsHealthy`` of each look. An agent that
ends in order removes it: nobody would keep it true. One that is killed leaves it, and the kubelet
then counts no healthy share of its resources. The taint goes when every resource is there, for
``agent --startup-taint``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.kubernetes import NodeCondition, NodeState
from kube_rdma.pools.rules.condition import condition
from kube_rdma.pools.rules.holdings import EFFECT, shows, starting
from kube_rdma.pools.rules.pools import offer
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace
from kube_rdma.reports.rules.node_report import AgentLook

log = structlog.get_logger()

# Pods wait for the end of the taint: a right that was missing is tried again soon.
SOON = WritePace(after=lambda _, failures: full_jitter(failures))
FAREWELL_SECONDS = 2.0  # for the last patch; a pod has 30 s to end, an API server may be away


class CardCondition(NodeKeeper[NodeCondition | None]):
    """A writer of the Node's condition about its cards, which is absent if pools have no cards."""

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
        """Write the condition until cancelled, then remove it if that is quick."""
        try:
            await super().run()
        finally:
            node = self._node
            if node and (self._begun or node.cards):
                with suppress(KubeError, TimeoutError):
                    async with asyncio.timeout(FAREWELL_SECONDS):
                        await self._nodes.set_cards(node, None)


class StartupTaint(NodeKeeper[Mapping[str, int]]):
    """A remover of the Node's startup taint, once the healthy shares are allocatable.

    Its wanted value is the number of these shares, by resource.
    """

    part = "startup taint"
    failure = "startup taint not removed"

    def __init__(self, nodes: Nodes, pace: WritePace = SOON) -> None:
        super().__init__(pace)
        self._nodes = nodes

    def _wanted(self, look: AgentLook) -> Mapping[str, int]:
        offers = ((pool.spec.resource, offer(pool)) for pool in look.listed)
        return {name: sum(s.healthy for s in shown.shares) for name, shown in offers}

    def _agrees(self, node: NodeState, wanted: Mapping[str, int]) -> bool:
        return not (starting(node) and shows(node, wanted))

    async def _write(self, node: NodeState, wanted: Mapping[str, int]) -> None:
        for key in starting(node):
            if await self._nodes.remove_taint(node.name, key, EFFECT):
                log.info("startup taint removed", node=node.name, taint=f"{key}:{EFFECT}")
