"""Keeps the NodeReport of this node as the agent's last look was.

The loop of role plugin hands in each state of the Node object and each report that
rules/reports/node_report makes. It is a level: the object is followed, and written where it says
something else, so one that somebody deletes or edits comes again, and a node at rest writes
nothing. Where the kind is not installed one line of the log says so, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.errors import Conflict, NotInstalled
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced
from kube_rdma.adapters.bulkhead import start
from kube_rdma.adapters.cluster.kinds.node_report import StoredReport
from kube_rdma.adapters.cluster.node_reports import NodeReports, is_owned
from kube_rdma.api.conditions import moment
from kube_rdma.api.reports.node_report import report_status
from kube_rdma.api.reports.node_report_models import NodeReportStatus
from kube_rdma.model.node import NodeState
from kube_rdma.model.reports.node_report import NodeReport
from kube_rdma.programs.agent.node.debounce import Debounce

REFUSED_SECONDS = 600.0  # an old ClusterRole lacks the right: every node of a cluster at once
MISSING_SECONDS = 120.0  # the kind may be installed later, or never

log = structlog.get_logger()


def pause(error: KubeError, failures: int) -> float:
    """Seconds to wait before the next try, after an error and so many before it."""
    if isinstance(error, Refused):
        longest = MISSING_SECONDS if isinstance(error, NotInstalled) else REFUSED_SECONDS
        return random.uniform(longest / 2, longest)  # noqa: S311  spreads load
    return full_jitter(failures)


class ReportPace(Frozen):
    """How often a report is written; all in seconds.

    `quiet` ends a burst of changes, `longest` ends an endless one. `spacing` lies between two
    writes at least: a link that flaps would else write as often as it does.
    """

    quiet: float = 0.3
    longest: float = 1.0
    spacing: float = 5.0
    after: Callable[[KubeError, int], float] = pause


class NodeReporter:
    """The report of one agent's node."""

    def __init__(
        self,
        reports: NodeReports,
        pace: ReportPace | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reports = reports
        self._pace = pace or ReportPace()
        self._now = now
        self._node: NodeState | None = None
        self._report: NodeReport | None = None
        self._stored: StoredReport | None = None
        self._synced = False  # so `_stored` is what the API server has
        self._heard = 0  # notices: one that comes during a write may be newer than its answer
        self._changes = Debounce(self._pace.quiet, self._pace.longest)
        self._notices = Notices()

    def seen(self, node: NodeState) -> None:
        """Take note of the Node object, which is to own the report."""
        if self._node is None or self._node.uid != node.uid:
            self._node = node
            self._changes.touch()

    def looked(self, report: NodeReport) -> None:
        """Take note of what the last look came to."""
        if report != self._report:
            self._report = report
            self._changes.touch()

    async def run(self) -> None:
        """Write whenever the object says something else, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"node report read": self._follow, "node report written": self._write})

    async def _follow(self) -> None:
        """Watch the object; begin anew when its kind was not served."""
        while True:
            try:
                async with aclosing(self._reports.watch()) as notices:
                    async for notice in notices:
                        self._take(notice)
            except Refused as error:
                self._tell(error)
                await asyncio.sleep(self._pace.after(error, 0))

    def _take(self, notice: object) -> None:
        self._heard += 1
        match notice:
            case Changed(stored):
                self._stored = stored
            case Deleted() | Muddled():  # what is not understood is written anew
                self._stored = None
            case Synced():
                self._synced = True
            case Cut():
                return  # what is known may be old; a write changes nothing that is right
        self._changes.touch()

    async def _write(self) -> None:
        failures = 0
        while True:
            await self._changes.wait()
            due = self._due()
            if due is None:
                continue
            heard = self._heard
            try:
                written = await self._reports.write(due[0], self._stored, due[1])
            except KubeError as error:
                self._tell(error)
                if isinstance(error, Conflict):
                    self._stored = None  # it is gone, and the watch is late
                await asyncio.sleep(self._pace.after(error, failures))
                failures += 1
                self._changes.touch()
                continue
            failures = 0
            if heard == self._heard:
                self._stored = written
            if self._notices.over("report"):
                log.info("node report written again", node=due[0].name)
            await asyncio.sleep(self._pace.spacing)

    def _due(self) -> tuple[NodeState, NodeReportStatus] | None:
        """What is to be written; None where the object says so already or is not known."""
        if self._node is None or self._report is None or not self._synced:
            return None
        stored = self._stored
        old = stored.status if stored else None
        status = report_status(old, self._report, moment(self._now()))
        if stored and status == old and is_owned(stored, self._node):
            return None
        return self._node, status

    def _tell(self, error: KubeError) -> None:
        for why in self._notices.news("report", str(error)):
            log.warning("node report not written", node=self._reports.node, why=why)
