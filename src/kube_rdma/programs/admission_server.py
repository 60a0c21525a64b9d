"""The admission webhook: every copy of the controller answers the API server's questions.

    NodePolicies, IPPools (watched) ─► facts ─┐
    HTTPS (adapters/webhook) ─► programs/admission_review ─► HTTPS

The certificate is that of a mounted Secret. Facts that are not known now make rules silent, so an
API server that is away, or a kind that is not installed, refuses no pod.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from kube_rdma.adapters.cluster.ipam_objects import IP_POOL
from kube_rdma.adapters.cluster.kinds import Stored
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.policy_watch import NODE_POLICY, policy_of
from kube_rdma.adapters.webhook.identity import ServerIdentity
from kube_rdma.adapters.webhook.server import WebhookServer
from kube_rdma.api.admission_review import MOST_BYTES
from kube_rdma.model.admission import (
    USUAL,
    AdmissionFacts,
    AdmissionSettings,
    Completes,
    OfferedPool,
)
from kube_rdma.model.ip import PoolName
from kube_rdma.programs.admission_review import completed, validated
from kube_rdma.programs.mirror import Mirror

PORT = 9443
VALIDATE, COMPLETE = "/validate", "/complete"
CONFINED = "/complete-confined"  # where Pod Security would refuse a pod for its IPC_LOCK

log = structlog.get_logger()


def _later(_failures: int) -> float:
    """Where a kind is not installed, or may not be read."""
    return random.uniform(30.0, 60.0)  # noqa: S311  spreads load


class AdmissionServer:
    """The webhook with what it knows of the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        settings: AdmissionSettings = USUAL,
        pause: Callable[[int], float] = _later,
    ) -> None:
        """Raise Refused when the folder has no certificate that can be used."""
        self._cluster, self._settings, self._pause = cluster, settings, pause
        self._policies = Mirror(NODE_POLICY, policy_of)
        self._ip_pools = Mirror(IP_POOL, _name)
        identity = ServerIdentity(folder, partial(log.warning, "certificate not taken into use"))
        self._confined = replace(settings, never=(Completes.IPC_LOCK,))
        answers = {
            VALIDATE: self._validated,
            COMPLETE: self._completed,
            CONFINED: self._completed_confined,
        }
        self.server = WebhookServer(identity, answers, MOST_BYTES)

    async def run(self, host: str | None = None, port: int = PORT) -> None:
        """Answer until cancelled; without a host on every address."""
        await self.server.listen(host, port)
        log.info("admission served", port=self.server.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._policies.follow(self._cluster, self._pause))
                tasks.create_task(self._ip_pools.follow(self._cluster, self._pause))
        finally:
            await self.server.close()

    @property
    def facts(self) -> AdmissionFacts:
        """What is known now."""
        policies = self._policies.values.values()
        return AdmissionFacts(
            pools=tuple(OfferedPool(spec, one.selector) for one in policies for spec in one.pools),
            ip_pools=tuple(self._ip_pools.values.values()) if self._all_pools_known else None,
        )

    @property
    def _all_pools_known(self) -> bool:
        pools = self._ip_pools
        return pools.synced.is_set() and not pools.trouble and not pools.faults

    def _validated(self, body: bytes) -> bytes:
        return validated(body, self.facts, self._settings)

    def _completed(self, body: bytes) -> bytes:
        return completed(body, self._settings)

    def _completed_confined(self, body: bytes) -> bytes:
        return completed(body, self._confined)


def _name(stored: Stored[object, object]) -> PoolName:
    return PoolName(stored.name)
