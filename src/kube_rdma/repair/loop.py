"""Keeps the taints of nodes and cards as RepairPolicies want them.

    watches: RepairPolicies, Nodes, NodeReports, BandwidthChecks, ResourceSlices, DeviceTaintRules
      ─► rules.plan ─► a write for each node or card that differs, Events, the statuses of policies

The leading copy of the controller runs it. Taint, annotation and status hold all that it needs but
one: how long nodes have been well, which a new leader counts anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError
from kube_base.frozen import Frozen, field, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT, REPAIR_POLICY
from kube_rdma.adapters.cluster.kinds.resource_api import NAMED_SLICE, TAINT_RULE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.lib.debounce import Debounce
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.lib.phrases import listed
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.kubernetes import condition, cut, moment, observed, stalled
from kube_rdma.model.reports import NodeReportStatus, is_old
from kube_rdma.model.verify import RECENT
from kube_rdma.repair import cluster as objects
from kube_rdma.repair.burn_in import BurnIn
from kube_rdma.repair.rules import taints as rules
from kube_rdma.verify.cluster import last_measurement
from kube_rdma.verify.rules.suspects import suspected

_MOST_DEVICES = 1024  # of a node: its agent writes the slices
_NO_RULES = (
    "A bad card taints its node: this API server serves no DeviceTaintRules, as Kubernetes does "
    "from 1.37 on, or the role of the controller may not read them."
)

log = structlog.get_logger()


class RepairPace(Frozen):
    """The waits of the loop in seconds, and its clocks."""

    again: float = 60.0  # between two looks where nothing changes: reports and measurements age
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


class RepairLoop:
    """The part of the controller that carries out RepairPolicies; the caller runs `events`.

    `namespace` is kube-rdma's own: tenants may write BandwidthChecks in theirs.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        namespace: str,
        timing: RepairPace | None = None,
        changes: Debounce | None = None,
    ) -> None:
        self._cluster, self._events, self._namespace = cluster, events, namespace
        self._timing, self._changes = timing or RepairPace(), changes or Debounce()
        mirror: Any = partial(Mirror, changed=self._changes.compare, heard=self._changes.touch)
        self._policies = mirror(REPAIR_POLICY, objects.seen_repair)
        self._nodes = mirror(NODE, objects.repair_node)
        self._reports = mirror(NODE_REPORT, lambda stored: stored.status, changed=self._reported)
        self._checks = mirror(objects.CHECK, lambda stored: stored, where=Where(namespace))
        own = Where(fields=f"spec.driver={DRIVER}")
        self._slices = mirror(NAMED_SLICE, objects.named_devices, where=own, optional=True)
        self._rules = mirror(TAINT_RULE, objects.card_rule, optional=True)
        self._since: rules.Since = {}
        # By policy, until its status has them, the newest first.
        self._actions: defaultdict[str, list[model.RepairAction]] = defaultdict(list)
        self._walls, self._notices = ObjectWalls("RepairPolicy"), Notices()
        self._burn_in = BurnIn(cluster, events, namespace, self._done, self._nodes.take)

    def _reported(self, old: NodeReportStatus | None, new: NodeReportStatus | None) -> None:
        """Note a changed report; one that is only renewed, as all are, waits for the next look."""
        self._changes.compare(*(each and replace(each, renew_time="") for each in (old, new)))

    async def run(self) -> None:
        """Keep taints until cancelled; wait for an absent API server."""
        facts = (self._policies, self._nodes, self._reports, self._checks)
        mirrors = (*facts, self._slices, self._rules)
        failures = 0
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, full_jitter, *mirrors)
            while True:
                due = None
                troubled = [one for one in mirrors if one.trouble]  # its end calls look
                if all(one.refused and one.optional for one in troubled):
                    is_done, due = await self.look()
                    failures = 0 if is_done else failures + 1
                waits = [full_jitter(failures)] if failures else [self._timing.again]
                waits += [] if due is None else [max(0.0, due - self._timing.clock())]
                await self._changes.wait(min(waits))

    async def look(self) -> tuple[bool, float | None]:
        """Write what differs; return whether all was written, and when a node may be cleared."""
        now = self._timing.now()
        seen = self._policies.values
        reports = {
            name: report
            for name, report in self._reports.values.items()
            if report and not is_old(report.age(now))
        }
        checks = self._checks.values
        # Of a burn-in that check is soon gone, and with it what it suspects.
        lasting = (one for one in checks.values() if one.label(model.BURN_IN) is None)
        runs = tuple(filter(None, map(last_measurement, lasting)))
        suspects = suspected(runs, now).get(self._namespace, {})
        slow = {node: why for nodes, why in suspects.items() if len(nodes) == 1 for node in nodes}
        # A policy that is not understood keeps its taints, also if a newer controller wrote it.
        policies = tuple(one.policy for one in seen.values() if one.policy)
        unread = {name for name, one in seen.items() if not one.policy} | {*self._policies.faults}
        nodes = {
            name: node
            for name, node in self._nodes.values.items()
            if not (node.taint and node.taint.value in unread)
        }
        cards = defaultdict[str, dict[str, str]](dict)
        for run in runs:
            if now - run.at < RECENT:
                for node, whys in run.cards.items():
                    cards[node] |= whys
        uids = {policy.uid for policy in policies}
        own = tuple(
            rule
            for rule in self._rules.values.values()
            if rule.owner in uids and (rule.node in nodes or rule.node not in self._nodes.values)
        )
        world = rules.RepairWorld(policies, nodes, reports, slow, cards, self._devices(), own)
        planned = rules.plan(world, self._since, self._timing.clock())
        self._since = planned.well_since
        is_done = True
        at = moment(now)
        for change in planned.changes:
            is_done &= await self._walls.run(change, partial(self._write, change, at))
        pooled = {name for name, one in self._reports.values.items() if one and one.pooled}
        are_measured, new = await self._burn_in.look(seen, world, checks, frozenset(pooled), now)
        is_done &= are_measured
        for one in [*seen.values()]:
            entries = (*planned.entries.get(one.name, ()), *new.get(one.name, ()))
            tell = partial(self._report, one, entries, at)
            is_done &= await self._walls.run((one.uid, one.version), tell)
        return is_done, planned.due

    def _devices(self) -> Mapping[str, Collection[str]]:
        """Return the devices for claims by node; none where no DeviceTaintRule can be written."""
        found = defaultdict[str, list[str]](list)
        for node, names in () if self._has_no_rules else self._slices.values.values():
            found[node] += names[: _MOST_DEVICES - len(found[node])]
        return found

    @property
    def _has_no_rules(self) -> bool:
        return bool(self._slices.refused or self._rules.refused)

    async def _write(self, change: rules.TaintChange, now: str, fault: str) -> bool:
        """Write or remove a taint of a node or card, with an Event; return False to try again.

        With a `fault` of doing so, only report that.
        """
        about = About("Node", change.node, uid=change.node)  # as kubelets write it
        if fault:
            return self._events.failed(about, fault)
        mark = change.why if change.taint else None
        place, is_written = (change.node, model.KEY, change.taint, mark), bool(change.added)
        try:
            for rule in change.removed:
                is_written |= await objects.delete_rule(self._cluster, rule)
                self._rules.take(Deleted(rule.name, "", ""))
            for rule in change.added:
                made = await objects.create_rule(self._cluster, rule, change.why)
                self._rules.take(Changed(made))
            if not change.card and (written := await Nodes(self._cluster).set_taint(*place)):
                self._nodes.take(Changed(written))  # the budget counts it at once
                is_written = True
        except KubeError as error:
            if isinstance(error, Conflict) and error.lost is not Lost.EXISTS:
                return True  # somebody wrote or deleted it, as its watch shows
            self._notices.warn(log, "taint not written", change.node, str(error), node=change.node)
            return False
        self._notices.over(change.node)
        if is_written and (taint := change.taint or change.before):
            kind: model.ActionKind = "Tainted" if change.taint else "Cleared"
            said = f"{kind} {change.card} {taint.key}={taint.value}:{taint.effect}: {change.why}"
            note = " ".join(said.split())
            self._events.tell(about, f"Repair{kind}", note, warning=bool(change.taint))
            done = model.RepairAction(now, change.node, kind, change.why, change.card)
            self._done(taint.value, done)
            log.warning("taint written", node=model.place(done), action=kind, why=change.why)
        return True

    def _done(self, policy: str, action: model.RepairAction) -> None:
        """Keep an action until the policy's status has it."""
        self._actions[policy].insert(0, action)

    async def _report(
        self, seen: model.SeenRepair, entries: Iterable[model.RepairEntry], now: str, fault: str
    ) -> bool:
        """Write a policy's status if it differs, and an Event on nodes over the budget.

        With a `fault` of doing so, only report that.
        """
        about = objects.about(seen)
        if fault:
            return self._events.failed(about, fault)
        old, every = seen.status, tuple(entries)
        over = [one for one in every if one.state == "OverBudget"]
        if over and self._notices.news(("over", seen.name), " ".join(map(model.place, over))):
            names = listed([f"{model.place(one)} ({one.why})" for one in over])
            note = f"Bad, and without a taint because the budget is used up: {names}"
            self._events.tell(about, "RepairOverBudget", note, warning=True)
        if not over:
            self._notices.over(("over", seen.name))
        history = (*self._actions.get(seen.name, ()), *(old.history if old else ()))
        words = ("Refused", cut(seen.refusal)) if seen.refusal else ("Accepted", "it is understood")
        before = old.conditions if old else ()
        conditions = (
            condition(before, now, "Ready", not seen.refusal, words),
            *stalled(before, now, words if seen.refusal else None),
        )
        status = model.RepairPolicyStatus(
            seen.generation,
            rules.result(every),
            every[: model.MOST_ENTRIES],
            history[: model.MOST_ACTIONS],
            observed(conditions, seen.generation),
            _NO_RULES if self._has_no_rules and seen.policy and seen.policy.device_taint else "",
        )
        if status == old:
            return True
        try:
            await objects.write_status(self._cluster, seen, status)
        except Conflict:
            return True  # it is gone or another by now, as its watch shows
        except KubeError as error:
            self._notices.warn(log, "repair status not written", seen.name, str(error))
            return False
        self._actions.pop(seen.name, None)
        return True
