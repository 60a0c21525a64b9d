"""The driver rdma.kube-rdma.io of this node: when the kubelet hears of it, and what it is told.

    loop of role plugin ─ offered ─► prepared claims, health ─► adapters/kubelet/claim_plugin

The order at the start matters: the cards are known first, then the files of every prepared claim
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
    """One per agent; `registry` is the kubelet's plugins_registry.

    `works` answers whether the runtime gives containers the CDI devices that claims name, and why;
    `tell` writes the status of claims until it is cancelled; `published` has the resources of the
    devices in this node's slices, None when unknown.
    """

    def __init__(
        self,
        claims: PreparedClaims,
        registry: Path,
        node: str,
        works: Callable[[], Awaitable[tuple[bool, str]]],
        tell: Callable[[], Awaitable[None]],
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
        """Take note of what is offered now, by resource, and tell how its devices are."""
        self.claims.offered(pools)
        self._health.publish(health(pools.values(), self._node))
        self._begun.set()

    async def run(self) -> None:
        """Serve until cancelled; raise KubeError when files or the socket cannot be made."""
        await self._begun.wait()
        await self._until_it_works()
        await self.claims.restore()
        answers = ClaimHandlers(self.claims.prepare, self.claims.unprepare)
        plugin = ClaimPlugin(self._registry, DRIVER, answers, self._health)
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"claims served": plugin.run, "claims told": self._tell})

    async def _until_it_works(self) -> None:
        while True:
            works, why = await self._works()
            if works:
                return
            self._notices.warn(log, "claims not served", "runtime", why)
            await asyncio.sleep(ASK_SECONDS)
