"""Plans the rounds of gangs, and writes the verdict on each.

    watch of pods that ask ─► a gang is complete, and its nodes are free ─► plan for each pod ─►
      results ─► BandwidthCheck ─► verdict for each pod, Events

The leading copy of the controller runs it. All that a round depends on stands in its pods, so that
another copy goes on. A gang is looked at only when one of its pods changed, or at its deadline.
Gangs on one node take turns: they would measure each other.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_client.watching import Changed
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.lib.debounce import Debounce
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.lib.phrases import listed
from kube_rdma.model import preflight as model
from kube_rdma.model.preflight import PreflightPod as Pod
from kube_rdma.preflight import cluster as objects
from kube_rdma.preflight import rules
from kube_rdma.preflight.documents import plan_text, verdict_text
from kube_rdma.verify.bandwidth_check import begun, measured
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma.verify.views import verdict

MOST_EVENTS = 64  # pods of a gang that get an Event
MOST_NAMED = 4  # pods that a sentence names

_LATE = (
    "The pods of its gang run already, and a pod that comes later has nobody to measure with. "
    "Have the owner begin all of them again."
)

GangKey = tuple[str, str, str, str]
log = structlog.get_logger()


class RoundTiming(Frozen):
    """The waits of rounds in seconds, and the wall clock."""

    patience: float = 30.0  # before an Event says for whom a gang waits
    spare: float = 60.0  # of a round, beyond what its measurements may take
    keep: timedelta = timedelta(days=1)  # of results
    sweep: float = 60.0  # between two looks for results to delete
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


class PreflightRounds:
    """The controller's part that lets gangs measure; the caller runs `events`."""

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        timing: RoundTiming | None = None,
        changes: Debounce | None = None,
    ) -> None:
        self._cluster, self._events = cluster, events
        self._timing, self._changes = timing or RoundTiming(), changes or Debounce()
        heard = self._changes.touch
        self._pods = Mirror(objects.ASKING_POD, _asking, self._changed, objects.ASKING, heard=heard)
        self._places = Mirror(NODE_REPORT, objects.places_of, heard=heard)
        where = Where(labels=model.RESULT)
        self._results = Mirror(BANDWIDTH_CHECK, objects.kept_result, heard=heard, where=where)
        self._gangs: defaultdict[GangKey, set[str]] = defaultdict(set)  # titles of pods
        self._dirty: set[GangKey] = set()
        self._busy: defaultdict[str, set[GangKey]] = defaultdict(set)  # that measure on a node
        self._nodes: defaultdict[GangKey, set[str]] = defaultdict(set)  # nodes of such a gang
        self._held: defaultdict[str, set[GangKey]] = defaultdict(set)  # gangs that wait for a node
        self._deadlines: dict[GangKey, float] = {}  # of the event loop: when to look again
        # When a gang began to wait (""), or to measure in a round.
        self._since: defaultdict[GangKey, dict[str, float]] = defaultdict(dict)
        self._turns: dict[str, float] = {}  # when a gang of a namespace began
        self._swept = -math.inf  # when old results were looked for
        self._walls, self._notices = ObjectWalls("gang"), Notices()

    async def run(self) -> None:
        """Plan and judge rounds at every change until cancelled."""
        failures = 0
        async with asyncio.TaskGroup() as tasks:
            watched = (self._places, self._pods, self._results)
            await follow_all(tasks, self._cluster, full_jitter, *watched)
            while True:
                failures = 0 if await self.round() else failures + 1
                await self._changes.wait(self._pause(failures))

    async def round(self) -> bool:
        """Look at each gang that changed or is due; return False to be called again soon.

        All that measure are known before a gang begins: they hold their nodes.
        """
        if self._pods.trouble or self._places.trouble:
            return False
        now = asyncio.get_running_loop().time()
        due = {key for key, at in self._deadlines.items() if at <= now}
        looked, self._dirty = self._dirty | due, set()
        waiting: dict[GangKey, list[Pod]] = {}
        for key in sorted(looked):
            self._deadlines.pop(key, None)
            await self._contained(key, partial(self._judge, key, waiting, now))
        # Whose namespace has waited longest is first, so that none holds a node for ever.
        for key, pods in sorted(waiting.items(), key=lambda one: self._turns.get(one[0][0], 0.0)):
            await self._contained(key, partial(self._begin, key, pods, now))
        if now >= self._swept + self._timing.sweep:
            self._swept = now
            await self._sweep()
        return not self._dirty

    async def _contained(self, key: GangKey, work: Callable[[str], Awaitable[bool]]) -> None:
        """Do a part of a gang's look; note it for another look if that fails."""
        try:
            done = await self._walls.run(key, work)
        except KubeError as error:
            done = False
            self._notices.warn(log, "preflight interrupted", key, str(error), gang="/".join(key))
        else:
            self._notices.over(key)
        if not done:
            self._dirty.add(key)

    def _pause(self, failures: int) -> float | None:
        """Return the seconds until something is due; None if only a change can bring work."""
        if failures:
            return full_jitter(failures)
        now = asyncio.get_running_loop().time()
        waits = [max(0.0, at - now) for at in self._deadlines.values()]
        if oldest := min(self._results.values.values(), default=None):
            left = oldest + self._timing.keep - self._timing.now()
            waits.append(max(self._timing.sweep, left.total_seconds()))
        return min(waits, default=None)

    def _there(self, key: GangKey) -> list[Pod]:
        """Return the pods of a gang that have not ended, with the rails of their devices."""
        every = [self._pods.values[title] for title in sorted(self._gangs[key])]
        return rules.placed(
            [pod for pod in every if not (pod.is_over or pod.deleting)], self._places.values
        )

    async def _judge(
        self, key: GangKey, waiting: dict[GangKey, list[Pod]], now: float, fault: str
    ) -> bool:
        """Judge what a gang has measured; put its pods without a plan into `waiting`.

        With a `fault` of handling the gang, only report that.
        """
        pods = self._there(key)
        if fault:
            return all(self._events.failed(_about(pod), fault) for pod in pods[:1])
        rounds: defaultdict[str, list[Pod]] = defaultdict(list)
        late: list[Pod] = []
        for pod in pods:
            if pod.plan:
                rounds[pod.plan.round].append(pod)
            elif not pod.verdict and pod.gang is None:
                await self._decide([pod], _refusal(pod.refusal))
            elif not pod.verdict:
                late.append(pod)
        is_measuring = False
        for number, those in rounds.items():
            if any(not pod.verdict for pod in those):
                self._occupy(key, those)  # also while a write fails
                is_measuring |= await self._ended(key, number, those, late, now)
        if is_measuring:
            return True
        self._release(key)
        every = (pod.verdict for those in rounds.values() for pod in those)
        if late and any(one and one.well for one in every):
            await self._refuse_late(key, late, now)
        elif late:
            waiting[key] = late
        else:
            self._since[key].pop("", None)
        if not pods:  # nothing is to be remembered of it
            for of_gang in (self._gangs, self._since):
                of_gang.pop(key, None)
            self._notices.over(("waits", key))
        return True

    async def _refuse_late(self, key: GangKey, pods: Sequence[Pod], now: float) -> None:
        """Refuse pods of a gang that runs, if it still does after a while.

        A LeaderWorkerSet may make a leader before the workers of the one before are being deleted.
        """
        over = self._since[key].setdefault("", now) + self._timing.patience
        if now < over:
            self._deadlines[key] = over
            return
        await self._decide(pods, _refusal(_LATE))
        self._since[key].pop("", None)

    def _occupy(self, key: GangKey, pods: Iterable[Pod]) -> None:
        """Note that a gang measures on the nodes of its pods."""
        for pod in pods:
            self._nodes[key].add(pod.node)
            self._busy[pod.node].add(key)

    def _release(self, key: GangKey) -> None:
        """Let those look again that wait for a node of a gang, which does not measure."""
        for node in self._nodes.pop(key, ()):
            self._busy[node].discard(key)
            if not self._busy[node]:
                del self._busy[node]
                self._dirty |= self._held.pop(node, set())

    async def _begin(self, key: GangKey, waiting: Sequence[Pod], now: float, fault: str) -> bool:
        """Give the pods of a gang their plans if all are there, else say for whom it waits."""
        if fault:
            return all(self._events.failed(_about(pod), fault) for pod in waiting[:1])
        gang = next(pod.gang for pod in waiting if pod.gang)
        standard = next(pod.standard for pod in waiting if pod.standard)
        ready = [pod for pod in waiting if pod.is_measuring and pod.address and pod.devices]
        if not ready:
            self._waits(key, _missing(waiting, ready, len(waiting)), waiting, now)
            return True
        try:
            spec = None if gang.size else await objects.owner_spec(self._cluster, gang)
        except Refused as error:  # by the API server: an owner that is gone, a missing right
            self._waits(key, str(error), waiting, now)
            return True
        try:
            size = gang.size or rules.size_by_owner(gang.kind, spec or {})
            if len(ready) < size:
                self._waits(key, _missing(waiting, ready, size), waiting, now)
                return True
            if node := min((pod.node for pod in ready if self._busy.get(pod.node)), default=""):
                self._held[node].add(key)
                namespace, kind, name, _ = min(self._busy[node])
                # Another tenant's gang has no name here.
                other = f"{kind} {name}" if namespace == gang.namespace else "another gang"
                self._waits(key, f"{other} measures on node {node}", waiting, now)
                return True
            planned = rules.plans(ready, standard)
        except Refused as error:
            await self._decide(waiting, _refusal(str(error)))
            return True
        self._since[key].pop("", None)
        self._notices.over(("waits", key))
        self._turns[key[0]] = now
        self._occupy(key, ready)
        texts = {uid: plan_text(plan) for uid, plan in planned.items()}
        await self._write(ready, model.PLAN, texts)
        return True

    async def _ended(
        self, key: GangKey, number: str, pods: Sequence[Pod], late: list[Pod], now: float
    ) -> bool:
        """Judge a round whose pods have all measured; return whether it goes on.

        `late` loses those that a killed controller has left without the plan of this round.
        """
        plans = [pod.plan for pod in pods if pod.plan]
        count, standard = plans[0].pods, next((pod.standard for pod in pods if pod.standard), None)
        began = self._since[key].setdefault(number, now)
        ends = began + _longest(plans) + self._timing.spare
        said = (pod.verdict for pod in pods)
        decided = next((one for one in said if one and one.round == number), None)
        is_over = decided or now >= ends or all(pod.result is not None for pod in pods)
        left = [pod for pod in late if pod.devices and pod.address]
        if standard and left and not is_over and len(pods) + len(left) >= count:
            with suppress(Refused):
                again = rules.plans([*pods, *left], standard)
                if again[left[0].uid].round == number:
                    texts = {pod.uid: plan_text(again[pod.uid]) for pod in left}
                    await self._write(left, model.PLAN, texts)
                    late[:] = [pod for pod in late if pod not in left]
        if not is_over:
            self._deadlines[key] = ends
            return True
        gang = pods[0].gang
        if decided is None and standard and gang:
            decided = await self._verdict(gang, number, pods, count, standard)
        if decided:
            await self._decide([pod for pod in pods if not pod.verdict], decided)
        self._since[key].pop(number, None)
        return False

    async def _verdict(
        self,
        gang: model.Gang,
        number: str,
        pods: Sequence[Pod],
        count: int,
        standard: model.Standard,
    ) -> model.GangVerdict:
        """Return the verdict on a round, after its result was written as a BandwidthCheck."""
        if count == 1:
            return model.GangVerdict(number, True, "The gang has one pod, and no pair to measure.")
        proofs, now = rules.proofs(pods, count, standard), self._timing.now()
        shown = next((one for one in proofs if not one.is_well), proofs[0])
        sentence = verdict(shown)
        try:
            status = measured(begun(None, 1, now), shown, sentence, now)
            await objects.put_result(self._cluster, gang, status)
        except Refused as error:  # a quota, for example; the verdict does not depend on it
            log.warning("preflight result not written", gang=gang.words, error=str(error))
        log.info("preflight done", gang=gang.words, well=shown.is_well, result=sentence)
        return model.GangVerdict(number, shown.is_well, sentence)

    async def _decide(self, pods: Sequence[Pod], decided: model.GangVerdict) -> None:
        """Write a verdict into pods, and an Event on a bad one."""
        text = verdict_text(decided)
        await self._write(pods, model.VERDICT, {pod.uid: text for pod in pods})
        if not decided.well:
            for pod in pods[:MOST_EVENTS]:
                self._events.tell(_about(pod), "PreflightFailed", decided.why, warning=True)

    async def _write(self, pods: Sequence[Pod], key: str, texts: Mapping[str, str]) -> None:
        """Write an annotation into pods; one that is gone, or has no room for it, is left out."""
        for pod in pods:
            try:
                stored = await objects.annotate(self._cluster, pod, key, texts[pod.uid])
            except Conflict:
                continue
            except Refused as error:
                log.warning("preflight not written", pod=pod.title, key=key, error=str(error))
                continue
            self._pods.take(Changed(stored))

    def _waits(self, key: GangKey, why: str, pods: Sequence[Pod], now: float) -> None:
        """Say in Events for whom a gang waits, once it has waited for a while, and look again."""
        since = self._since[key].setdefault("", now)
        if now >= since + self._timing.patience:
            self._since[key][""] = now
            if self._notices.news(("waits", key), why):
                sentence = f"Preflight waits: {why}."
                for pod in pods[:MOST_NAMED]:
                    self._events.tell(_about(pod), "PreflightWaiting", sentence, warning=True)
        self._deadlines[key] = self._since[key][""] + max(self._timing.patience, 1.0)

    async def _sweep(self) -> None:
        """Delete results that are older than a day."""
        old = self._timing.now() - self._timing.keep
        for title in [title for title, at in self._results.values.items() if at < old]:
            try:
                await objects.drop_result(self._cluster, *title.split("/"))
            except KubeError as error:
                self._notices.warn(log, "preflight result not deleted", title, str(error))

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if old == new:
            return
        for pod in (old, new):
            if pod:
                key = pod.gang.key if pod.gang else (pod.namespace, "Pod", pod.name, "")
                if pod is old:
                    self._gangs[key].discard(pod.title)
                else:
                    self._gangs[key].add(pod.title)
                self._dirty.add(key)
        self._changes.touch()


