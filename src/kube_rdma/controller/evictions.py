"""Evicts pods at the request of their agents, where only a new pod helps.

    agent: label and annotation on the pod ─► here, every few seconds ─ attach/rules/repair ─►
      eviction (a PodDisruptionBudget may say: not now) ─► Event

If agents evicted by themselves, the token of one node could end any pod of the cluster: admission
sees no node in an eviction. So only the controller evicts. Two controllers at a time do no harm.
Namespaces and owners of pods take turns, and a pod that replaces an evicted one waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import structlog

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.attach.cluster import Restarts, request_of
from kube_rdma.attach.rules.repair import AT_ONCE, EvictionTurns, evictable, turn
from kube_rdma.model.attach.attachment import RestartRequest
from kube_rdma.model.kubernetes import PodState

log = structlog.get_logger()

# The Event and the line of the log about an evicted pod, by whether its device nodes were outdated.
_SAID = {
    False: ("EvictedForNetworks", "pod evicted for missing networks"),
    True: ("EvictedForDeviceNodes", "pod evicted for outdated device nodes"),
}


class EvictionTiming(Frozen):
    """The seconds between two rounds of evictions, and the wall clock."""

    every: float = 10.0
    clock: Callable[[], float] = time.time


class Evictions:
    """The rounds in which one controller evicts pods, at the agents' request.

    The caller runs `events`.
    """

    def __init__(
        self, cluster: Cluster, events: Events, pace: EvictionTiming | None = None
    ) -> None:
        self._restarts, self._pods = Restarts(cluster), Pods(cluster)
        self._events = events
        self._pace = pace or EvictionTiming()
        self._turns, self._walls = EvictionTurns(), ObjectWalls("Pod")
        self._notices = Notices()

    async def run(self) -> None:
        """Run rounds of evictions until cancelled; wait while the API server does not answer."""
        while True:
            try:
                await self.round()
                self._notices.over("round")
            except KubeError as error:
                self._notices.warn(log, "evictions interrupted", "round", str(error))
            await asyncio.sleep(self._pace.every)

    async def round(self) -> int:
        """Evict as many pods as one round may; return how many.

        Raise KubeError if the pods cannot be listed.
        """
        now = self._pace.clock()
        pods = await self._restarts.pods()
        asked = [(pod, request) for pod in pods if (request := request_of(pod))]
        may = evictable(asked, now, self._turns)
        evicted = 0
        for _ in range(5 * AT_ONCE):
            if not may or evicted == AT_ONCE:
                break
            asks = min(may, key=lambda each: turn(each, self._turns))
            may.remove(asks)
            pod, request = asks
            about = About("Pod", pod.name, pod.namespace, pod.uid)
            gone = await self._walls.run(about, partial(self._evict, pod, request, about))
            evicted += gone
            self._turns = self._turns.tried(pod, now, evicted=gone)
        return evicted

    async def _evict(
        self, pod: PodState, request: RestartRequest, about: About, fault: str
    ) -> bool:
        """Evict a pod; return False if the API server refuses now.

        With a `fault` of handling the pod, only report that.
        """
        if fault:
            return self._events.failed(about, fault)
        try:
            await self._pods.evict(pod)
        except KubeError as error:
            self._notices.warn(log, "pod eviction failed", pod.uid, str(error), pod=str(about))
            return False
        note = f"The controller evicted the pod: {request.why}"
        reason, event = _SAID[request.outdated]
        self._events.tell(about, reason, note, warning=True)
        log.warning(event, pod=str(about), why=request.why)
        return True
