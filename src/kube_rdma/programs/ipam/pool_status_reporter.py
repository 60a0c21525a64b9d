"""Reports how full each pool is: in its status, and as an Event when it is nearly full.

The controller's other half of IPAM, beside gc.py. Every few seconds it computes each pool's status
from pools and blocks and writes those that differ (level, not edge). Pools are few and are listed;
blocks may be as many as nodes, so while it runs a watch shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import replace
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import ipam
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL_TEXT, pool_of_text
from kube_rdma.api.ipam.ip_pool_status import IPPoolStatus, PoolFindings, pool_status
from kube_rdma.model.conditions import moment
from kube_rdma.model.ipam import Block, IPPool, Usage
from kube_rdma.programs.mirror import Mirror
from kube_rdma.rules.ipam.reclaim import conflicts, nearly_full, usage
from kube_rdma.rules.ipam.subpools import subpools

REPORT_SECONDS = 10.0

log = structlog.get_logger()


class PoolStatusReporter:
    """Writes the status of each pool of a cluster; the caller runs `events`.

    `reported` is called with how full all pools are, at each look.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        reported: Callable[[Sequence[Usage]], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._reported = reported
        self._blocks: Mirror[Block] = Mirror(ipam.IP_BLOCK, ipam.block)

    async def run(self) -> None:
        """Report until cancelled, and wait for an API server that is away."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._blocks.follow(self._cluster, full_jitter))
            await self._blocks.synced.wait()
            while True:
                try:
                    await self.report(datetime.now(UTC))
                except KubeError as error:
                    log.warning("pool report interrupted", why=str(error))
                await asyncio.sleep(REPORT_SECONDS)

    async def report(self, now: datetime) -> int:
        """Write the status of each pool where it changed; return how many were written.

        A status is of the very version of the object that it was computed from, or is not written:
        so observedGeneration is that of the spec that was looked at, and never goes back.
        """
        blocks = await self._all_blocks()
        written = 0
        usages: list[Usage] = []
        for stored in (await self._cluster.see(IP_POOL_TEXT)).objects:
            status, findings = _status(stored, blocks, moment(now))
            usages += findings.usages
            for sentence in findings.scarce:
                about = About("IPPool", stored.name, api_version="kube-rdma.io/v1alpha1")
                self._events.tell(about, "NearlyFull", sentence, warning=True)
            if status == stored.status:
                continue
            try:
                await self._cluster.replace_status(IP_POOL_TEXT, replace(stored, status=status))
                written += 1
            except Unavailable as error:
                log.info("pool status written by another client", why=str(error))
        self._reported(usages)
        return written

    async def _all_blocks(self) -> tuple[Block, ...]:
        """As the watch shows them, or listed where it does not run.

        Raise Unavailable while nothing is known of changes, and what is wrong with a garbled block.
        """
        if not self._blocks.synced.is_set():
            seen = await self._cluster.see(ipam.IP_BLOCK)
            return tuple(map(ipam.block, seen.objects))
        if self._blocks.trouble:
            raise Unavailable(self._blocks.trouble)
        for fault in self._blocks.faults.values():
            raise fault
        return tuple(self._blocks.values.values())


def pool_findings(pool: IPPool, blocks: tuple[Block, ...], generation: int) -> PoolFindings:
    """What the status of a pool reports, from the blocks of its network."""
    try:
        compiled = subpools(pool)
    except Refused as error:
        return PoolFindings(generation, broken=str(error))
    own = [block for block in blocks if block.key.network == pool.network]
    usages = usage(compiled, own)
    return PoolFindings(
        generation,
        usages=usages,
        scarce=tuple(text for one in usages if (text := nearly_full(one))),
        conflicts=tuple(str(one) for block in own for one in conflicts(block)),
    )


def _status(
    stored: Stored[bytes, IPPoolStatus], blocks: tuple[Block, ...], now: str
) -> tuple[IPPoolStatus, PoolFindings]:
    """The status of an object, and what it is about; a spec that is not understood has one too."""
    try:
        pool = pool_of_text(stored)
    except Refused as error:
        findings = PoolFindings(stored.generation, broken=str(error))
        return pool_status(stored.status, None, findings, now), findings
    findings = pool_findings(pool, blocks, stored.generation)
    return pool_status(stored.status, pool, findings, now), findings
