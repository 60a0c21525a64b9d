"""GPUs that drivers hand out by ResourceClaims: which are here, and which a starting pod will get.

    ResourceSlices of this node ─ watch ─► pools/rules/claimed_gpus ─┐
    pending pods ─► their claims ─► what was allocated ───────┴─► KubeletView.free_gpus

The kubelet names no pod when it asks for shares, but a pod whose claims are allocated and not yet
prepared is one that it may be asking for. Where the cluster has no such kind, or the agent may not
read it, nothing is known and nothing else fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import structlog

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_SLICE, node_slice
from kube_rdma.claims.cluster import devices_of, pending_pods
from kube_rdma.lib.mirror import Mirror
from kube_rdma.model.claims.device import ClaimedDevice, DeviceSlice
from kube_rdma.model.device import Gpu
from kube_rdma.pools.rules.claimed_gpus import ClaimGpus, claim_gpus, gpus_of, starting
from kube_rdma.reports.node_keeper import REFUSED_SECONDS

ANSWER_SECONDS = 1.0  # the kubelet waits meanwhile, with every pod behind this one

log = structlog.get_logger()


def _later(_failures: int) -> float:
    """A new kind or right comes rarely, and all nodes of a cluster would ask for it at once."""
    return random.uniform(REFUSED_SECONDS / 2, REFUSED_SECONDS)  # noqa: S311  spreads load


class ClaimedGpus:
    """Those of one node. `wait` is for tests."""

    def __init__(
        self, cluster: Cluster, node: str, *, wait: Callable[[int], float] = _later
    ) -> None:
        self._cluster, self._node = cluster, node
        self._pause = wait
        where = Where(fields=f"spec.nodeName={node}")
        self._slices = Mirror(RESOURCE_SLICE, node_slice, where=where, optional=True)
        self._notices = Notices()

    async def follow(self) -> None:
        """Watch the slices of this node, until cancelled."""
        await self._slices.follow(self._cluster, self._pause)

    def slices(self) -> tuple[DeviceSlice, ...]:
        """The slices of this node, of all drivers."""
        return tuple(self._slices.values.values())

    def here(self, surveyed: Sequence[Gpu]) -> ClaimGpus:
        """The GPUs of this node that drivers hand out by claims."""
        return claim_gpus(self.slices(), surveyed)

    async def expected(
        self, resource: str, held: Sequence[ClaimedDevice], gpus: ClaimGpus
    ) -> tuple[Gpu, ...]:
        """Those of the pods that may just be asking for `resource`; none where it is not known.

        Of several such pods it is all their GPUs: the kubelet does not tell which one asks.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                pods = starting(await pending_pods(self._cluster, self._node), resource, held)
                devices = [one for pod in pods for one in await devices_of(self._cluster, pod)]
        except (KubeError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            self._notices.warn(log, "claims of starting pods unknown", "claims", why)
            return ()
        self._notices.over("claims")
        return gpus_of(devices, gpus)
