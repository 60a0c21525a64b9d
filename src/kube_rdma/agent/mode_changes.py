"""The wishes that are met, kept over the agent's end: a change of mode waits for pods all the same.

Beside agent/loop, which hands in the wishes and who holds what at every
look; pools/rules/staging decides. What is met stands in the journal before it is offered. Without a
journal (role plugin alone) it ends with the process, and a new one knows no more than the share ids
that pods hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.attach.late_binding import LateBinding
from kube_rdma.lib.records import Records
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import AppliedPools, Attach, PoolSpec
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.staging import PendingPool, StagedPools, stage

_RECORD = "pools"

log = structlog.get_logger()

OpenJournal = Callable[[], Journal[AppliedPools]]


class ModeChanges:
    """One per agent.

    `journal` opens the record, and raises KubeError; None: there is none. `ask` tells who holds
    what now, None when nobody can.
    """

    def __init__(
        self,
        journal: OpenJournal | None,
        ask: Callable[[], Awaitable[Sequence[Holding] | None]],
        late: LateBinding,
        node: NodeEvents,
    ) -> None:
        self._open = journal
        self._records: Records[AppliedPools] | None = None
        self._ask = ask
        self._late = late
        self._node = node
        self._stage = StagedPools(())
        self._recorded: tuple[PoolSpec, ...] | None = ()  # None: what the disk has is not known
        self._loaded = False
        self._notices = Notices()

    @property
    def specs(self) -> tuple[PoolSpec, ...]:
        """The wishes that are met."""
        return self._stage.specs

    @property
    def kept(self) -> tuple[PoolSpec, ...]:
        """Those that nobody has any more and whose shares pods hold."""
        return self._stage.kept

    @property
    def pending(self) -> tuple[PendingPool, ...]:
        """The wishes that wait."""
        return self._stage.pending

    async def meet(self, wanted: Sequence[PoolSpec], holdings: Sequence[Holding] | None) -> None:
        """Meet the wishes that can be met now, and say which wait."""
        previous = self._stage.remembered if self._loaded else await self._recall()
        wishes = self._late.possible(wanted)
        staged = stage(previous, wishes, holdings)
        if staged.applied:  # a survey was taken since they were asked: a pod may have started
            holdings = await self._holdings()
            staged = stage(previous, wishes, holdings)
        if not await self._record(staged.remembered) and staged.applied:
            staged = stage(previous, wishes, holdings, durable=False)
        self._stage = staged
        self._tell(staged)

    async def _holdings(self) -> tuple[Holding, ...] | None:
        """What the kubelet tells, and what it may have forgotten of pods that run."""
        holdings = await self._ask()
        try:
            return None if holdings is None else (*holdings, *await self._late.held())
        except Unavailable as error:
            self._notices.warn(log, "share holders unknown", "bound", str(error))
            return None

    async def _recall(self) -> tuple[PoolSpec, ...]:
        """What was met when the last process ended, as far as this one can do it."""
        self._loaded = True
        if self._open is None:
            return ()
        try:
            specs = await asyncio.to_thread(self._load, self._open)
        except Unavailable as error:
            log.warning("applied modes not saved", why=str(error))
            return ()
        self._recorded = specs
        # What cannot be bound late any more is given at Allocate, or no pod would get it at all.
        possible = self._late.possible(specs)
        return tuple(
            here if terms(here).attach is Attach.NONE else spec
            for spec, here in zip(specs, possible, strict=True)
        )

    def _load(self, opened: OpenJournal) -> tuple[PoolSpec, ...]:
        self._records = Records(opened(), partial(self._node.tell, NodeEvent.JOURNAL_TROUBLE))
        return next((record.specs for record in self._records.values), ())

    async def _record(self, specs: tuple[PoolSpec, ...]) -> bool:
        """Write down what is met from now on; False when that failed."""
        if self._records is None or specs == self._recorded:
            return True
        try:
            await self._records.put(_RECORD, AppliedPools(specs))
        except Unavailable as error:
            self._recorded = None
            self._notices.warn(log, "applied modes not written", "record", str(error))
            return False
        self._recorded = specs
        self._notices.over("record")
        return True

    def _tell(self, staged: StagedPools) -> None:
        """Say what has changed, and what waits once while it stands."""
        for change in staged.applied:
            log.info("mode change applied", what=str(change))
            self._node.tell(NodeEvent.MODE_CHANGE_APPLIED, str(change))
        for sentence in self._notices.news("waits", *map(str, staged.pending)):
            log.warning("mode change pending", what=sentence)
            self._node.tell(NodeEvent.MODE_CHANGE_PENDING, sentence)
