"""Runs the driver rdma.kube-rdma.io of this node, and decides when the kubelet hears of it.

    loop of role plugin ─ offered ─► prepared claims, health ─► adapters/kubelet/claim_plugin

The order at the start matters. The cards are known first, then the files of every prepared claim
are there again, and then the kubelet may ask. A runtime that ignores CDI devices would start
containers without their cards, so the kubelet hears of no driver on such a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog

from kube_base.notices import Notices
from kube_rdma.adapters.bulkhead import start
from kube_rdma.adapters.kubelet.claim_plugin import ClaimHandlers, ClaimHealth, ClaimPlugin
from kube_rdma.claims.prepared_claims import PreparedClaims
from kube_rdma.claims.rules.prepare import health
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.pools import Pool

ASK_SECONDS = 60.0

log = structlog.get_logger()


class ClaimDriver:
    """The DRA driver of one agent, which serves the kubelet and reports devices' health to it."""

    def __init__(
        self,
        claims: PreparedClaims,
        registry: Path,  # the kubelet's plugins_registry
        node: str,
        # Returns whether the runtime gives containers the CDI devices of claims, and why.
        works: Callable[[], Awaitable[tuple[bool, str]]],
        tell: Callable[[], Awaitable[None]],  # writes the status of claims until cancelled
        # Returns the resources of the devices in this node's slices, None when unknown.
        published: Callable[[], frozenset[str] | None],
    ) -> None:
        self.claims = claims
        self.published = published
        self._registry = registry
        self._node = node
        self._works = works
        self._tell = tell
        self._health = ClaimHealth()
        self._begun = asyncio.Event()  # the node was looked at
        self._notices = Notices()

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Store the offered pools by resource, and publish the health of their devices."""
        self.claims.offered(pools)
        self._health.publish(health(pools.values(), self._node))
        self._begun.set()

    async def run(self) -> None:
        """Serve the kubelet, once the runtime works with CDI devices, until cancelled.

        Raise KubeError when the CDI files cannot be written at the start.
        """
        await self._begun.wait()
        while not (works := await self._works())[0]:
            self._notices.warn(log, "claims not served", "runtime", works[1])
            await asyncio.sleep(ASK_SECONDS)
        await self.claims.restore()
        answers = ClaimHandlers(self.claims.prepare, self.claims.unprepare)
        plugin = ClaimPlugin(self._registry, DRIVER, answers, self._health)
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"claims served": plugin.run, "claims told": self._tell})
