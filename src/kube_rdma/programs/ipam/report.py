"""Tells how full each pool is: in its status, and as an Event before it runs dry.

The controller's other half of IPAM, beside gc.py. Every few seconds it computes each pool's
status again out of blocks and pools and writes those that differ (level, not edge).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from kube_base.errors import KubeError, Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import ipam
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL, pool_of
from kube_rdma.api.conditions import moment
from kube_rdma.api.ipam.ip_pool_status import Findings, IPPoolStatus, pool_status
from kube_rdma.model.ipam import Block, IPPool
from kube_rdma.rules.ipam.cells import zones
from kube_rdma.rules.ipam.reclaim import conflicts, near_dry, usage

REPORT_SECONDS = 10.0

log = structlog.get_logger()


class Reporter:
    """The pools of one cluster; `events` is run by who made it."""

    def __init__(self, cluster: Cluster, events: Events) -> None:
        self._cluster = cluster
        self._events = events

    async def run(self) -> None:
        """Report until cancelled; an API server that is away is waited for."""
        while True:
            try:
                await self.report(datetime.now(UTC))
            except KubeError as error:
                log.warning("pool report interrupted", why=str(error))
            await asyncio.sleep(REPORT_SECONDS)

    async def report(self, now: datetime) -> int:
        """Write the status of every pool whose status is another by now; how many were written."""
        seen_blocks = await self._cluster.see(ipam.IP_BLOCK)
        blocks = tuple(ipam.block(stored) for stored in seen_blocks.objects)
        written = 0
        for stored in (await self._cluster.see(IP_POOL)).objects:
            pool = pool_of(stored)
            findings = find(pool, blocks)
            status: IPPoolStatus = pool_status(stored.status, pool, findings, moment(now))
            for sentence in findings.scarce:
                about = About("IPPool", pool.name, api_version="kube-rdma.io/v1alpha1")
                self._events.tell(about, "NearlyFull", sentence, warning=True)
            if status == stored.status:
                continue
            try:
                await self._cluster.replace_status(IP_POOL, replace(stored, status=status))
                written += 1
            except Unavailable as error:
                log.info("pool status written by another client", why=str(error))
        return written


def find(pool: IPPool, blocks: tuple[Block, ...]) -> Findings:
    """What there is to say about a pool."""
    try:
        compiled = zones(pool)
    except Refused as error:
        return Findings(broken=str(error))
    mine = [block for block in blocks if block.cell.network == pool.network]
    usages = usage(compiled, mine)
    return Findings(
        usages=usages,
        scarce=tuple(text for one in usages if (text := near_dry(one))),
        conflicts=tuple(str(one) for block in mine for one in conflicts(block)),
    )
