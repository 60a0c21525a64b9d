"""Keeps the condition ``kube-rdma.io/CardsHealthy`` of this node as the cards of its pools are.

The loop of role plugin hands in each state of the Node object and what rules/health/condition makes
of each look. It is a level: one patch where the two differ, none where they agree, so somebody
else's change is mended too. An agent that ends in order takes its condition along: nobody would
keep it true. One that is killed leaves it, and the kubelet then counts no healthy share of ours.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.notices import Notices
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.node import NodeCondition, NodeState

REFUSED_SECONDS = 600.0  # an old ClusterRole lacks the right: every node of a cluster at once
FAREWELL_SECONDS = 2.0  # for the last patch; a pod has 30 s to end, an API server may be away

log = structlog.get_logger()


def pause(error: KubeError, failures: int) -> float:
    """Seconds to wait before the next write, after an error and so many before it."""
    if isinstance(error, Refused):
        return random.uniform(REFUSED_SECONDS / 2, REFUSED_SECONDS)  # noqa: S311  spreads load
    return full_jitter(failures)


class CardCondition:
    """The condition of one agent's node. `wait` is for tests."""

    def __init__(self, nodes: Nodes, *, wait: Callable[[KubeError, int], float] = pause) -> None:
        self._nodes = nodes
        self._pause = wait
        self._node: NodeState | None = None
        self._wanted: NodeCondition | None = None
        self._certain = False  # `_wanted` is about all that the node is to offer
        self._begun = False  # a write: its answer may be lost, so the condition may be there
        self._wake = asyncio.Event()
        self._notices = Notices()

    def seen(self, node: NodeState) -> None:
        """Take note of the Node object as it is now."""
        self._node = node
        self._wake.set()

    def judged(self, wanted: NodeCondition | None) -> None:
        """Take note of what the node is to say; None: nothing, for its pools have no cards."""
        self._wanted, self._certain = wanted, True
        self._wake.set()

    def doubted(self) -> None:
        """Take note that more is on its way: what the node says stands until then."""
        self._certain = False

    async def run(self) -> None:
        """Write whenever the Node object says something else, until cancelled."""
        try:
            await self._follow()
        finally:
            await self._leave()

    async def _follow(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            node, wanted = self._node, self._wanted
            if node is None or not self._certain or node.cards == wanted:
                continue
            self._begun = True
            try:
                await self._nodes.set_cards(node, wanted)
            except KubeError as error:
                for why in self._notices.news("condition", str(error)):
                    log.warning("node condition not written", node=node.name, why=why)
                await asyncio.sleep(self._pause(error, failures))
                failures += 1
                self._wake.set()
                continue
            failures = 0
            self._notices.over("condition")
            if self._node is node:  # else the watch has shown a newer one
                self._node = replace(node, cards=wanted)
            self._wake.set()

    async def _leave(self) -> None:
        """Take the condition away, if that goes quickly."""
        node = self._node
        if node is None or not (self._begun or node.cards):
            return
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._nodes.set_cards(node, None)
