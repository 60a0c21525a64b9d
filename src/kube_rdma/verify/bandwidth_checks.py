"""Runs the BandwidthChecks of a cluster: one of each namespace at a time, and namespaces in turn.

    watch ─► which is due first (verify/rules/pairs) ─► status: Measuring ─► as `kube-rdma verify`
      ─► status with figures, Event

Two checks at once would slow each other, so one measures at a time. After the pairs of one turn
(verify/pairs) a check of the next namespace goes on, so a big check does not hold up the others.

The controller's leader runs this. In a namespace it has the rights that an administrator there
bound to it; without a right a check says so and is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from kube_base.backoff import has_happened, rarely
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen, field, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.pod_commands import PodCommands
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.lib.turns import served
from kube_rdma.model.preflight import RESULT
from kube_rdma.model.verify import BandwidthCheckStatus, BandwidthPlan, Pairing, PairProof
from kube_rdma.verify import pairs
from kube_rdma.verify.bandwidth_check import begun, measured, not_measured
from kube_rdma.verify.claimed_cards import cards_or_why
from kube_rdma.verify.cluster import (
    BANDWIDTH_CHECK,
    SeenCheck,
    VerifyObjects,
    seen_check,
    write_status,
)
from kube_rdma.verify.rules.copies import CHECK_LABEL
from kube_rdma.verify.rules.pairs import due
from kube_rdma.verify.views import verdict

log = structlog.get_logger()

_NOBODY = "no pod took part"
AT_ONCE = 4  # namespaces whose checks are under way; each has its figures in memory


class CheckTiming(Frozen):
    """The waits and the clock of BandwidthChecks, and the limits of their runs."""

    again: float = 10.0  # seconds until the next look after the API server took no status
    pause: Callable[[int], float] = field(default=rarely)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    pacing: pairs.Pacing = pairs.Pacing()  # of every run; whose turn it is, is decided here


class _TooMany(Refused):
    """The error that a check needs more measurements than its maxPairs allows."""

    def __init__(self, seen: SeenCheck, most: int, pods: int, wanted: int) -> None:
        super().__init__(
            f"its {pods} pods need {wanted} measurements, and maxPairs allows {most}",
            remedy="Choose fewer pods or nodes, or raise maxPairs",
            where=f"BandwidthCheck {seen.title}",
        )


class _Excess(Frozen):
    """The record that a check needs too many measurements, with its numbers of nodes and pods."""

    generation: int
    nodes: int
    pods: int
    wanted: int


class _RunningCheck(Frozen):
    """A measurement that runs in a namespace now, with the check that it is for."""

    title: str
    generation: int
    task: asyncio.Task[BandwidthCheckStatus]


class BandwidthChecks:
    """The controller's part that runs BandwidthChecks of all namespaces.

    The caller runs `events`.
    """

    def __init__(self, cluster: Cluster, events: Events, timing: CheckTiming | None = None) -> None:
        self._cluster, self._events = cluster, events
        self._timing = timing or CheckTiming()
        self._commands, self._objects = PodCommands(cluster), VerifyObjects(cluster)
        # Checks that a preflight wrote have their figures.
        where = Where(labels=f"!{RESULT}")
        self._checks = Mirror(BANDWIDTH_CHECK, seen_check, self._changed, where)
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # who waits longest is next
        self._busy: dict[str, _RunningCheck | None] = {}  # by namespace
        self._served: dict[str, datetime] = {}  # when a namespace's last check began
        self._not_before: dict[str, datetime] = {}  # by title: its status could not be written
        self._too_many: dict[str, _Excess] = {}  # by uid: no copies are made to find it again
        self._notices, self._walls = Notices(), ObjectWalls(BANDWIDTH_CHECK.kind, lambda _: 0.0)

    async def run(self) -> None:
        """Run each check when it is due, until cancelled; wait for an absent API server."""
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, self._timing.pause, self._checks)
            while True:
                self._wake.clear()
                at, seen = self._next(now := self._timing.now())
                if at is None or seen is None:
                    await self._wake.wait()
                elif at > now:
                    await has_happened(self._wake, (at - now).total_seconds())
                else:
                    self._busy[seen.namespace] = None
                    self._served = served(self._served, seen.namespace, now)
                    tasks.create_task(self._do(seen, now))

    async def _do(self, seen: SeenCheck, now: datetime) -> None:
        """Run one check of a namespace, then let the namespace's next one begin."""
        try:
            done = partial(self._done, seen, begun(seen.status, seen.generation, now))
            if await self._walls.run((seen.uid, seen.generation), done):
                self._not_before.pop(seen.title, None)
            else:  # others have their turn meanwhile
                self._not_before[seen.title] = now + timedelta(seconds=self._timing.again)
        finally:
            del self._busy[seen.namespace]
            kept = {each.uid for each in self._checks.values.values()}
            titles = {each.title for each in self._checks.values.values()}
            self._not_before = {k: at for k, at in self._not_before.items() if k in titles}
            self._too_many = {uid: excess for uid, excess in self._too_many.items() if uid in kept}
            self._wake.set()

    def _next(self, now: datetime) -> tuple[datetime, SeenCheck] | tuple[None, None]:
        """Return the next check and its time, which may be in the future.

        Return None for both if there is none, or if AT_ONCE namespaces are under way. Among due
        checks the one whose namespace was served longest ago comes first.
        """
        if len(self._busy) >= AT_ONCE:
            return None, None
        times = []
        for seen in self._checks.values.values():
            history = seen.status.history if seen.status else None
            at = due(seen.generation, seen.plan.every if seen.plan else None, history, now)
            if at is not None and seen.namespace not in self._busy:
                times.append((max(at, self._not_before.get(seen.title, at)), seen))
        ready = [entry for entry in times if entry[0] <= now]
        return min(ready or times, key=self._rank, default=(None, None))

    def _rank(self, entry: tuple[datetime, SeenCheck]) -> tuple[datetime, datetime]:
        at, seen = entry
        last = self._served.get(seen.namespace, datetime.min.replace(tzinfo=UTC))
        return (last, at) if at <= self._timing.now() else (at, last)

    async def _done(self, seen: SeenCheck, status: BandwidthCheckStatus, why: str) -> bool:
        """Run a check, or refuse it with `why`; write its status, then an Event.

        Return False if a status is not written, else once the watch shows it. Then
        verify/rules/pairs decides when the check runs again.
        """
        ended: BandwidthCheckStatus | None = not_measured(status, why, self._timing.now())
        if not why:
            if not await self._written(seen, status):
                return False
            ended = await self._ended(seen, status)
        if ended is None:
            return True  # it was changed or deleted meanwhile
        if not await self._written(seen, ended):
            return False
        kind, version = BANDWIDTH_CHECK.kind, BANDWIDTH_CHECK.api_version
        about = About(kind, seen.name, seen.namespace, seen.uid, version)
        well = ended.state == "Well"
        self._events.tell(about, f"Bandwidth{ended.state}", ended.result, warning=not well)
        log.info("bandwidth check done", check=seen.title, state=ended.state, result=ended.result)
        # Wait until the watch shows the status, or the check would be done once more.
        while True:
            self._wake.clear()
            shown = self._checks.values.get(seen.title)
            if shown is None or (shown.uid, shown.generation) != (seen.uid, seen.generation):
                break  # it is gone, or another check by now
            if shown.status and shown.status.completion_time == ended.completion_time:
                break
            await self._wake.wait()
        self._wake.set()
        return True

    async def _written(self, seen: SeenCheck, status: BandwidthCheckStatus) -> bool:
        try:
            await write_status(self._cluster, seen, status)
        except Conflict:
            return False  # it is gone, as the watch will tell
        except KubeError as error:
            self._notices.warn(
                log, "bandwidth check not told", seen.title, str(error), check=seen.title
            )
            return False
        self._notices.over(seen.title)
        return True

    async def _ended(
        self, seen: SeenCheck, status: BandwidthCheckStatus
    ) -> BandwidthCheckStatus | None:
        """Measure until a run ends; return None if its check was changed or deleted meanwhile."""
        task = asyncio.create_task(self._measured(seen, status))
        self._busy[seen.namespace] = _RunningCheck(seen.title, seen.generation, task)
        try:
            await asyncio.wait((task,))
            return None if task.cancelled() else task.result()
        finally:
            self._busy[seen.namespace] = None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _measured(
        self, seen: SeenCheck, status: BandwidthCheckStatus
    ) -> BandwidthCheckStatus:
        if seen.plan is None:
            return not_measured(status, seen.refusal, self._timing.now(), refused=True)
        try:
            proof = await self._proof(seen, seen.plan)
        except KubeError as error:
            # Nodes that are named stay as many; of pods and of all nodes there may be fewer later.
            refused = isinstance(error, _TooMany) and bool(seen.plan.nodes)
            return not_measured(status, str(error), self._timing.now(), refused=refused)
        if not proof.rated:
            why = "; ".join(f"{name}: {why}" for name, why in proof.left_out) or _NOBODY
            why = f"{why}. {proof.remark}" if proof.remark else why
            return not_measured(status, why, self._timing.now())
        result = f"{verdict(proof)} {proof.remark}".strip()
        return measured(status, proof, result, self._timing.now())

    async def _proof(self, seen: SeenCheck, plan: BandwidthPlan) -> PairProof:
        """Measure as `kube-rdma verify pods` does; with a template as `kube-rdma verify nodes`.

        Copies that an earlier run left are deleted first.
        """
        pacing = replace(self._timing.pacing, turn=lambda: self._turn, run_seconds=plan.run_seconds)
        measuring = pairs.BandwidthProof(self._commands, plan.run, pacing, brief=True)
        old = seen.status if plan.against_last else None
        before = old.figures_of(seen.generation) if old else {}
        async with AsyncExitStack() as stack:
            if plan.template is None:
                pods_there = await self._objects.pods(seen.namespace, selector=plan.selector)
                taking = pairs.Copies(tuple(pods_there))
            else:
                # Copies of a run whose controller was killed.
                await self._objects.delete(seen.namespace, f"{CHECK_LABEL}={seen.name}")
                asked = pairs.copies(self._objects, self._copies(seen, plan))
                taking = await stack.enter_async_context(asked)
            cards, remark = await cards_or_why(self._cluster, taking.pods)
            pods, silent = await measuring.all_probed(taking.pods, taking.left_out, cards)
            if plan.pairing is Pairing.STAR and plan.nodes:
                pods = list(pairs.with_centre_first(pods, plan.nodes[0], silent))
            run = pairs.PairedRun(pods, plan.pairing, both_ways=plan.both_ways)
            if (wanted := run.due) > plan.most_pairs:
                if plan.template is not None:
                    nodes = len(taking.pods) + len(taking.left_out) - taking.excused
                    self._too_many[seen.uid] = _Excess(seen.generation, nodes, len(pods), wanted)
                raise _TooMany(seen, plan.most_pairs, len(pods), wanted)
            await run.measure(measuring, lambda _: None, plan.standard, before)
        proof = await asyncio.to_thread(  # the Lease is renewed meanwhile
            measuring.proof, measuring.outcomes, plan.standard, silent, before, due=run.due
        )
        remark = " ".join(filter(None, (remark, taking.remark)))
        return replace(proof, excused=taking.excused, pairing=plan.pairing, remark=remark)

    def _copies(self, seen: SeenCheck, plan: BandwidthPlan) -> pairs.CopyRequest:
        """Return a request for pod copies that the check owns, so that they are deleted with it."""
        assert plan.template is not None
        excess = self._too_many.get(seen.uid)

        def admit(nodes: int) -> None:
            """Raise _TooMany if an earlier run on no more nodes needed too many measurements."""
            if excess and excess.generation == seen.generation and nodes >= excess.nodes:
                raise _TooMany(seen, plan.most_pairs, excess.pods, excess.wanted)

        where = f"BandwidthCheck {seen.title}: spec.template"
        place = (seen.namespace, plan.nodes, plan.start_seconds)
        owner = (BANDWIDTH_CHECK.api_version, BANDWIDTH_CHECK.kind, seen.name, seen.uid)
        return pairs.CopyRequest(plan.template, where, *place, owner=owner, admit=admit)

    def _changed(self, old: SeenCheck | None, new: SeenCheck | None) -> None:
        """Cancel a check's run if the check was changed or deleted."""
        self._wake.set()
        seen = new or old
        running = self._busy.get(seen.namespace) if seen else None
        if seen and running and seen.title == running.title:
            generation = new.generation if new else None
            if generation != running.generation:
                running.task.cancel()
