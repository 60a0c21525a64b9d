"""Keeps the NodeReport of this node, and follows the NodePolicies that select it.

NodeReporter keeps an object of its own, which it watches and which the Node object owns. A report
that another client deletes, or whose status it edits, is written again. A node at rest renews it
every few minutes, so that readers see how old it is. The kubelet does the same with the Node
(nodeStatusReportFrequency, five minutes). Where a kind is not installed one line of the log says
so, and nothing else changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial

import structlog

from kube_base.errors import KubeError, Refused
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced, WatchEvent
from kube_rdma.adapters.bulkhead import object_failed, start
from kube_rdma.adapters.cluster.kinds.own import StoredReport
from kube_rdma.hardware.error_counters import CardErrors
from kube_rdma.model.kubernetes import NodeState, moment
from kube_rdma.model.pools import ClusterNodePolicy, NodeSpecs
from kube_rdma.model.reports import NodeReport, NodeReportStatus
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.pools.rules.pools import node_specs
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace, pause, spread
from kube_rdma.reports.node_report import NodeReports, is_owned, report_status
from kube_rdma.reports.rules.node_report import AgentLook, node_report

RENEW_SECONDS = 400.0  # 5,000 nodes write 17 times a second then
# A link that flaps would else write as often as it does.
REPORT_PACE = WritePace(quiet=0.3, longest=1.0, spacing=5.0)

log = structlog.get_logger()


class NodeReporter(NodeKeeper[NodeReport]):
    """A writer of the NodeReport of the agent's node."""

    part = "node report"
    failure = "node report not written"

    def __init__(
        self,
        reports: NodeReports,
        pace: WritePace = REPORT_PACE,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        errors: CardErrors | None = None,
    ) -> None:
        super().__init__(pace)
        self._reports = reports
        self._now = now
        self._errors = errors or CardErrors()
        self._renewed = asyncio.Event()
        self._look: AgentLook  # the last one
        self._stored: StoredReport | None = None
        self._shown = False  # whether the watch has it; its lists tell nothing of what it never had
        self._synced = False  # so `_stored` is what the API server has
        self._heard = 0  # events: one that comes during a write may be newer than its answer
        self._due = True  # to be renewed

    def doubted(self) -> None:
        """Delay the first report, which would make the policies count the node as waiting.

        Later ones show what is still on its way too.
        """
        if not self._worked:
            super().doubted()

    def _wanted(self, look: AgentLook) -> NodeReport:
        self._look = look
        degraded = self._errors.look(card for pool in look.verdict.pools for card in pool.cards)
        return node_report(replace(look, degraded=degraded))

    def _agrees(self, node: NodeState, wanted: NodeReport) -> bool:
        if not self._synced:
            return True
        stored = self._stored
        if stored is None or not is_owned(stored, node):
            return False
        if self._due or stored.status is None:
            return False
        agents = replace(stored.status, receipt=None)  # the controller writes that one
        return agents == self._status(wanted, stored.status)

    async def _write(self, node: NodeState, wanted: NodeReport) -> NodeState:
        heard = self._heard
        try:
            old = self._stored.status if self._stored else None
            status = replace(self._status(wanted, old), renew_time=moment(self._now()))
            written = await self._reports.write(node, self._stored, status)
        except Conflict:
            self._stored = None  # it is gone, and the watch is late
            raise
        self._due = False
        if heard == self._heard:
            self._stored = written
        if self._notices.over(self.part):
            log.info("node report written again", node=node.name)
        return node

    async def run(self) -> None:
        """Write the NodeReport whenever it changes, and every few minutes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            read = partial(self._follow, self._reports.node, self._reports.watch, self._take)
            start(tasks, {"node report read": read, "node report written": super().run})
            start(tasks, {"node report renewed": self._renew, "errors of cards": self._judge})

    async def _renew(self) -> None:
        """Write the report again every few minutes, even without a change."""
        while True:
            await asyncio.sleep(spread(RENEW_SECONDS))
            self._due = True
            self._changes.touch()
            self._renewed.set()

    async def _judge(self) -> None:
        """Judge the cards' error counters with each renewal, apart from it: a card may hang."""
        while True:
            await self._renewed.wait()
            self._renewed.clear()
            await self._errors.read(self._now())
            if self._certain:
                self.look(self._look)

    def _take(self, event: object) -> None:
        self._heard += 1
        match event:
            case Changed(stored):
                self._stored, self._shown = stored, True
            case Deleted() | Muddled():  # what is not understood is written again
                self._stored, self._shown = None, False
            case Synced():
                self._synced = True
                if not self._shown:  # what a write was answered with came and went in an outage
                    self._stored = None
                self._hope.set()  # the kind is served, also where it was gone a moment ago
            case Cut():
                return  # what is known may be old; a write changes nothing that is right
        self._changes.touch()

    def _status(self, report: NodeReport, old: NodeReportStatus | None) -> NodeReportStatus:
        """Return the report's new status; unchanged conditions keep their times."""
        return report_status(old, report, moment(self._now()))


