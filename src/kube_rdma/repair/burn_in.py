"""Has new nodes measured as RepairPolicies ask, and removes their taint when they are well.

    what repair/loop watches ─► rules/burn_in ─► a BandwidthCheck for each policy, which
      verify/bandwidth_checks does ─► receipts in NodeReports, taints, Events

repair/loop calls it at each look. Only who takes no part for a while is in memory; without it a
new leader measures once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.objects import Cluster
from kube_client.watching import Changed
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import moment
from kube_rdma.repair import cluster as objects
from kube_rdma.repair.rules import burn_in as rules
from kube_rdma.repair.rules.taints import RepairWorld

log = structlog.get_logger()

_ASIDE = timedelta(minutes=10)
Done = Callable[[str, model.RepairAction], None]
Checks = Mapping[str, objects.StoredCheck]


class BurnIn:
    """The measurement of new nodes.

    `done` is called with a policy's name for each action, `shown` with a node that was written.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        namespace: str,
        done: Done,
        shown: Callable[[Changed[Any, Any]], None],
    ) -> None:
        self._cluster, self._events, self._namespace = cluster, events, namespace
        self._done, self._shown = done, shown
        self._aside: dict[str, tuple[datetime, str]] = {}  # by node: until when, and why
        self._walls, self._notices = ObjectWalls("RepairPolicy"), Notices()

    async def look(
        self,
        policies: Mapping[str, model.SeenRepair],
        seen: RepairWorld,
        checks: Checks,
        reporting: frozenset[str],
        now: datetime,
    ) -> tuple[bool, Mapping[str, tuple[model.RepairEntry, ...]]]:
        """Do what is due; return whether it was done, and the new nodes of each policy.

        `checks` are those of kube-rdma's own namespace. `reporting` are the nodes whose reports
        have cards of pools, old reports too.
        """
        self._aside = {name: one for name, one in self._aside.items() if one[0] > now}
        aside = {name: why for name, (_, why) in self._aside.items()}
        entries, is_done = dict[str, tuple[model.RepairEntry, ...]](), True
        taken = set[str]()  # new nodes of policies before: of several the first has them
        for policy in sorted(seen.policies, key=lambda one: one.name):
            check = checks.get(objects.check_name(policy.name))
            current = objects.burn_in_round(check, policy.name) if check else None
            if not (policy.burn_in or current):
                continue
            asked = policy.burn_in or model.BurnInSpec("")
            free = {name: node for name, node in seen.nodes.items() if name not in taken}
            nodes = {n: node for n, node in free.items() if policy.burn_in and policy.selects(node)}
            spec = objects.spec_of_rounds(checks.get(asked.check)) if current or not check else {}
            facts = (nodes, seen.reports, spec, current, now, reporting, seen.slow, aside)
            world = rules.BurnInWorld(policy, asked, *facts)
            taken |= {name for name, node in nodes.items() if node.is_new and world.acts}
            entries[policy.name] = tuple(rules.entries(world))
            act = partial(self._act, policies[policy.name], world, check)
            is_done &= await self._walls.run(policies[policy.name].uid, act)
        return is_done, entries

    async def _act(
        self,
        seen: model.SeenRepair,
        world: rules.BurnInWorld,
        check: objects.StoredCheck | None,
        fault: str,
    ) -> bool:
        """Do what is due for a policy; return False to try again.

        With a `fault` of doing so, only report that.
        """
        about = objects.about(seen)
        if fault:
            return self._events.failed(about, fault)
        step, is_done = rules.step(world), True
        said = step.said
        if world.acts and not world.spec:
            title = f"BandwidthCheck {self._namespace}/{world.burn_in.check}"
            said = f"There is no {title} with a template: create it, or name another"
            if check and not world.current:
                said = f"{check.name} is not of this policy: delete it, or rename the policy"
        try:
            # The marks of nodes come before the deletion of the check that says what they are.
            await self._mark(world, step)
            if step.ends and check:
                await self._cluster.delete(objects.CHECK, check, unchanged=False)
            if step.begin:
                spec = {**world.spec, "nodes": step.begin}
                place = (self._cluster, self._namespace, seen)
                await objects.begin_round(*place, spec, step.partners)
        except Conflict:
            is_done = False  # somebody wrote or deleted an object, as its watch will show
        except KubeError as error:
            said, is_done = str(error), False
        if said and self._notices.news(("said", seen.name), said):
            self._events.tell(about, "BurnInNotMeasured", said, warning=True)
            log.warning("new nodes not measured", policy=seen.name, why=said)
        return is_done

    async def _mark(self, world: rules.BurnInWorld, step: rules.BurnInStep) -> None:
        """Write what a round says about nodes; note who takes no part in the next ones."""
        now, policy = world.now, world.policy.name
        for node, receipt in step.passed.items():
            await objects.write_receipt(self._cluster, node, receipt)
            if written := await Nodes(self._cluster).set_taint(node, model.BURN_IN, None, None):
                self._shown(Changed(written))
                said = f"{receipt.result} {receipt.remark}".strip()
                self._tell(policy, model.RepairAction(moment(now), node, "BurnInPassed", said))
            self._notices.over(("said", policy))
        for node, why in step.failed.items():
            mark = ((model.BURN_IN, f"{moment(now)} {why}"),)
            self._shown(Changed(await self._cluster.patch(NODE, node, annotations=mark)))
            self._tell(policy, model.RepairAction(moment(now), node, "BurnInFailed", why))
        for node, why in step.aside.items():
            self._aside[node] = now + _ASIDE, f"it is left out until {moment(now + _ASIDE)}: {why}"
            self._events.tell(About("Node", node, uid=node), "BurnInLeftOut", why, warning=True)

    def _tell(self, policy: str, done: model.RepairAction) -> None:
        """Report what became of a new node: an Event, a line of the log, the policy's history."""
        about, is_bad = About("Node", done.node, uid=done.node), done.action == "BurnInFailed"
        self._events.tell(about, done.action, done.why, warning=is_bad)
        self._done(policy, done)
        log.warning("node measured", node=done.node, action=done.action, why=done.why)
