"""Writes into each NodePolicy what became of it on the nodes that it selects.

    watches: policies, nodes' labels, reports ─► wake ─► one look: rollup ─► status where it differs

The controller's leader runs it. It is level-triggered: each look computes all anew, and one at an
unchanged cluster writes nothing. Every agent watches the policies, so looks keep a distance: a
rollout over thousands of nodes is a few writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from kube_base.backoff import has_happened, rarely
from kube_base.errors import KubeError
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.lib.debounce import apart
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.pools import PolicyAtNode, PolicyRollup
from kube_rdma.reports.cluster import NODE_POLICY_STATUS, SeenPolicy, seen_policy, write_status
from kube_rdma.reports.node_policy_status import node_policy_status
from kube_rdma.reports.rules.policies import Labels, rollup

log = structlog.get_logger()


class PolicyStatusTiming(Frozen):
    """The seconds between two rounds of writing NodePolicy statuses."""

    apart: float = 5.0  # at least
    again: float = 10.0  # after a failure
    pause: Callable[[int], float] = field(default=rarely)


class PolicyStatuses:
    """The part of the controller that writes the statuses of NodePolicies."""

    def __init__(self, cluster: Cluster, timing: PolicyStatusTiming | None = None) -> None:
        self._cluster, self._timing = cluster, timing or PolicyStatusTiming()
        self._wake, self._edited = asyncio.Event(), asyncio.Event()
        self._policies = Mirror(NODE_POLICY_STATUS, seen_policy, self._policy_changed)
        self._nodes = Mirror(NODE, _labels, self._changed)
        self._reports = Mirror(NODE_REPORT, _reported, self._changed)
        self._notices, self._walls = Notices(), ObjectWalls("NodePolicy")
        self._written = 0  # statuses, by the last look

    async def run(self) -> None:
        """Write statuses after changes, until cancelled; wait for an absent API server."""
        mirrors: tuple[Mirror[Any], ...] = (self._policies, self._nodes, self._reports)
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, self._timing.pause, *mirrors)
            while True:
                self._wake.clear()
                self._edited.clear()
                trouble = any(mirror.trouble for mirror in mirrors)
                await self._sleep(well=not trouble and await self.look(datetime.now(UTC)))

    async def look(self, now: datetime) -> bool:
        """Write every policy status that has changed; return False if one is to be tried again."""
        self._written = 0
        policies = list(self._policies.values.values())
        keys = [(policy.name, policy.generation) for policy in policies]
        tells = [partial(self._tell, policy, moment(now)) for policy in policies]
        return all([await self._walls.run(*each) for each in zip(keys, tells, strict=True)])

    async def _tell(self, seen: SeenPolicy, now: str, fault: str) -> bool:
        """Write a policy's status if it has changed; return False if that is to be tried again."""
        rolled: PolicyRollup | str = fault or seen.refusal
        if seen.policy and not fault:
            rolled = rollup(seen.policy, self._nodes.values, self._reports.values)
        status = node_policy_status(seen.status, seen.generation, rolled, now)
        if status == seen.status:
            return True
        try:
            await write_status(self._cluster, seen, status)
            self._written += 1
        except Conflict:
            return True  # it is gone or another by now, which the watch tells
        except KubeError as error:
            self._notices.warn(
                log, "policy status not written", seen.name, str(error), policy=seen.name
            )
            return False
        self._notices.over(seen.name)
        return True

    @property
    def apart(self) -> float:
        """Return the least seconds between two rounds, which an edited policy cuts short."""
        return apart(self._timing.apart, self._written * len(self._reports.values))

    def _changed(self, old: object, new: object) -> None:
        if old != new:
            self._wake.set()

    def _policy_changed(self, old: SeenPolicy | None, new: SeenPolicy | None) -> None:
        self._changed(old, new)
        if new and (old is None or old.generation != new.generation):
            self._edited.set()  # whoever did waits for its status

    async def _sleep(self, *, well: bool) -> None:
        """Sleep for the least time, then until something changes or a retry is due."""
        await asyncio.sleep(self._timing.apart)
        await has_happened(self._edited, self.apart - self._timing.apart)
        await has_happened(self._wake, None if well else self._timing.again)


def _labels(stored: Stored[Any, Any]) -> Labels:
    return frozenset(stored.labels)


def _reported(stored: Stored[Any, Any]) -> tuple[PolicyAtNode, ...]:
    return stored.status.policies if stored.status else ()
