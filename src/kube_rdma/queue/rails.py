"""Answers the admission check kube-rdma.io/rails of Kueue's Workloads.

    watches: AdmissionChecks ─► the condition Active
    watches: Workloads, NodeReports, BandwidthChecks, pools ─► queue/rules ─► Ready or Retry

The leading copy of the controller runs it, and waits where there is no Kueue. While one of these
watches is interrupted, Workloads wait. Each write is refused if the Workload has changed since it
was judged, as Kueue's own controllers write (pkg/workload, PatchStatus).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.objects import Cluster
from kube_client.watching import Changed
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.ipam.cluster import IP_POOL_TEXT
from kube_rdma.lib.debounce import Debounce
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.kubernetes import condition, moment, observed
from kube_rdma.model.queue import PENDING, READY, RETRY, RailsWorld, WaitingWorkload
from kube_rdma.queue import cluster as objects
from kube_rdma.queue import rules
from kube_rdma.verify.cluster import BANDWIDTH_CHECK, last_measurement
from kube_rdma.verify.rules.suspects import suspected

log = structlog.get_logger()


class RailsChecks:
    """The part of the controller that answers admission checks of rails.

    The caller runs `events`. `namespace` is kube-rdma's own, whose BandwidthChecks count for all
    Workloads.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        namespace: str,
        changes: Debounce | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._events, self._namespace = cluster, events, namespace
        self._now, self._changes = now, changes or Debounce()
        mirror: Any = partial(Mirror, changed=self._changes.compare, heard=self._changes.touch)
        self._checks = mirror(objects.ADMISSION_CHECK, objects.rails_check, optional=True)
        self._workloads = mirror(objects.WORKLOAD, objects.waiting_workload)
        self._measured = mirror(BANDWIDTH_CHECK, last_measurement)
        self._facts = (
            mirror(NODE_REPORT, objects.judged_report),
            mirror(NODE, lambda stored: dict(stored.labels)),
            mirror(objects.RESOURCE_FLAVOR, lambda stored: stored.spec.get("nodeLabels", {})),
            mirror(IP_POOL_TEXT, objects.addresses_left),
        )
        self._networks = mirror(DEFINITION, objects.pool_of_network, optional=True)
        self._needed = (self._checks, self._workloads, self._measured, *self._facts)
        self._walls, self._notices = ObjectWalls(objects.WORKLOAD.kind), Notices()

    async def run(self) -> None:
        """Answer checks at every change until cancelled; wait for an absent API server or Kueue."""
        failures, others = 0, (*self._needed[1:], self._networks)
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, full_jitter, self._checks)
            while not self._checks.values:  # without such checks, no other watch
                await self._changes.wait()
            await follow_all(tasks, self._cluster, full_jitter, *others)
            while True:
                failures = 0 if await self.round() else failures + 1
                await self._changes.wait(full_jitter(failures) if failures else None)

    async def round(self) -> bool:
        """Answer each Workload that waits and can be judged; return False to be called again."""
        if any(mirror.trouble for mirror in self._needed):
            return True  # the end of the trouble calls it
        is_done, checks, now = True, dict(self._checks.values), self._now()
        # After all other checks: one may make nodes, and Kueue may choose nodes after all checks.
        waiting = [
            one
            for one in self._workloads.values.values()
            if any(each.state == PENDING and each.name in checks for each in one.checks)
            and all(each.state == READY or each.name in checks for each in one.checks)
        ]
        runs = self._measured.values.values() if waiting else ()
        reports, nodes, flavors, pools = (mirror.values for mirror in self._facts)
        of_addresses = (pools, self._networks.values)
        suspects = suspected(runs, now)
        world = RailsWorld(now, self._namespace, reports, nodes, flavors, *of_addresses, suspects)
        work = [(one, partial(self._activate, one)) for one in checks.values()]
        work += [(one, partial(self._answer, one, world)) for one in waiting]
        for one, do in work:
            await asyncio.sleep(0)  # thousands may wait, and others run between
            title = f"{one.namespace}/{one.name}".lstrip("/")
            try:
                is_done &= await self._walls.run((one.uid, one.version), do)
                self._notices.over(title)
            except Conflict:
                is_done = False  # the object was written since, as its watch shows
            except KubeError as error:
                self._notices.warn(log, "admission check not written", title, str(error), of=title)
                is_done = False
        return is_done

    async def _activate(self, check: objects.StoredCheck, why: str) -> bool:
        """Write the condition Active of an AdmissionCheck if it differs."""
        kind, before = objects.ADMISSION_CHECK, check.status.conditions if check.status else ()
        words = ("Active", "kube-rdma's controller answers the check")
        made = condition(before, moment(self._now()), "Active", True, words)
        (active,) = observed((made,), check.generation)
        if active not in before and not why:
            status = objects.CheckStatus((active,))
            await self._cluster.apply_status(kind, check.name, "", status, force=True)
        return not why

    async def _answer(self, job: WaitingWorkload, world: RailsWorld, why: str) -> bool:
        """Write the answer for a Workload; it stays pending after an earlier error `why`."""
        given = None if why else rules.answer(job, world)
        if given is None:
            return not why
        own = [each for each in job.checks if each.name in self._checks.values]
        status = objects.QueuedStatus(rules.entries(own, given, world.now))
        place = (objects.WORKLOAD, job.name, job.namespace, status)
        written = await self._cluster.apply_status(*place, force=True, version=job.version)
        self._workloads.take(Changed(written))
        state, message = given
        if state == RETRY:  # Kueue removes the message when it evicts the Workload
            about = About.of(objects.WORKLOAD, written)
            self._events.tell(about, "RailsNotWell", f"{message}.", warning=True)
        log.info("workload judged", workload=job.title, state=state, why=message)
        return True