def _asking(stored: Stored[objects.AskingSpec, objects.AskingStatus]) -> Pod | None:
    """Return a pod with its gang, or with why it has none; None if it asks for nothing."""
    pod = objects.asking_pod(stored)
    return rules.asked(pod) if pod else None


def _refusal(why: str) -> model.GangVerdict:
    """Return the verdict on pods that no round can measure."""
    return model.GangVerdict("0" * 16, False, why)


def _about(pod: Pod) -> About:
    return About("Pod", pod.name, pod.namespace, pod.uid)


def _missing(waiting: Sequence[Pod], ready: Collection[Pod], size: int) -> str:
    """Return for whom a gang waits, as the end of a sentence."""
    lacking = [pod for pod in waiting if pod not in ready]
    reasons = [f"{pod.name} {_lacks(pod)}" for pod in lacking[:MOST_NAMED]]
    absent = size - len(waiting)
    if absent > 0:
        reasons.append(f"{absent} {'is' if absent == 1 else 'are'} not there")
    return f"{len(ready)} of {size} pods can measure; {listed(reasons)}"


def _lacks(pod: Pod) -> str:
    if pod.pending:
        return f"has no node ({pod.pending})"
    if not pod.is_measuring:
        return f"has not started its container {model.MEASURES}"
    return "has no address" if not pod.address else f"awaits the NodeReport of {pod.node}"


def _longest(plans: Sequence[model.GangPlan]) -> float:
    """Return the seconds that a round may take, also by a plan that somebody else wrote."""
    runs = [run for plan in plans for run in plan.runs]
    turns = 1 + max((run.turn for run in runs), default=-1)
    return rules.HEAD_START + min(turns * rules.window(runs), rules.LONGEST)