Desired = tuple[NodeSpecs, tuple[Refused, ...]]
Watch = Callable[[], AsyncGenerator[WatchEvent[bytes, None], None]]


class NodePolicies:
    """A watch of all NodePolicies, for those that select the agent's node. `wait` is for tests."""

    def __init__(self, watch: Watch, *, wait: Callable[[KubeError, int], float] = pause) -> None:
        self._watch = watch
        self._pace = WritePace(after=wait)
        self._policies: dict[str, ClusterNodePolicy] = {}
        self._refusals: dict[str, Refused] = {}
        self._labels: tuple[tuple[str, str], ...] | None = None
        self._synced = self._read = False  # `_read`: they were, so the right was there
        self._last: Desired | None = None
        self._notices = Notices()
        self._report: Callable[[NodeSpecs, tuple[Refused, ...]], None] = lambda *_: None

    @property
    def are_known(self) -> bool:
        """Return whether the policies for this node have been read, or reading them was refused."""
        return self._last is not None

    def seen(self, node: NodeState) -> None:
        """Note the labels of the node, which select policies."""
        if self._labels != node.labels:
            self._labels = node.labels
            self._tell()

    async def follow(self, desired: Callable[[NodeSpecs, tuple[Refused, ...]], None]) -> None:
        """Call `desired` with the merged policies and the refused ones, until cancelled.

        Without the right to read them, or without their definition, the policies that were read
        before still count.
        """
        self._report = desired
        while True:
            try:
                async with aclosing(self._watch()) as events:
                    async for event in events:
                        self._take(event)
            except Refused as error:
                for why in self._notices.news("policies", str(error)):
                    log.info("node policies not followed", why=why)
                self._synced = True
                self._tell()
                await asyncio.sleep(self._pace.until_next(error, worked=self._read))

    def _take(self, event: object) -> None:
        match event:
            case Changed(stored):
                try:
                    self._policies[stored.name] = policy_of(stored)
                    self._refusals.pop(stored.name, None)
                except Refused as error:
                    self._refusals[stored.name] = error
                except Exception as error:  # noqa: BLE001  of one policy
                    why = object_failed(NODE_POLICY.kind, stored.name, error)
                    self._refusals[stored.name] = Refused(why, remedy="Change its spec")
            case Deleted(name=name) | Muddled(name=name):
                self._policies.pop(name, None)
                self._refusals.pop(name, None)
            case Synced():
                self._synced = self._read = True
                self._notices.over("policies")
        self._tell()

    def _tell(self) -> None:
        """Report the merged policies if they changed, once the first list is complete."""
        if self._synced and self._labels is not None:
            specs = node_specs(self._policies.values(), self._labels)
            desired = (specs, tuple(self._refusals.values()))
            if desired != self._last:
                self._last = desired
                self._report(*desired)
