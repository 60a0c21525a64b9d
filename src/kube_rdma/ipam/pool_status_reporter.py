"""Reports how full each pool is: in its status, and as an Event when it is nearly full.

It is the controller's other half of IPAM, beside gc.py. Every ten seconds it computes each pool's
status from pools and blocks and writes what differs. Every agent receives what is written, so with
thousands of nodes it waits longer after a write. Pools are few and are listed; blocks may be as
many as nodes, so a watch shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import MOST_FAULTS, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam.objects import IPPoolStatus, PoolFindings, pool_status
from kube_rdma.ipam.rules.reclaim import conflicts, nearly_full, usage
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.lib.debounce import apart
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.ipam import Block, IPPool, Usage
from kube_rdma.model.kubernetes import moment

REPORT_SECONDS = 10.0  # at least

log = structlog.get_logger()


class _Blocks(Frozen):
    values: tuple[Block, ...]
    faults: Mapping[str, KubeError]  # by the name of a block


class PoolStatusReporter:
    """The writer of the status of each IPPool of a cluster; the caller runs `events`.

    `reported` is called with the usage of each pool by name, at each `report`.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        reported: Callable[[Mapping[str, Sequence[Usage]]], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._reported = reported
        self._blocks: Mirror[Block] = Mirror(kinds.IP_BLOCK, kinds.stored_block)
        self._usages: dict[str, tuple[Usage, ...]] = {}  # by pool, as counted last
        self._walls = ObjectWalls("IPPool")

    async def run(self) -> None:
        """Write statuses until cancelled; wait while the API server is away."""
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, full_jitter, self._blocks)
            clock, due = asyncio.get_running_loop().time, 0.0
            while True:
                written, began = 0, clock()
                try:
                    written = await self.report(datetime.now(UTC), edited=began < due)
                except KubeError as error:
                    log.warning("pool report interrupted", why=str(error))
                due = max(due, began + self.apart(written))
                await asyncio.sleep(REPORT_SECONDS)

    def apart(self, written: int) -> float:
        """Return the seconds to wait after writing this many statuses until all are written again.

        The wait grows with the number of nodes that hold addresses: each reads these changes.
        """
        holders = max((one.nodes for each in self._usages.values() for one in each), default=0)
        return apart(REPORT_SECONDS, written * holders)

    async def report(self, now: datetime, *, edited: bool = False) -> int:
        """Write each status that has changed, tell of nearly full pools; return how many it wrote.

        `edited` restricts this to pools that are new or have another spec, for a person waits for
        these. A status is only written to the version of the object that it was computed from.
        """
        blocks = await self._all_blocks()
        pools = (await self._cluster.see(kinds.IP_POOL_TEXT)).objects
        self._usages = {pool.name: self._usages.get(pool.name, ()) for pool in pools}
        written = [
            await self._walls.run(
                (pool.name, pool.generation),
                partial(self._report, pool, blocks, moment(now), edited=edited),
            )
            for pool in pools
        ]
        self._reported(self._usages)
        return sum(written)

    async def _all_blocks(self) -> _Blocks:
        """Return all blocks from the watch, or from a list before the watch has shown all.

        Raise Unavailable if the watch is interrupted, or the API server does not answer.
        """
        if not self._blocks.synced.is_set():
            seen = await self._cluster.see(kinds.IP_BLOCK)
            return _Blocks(tuple(map(kinds.stored_block, seen.objects)), {})
        if self._blocks.trouble:
            raise Unavailable(self._blocks.trouble)
        return _Blocks(tuple(self._blocks.values.values()), dict(self._blocks.faults))

    async def _report(
        self,
        stored: Stored[bytes, IPPoolStatus],
        blocks: _Blocks,
        now: str,
        why: str,
        *,
        edited: bool,
    ) -> bool:
        """Write a pool's status if it has changed, tell if it is nearly full; return if it wrote.

        `why` is the error where the pool cannot be handled, else "".
        """
        before = self._usages[stored.name]
        pool, findings = None, PoolFindings(stored.generation, before, broken=why)
        if not why:
            pool, findings = _findings(stored, blocks, before)
        status = pool_status(stored.status, pool, findings, now)
        self._usages[stored.name] = tuple(findings.usages)
        for sentence in findings.scarce:
            about = About("IPPool", stored.name, api_version="kube-rdma.io/v1alpha1")
            self._events.tell(about, "NearlyFull", sentence, warning=True)
        is_known = stored.status and stored.status.observed_generation == stored.generation
        if status == stored.status or (edited and is_known):
            return False
        try:
            await self._cluster.replace_status(kinds.IP_POOL_TEXT, replace(stored, status=status))
        except Unavailable as error:
            log.info("pool status written by another client", why=str(error))
            return False
        except Refused as error:
            log.warning("pool status not written", pool=stored.name, why=str(error))
            return False
        return True


def _findings(
    stored: Stored[bytes, IPPoolStatus], blocks: _Blocks, before: tuple[Usage, ...]
) -> tuple[IPPool | None, PoolFindings]:
    """Return the pool of an object and the findings about it; the pool is None if not understood.

    A garbled block may have anybody's addresses, so until it is repaired the usage stays as it was
    `before`.
    """
    try:
        pool = kinds.pool_of_text(stored)
    except Refused as error:
        return None, PoolFindings(stored.generation, broken=str(error))
    findings = pool_findings(pool, blocks.values, stored.generation)
    garbled = {n: fault for n, fault in blocks.faults.items() if n.startswith(f"{pool.network}.")}
    if garbled:
        conflicts = (*findings.conflicts, *map(str, list(garbled.values())[:MOST_FAULTS]))
        findings = replace(findings, usages=before or findings.usages, conflicts=conflicts)
    return pool, findings


def pool_findings(pool: IPPool, blocks: tuple[Block, ...], generation: int) -> PoolFindings:
    """Return the findings for the status of a pool, from the blocks of its network."""
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
