"""The controller's evictions: pods that only a new one helps, whose agents ask for a restart.

    agent: label and annotation on the pod ─► here, every few seconds ─ rules/attach/restarts ─►
      eviction (a PodDisruptionBudget may say: not now) ─► Event

A token of a node could end any pod of the cluster if agents evicted by themselves: admission sees
no node in an eviction. So it is one pod of the cluster that may. Two at a time do no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.pods import Pods
from kube_rdma.adapters.cluster.restarts import Restarts, request_of
from kube_rdma.rules.attach.restarts import AT_ONCE, evictable

log = structlog.get_logger()

# What is said of an evicted pod, by whether its device nodes were outdated: Event, line in the log.
_SAID = {
    False: ("EvictedForNetworks", "pod evicted for missing networks"),
    True: ("EvictedForDeviceNodes", "pod evicted for outdated device nodes"),
}


class EvictionTiming(Frozen):
    """Seconds between two rounds; `clock` is the wall clock, as agents write its time."""

    every: float = 10.0
    clock: Callable[[], float] = time.time


class Evictions:
    """The rounds of one controller; `events` is run by who made it."""

    def __init__(
        self, cluster: Cluster, events: Events, pace: EvictionTiming | None = None
    ) -> None:
        self._restarts, self._pods = Restarts(cluster), Pods(cluster)
        self._events = events
        self._pace = pace or EvictionTiming()
        self._tried: dict[str, float] = {}  # by the pod's uid
        self._notices = Notices()

    async def run(self) -> None:
        """Rounds, until cancelled; an API server that is away is waited for."""
        while True:
            try:
                await self.round()
                self._notices.over("round")
            except KubeError as error:
                for why in self._notices.news("round", str(error)):
                    log.warning("evictions interrupted", why=why)
            await asyncio.sleep(self._pace.every)

    async def round(self) -> int:
        """Evict as many as one round may; how many. Raise KubeError when pods are not told."""
        now = self._pace.clock()
        pods = await self._restarts.pods()
        asked = [(pod, request) for pod in pods if (request := request_of(pod))]
        self._tried = {pod.uid: self._tried[pod.uid] for pod in pods if pod.uid in self._tried}
        evicted = 0
        for pod, request in evictable(asked, now, self._tried)[: 5 * AT_ONCE]:
            if evicted == AT_ONCE:
                break
            self._tried[pod.uid] = now
            name = f"{pod.namespace}/{pod.name}"
            try:
                await self._pods.evict(pod)
            except KubeError as error:
                for why in self._notices.news(pod.uid, str(error)):
                    log.warning("pod eviction failed", pod=name, why=why)
                continue
            evicted += 1
            about = About("Pod", pod.name, pod.namespace, pod.uid)
            note = f"The controller evicted the pod: {request.why}"
            reason, event = _SAID[request.outdated]
            self._events.tell(about, reason, note, warning=True)
            log.warning(event, pod=name, why=request.why)
        return evicted
