"""The admission webhook: every copy of the controller answers the API server's questions.

    NodePolicies, IPPools, networks (watched) ─► facts ─┐
              HTTPS (adapters/webhook) ─► programs/admission/review ─► HTTPS

The certificate is that of a mounted Secret, or of the Secret that the leading copy keeps
(programs/admission/certificate_keeper), which is watched and needs no disk. Facts that are not
known now make rules silent, so an API server that is away, or a kind that is not installed, refuses
no pod.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, start
from kube_rdma.adapters.cluster.admission import WEBHOOK_SECRET, SecretData
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL
from kube_rdma.adapters.cluster.kinds.network_definition import (
    DEFINITION,
    RESOURCE,
    DefinitionSpec,
)
from kube_rdma.adapters.cluster.kinds.node_policy import NODE_POLICY, policy_of
from kube_rdma.adapters.webhook.held_identity import HeldIdentity
from kube_rdma.adapters.webhook.identity import CERTIFICATE, KEY, ServerIdentity
from kube_rdma.adapters.webhook.server import WebhookServer
from kube_rdma.api.admission.review import MOST_BYTES
from kube_rdma.model.admission.facts import (
    USUAL,
    AdmissionFacts,
    AdmissionSettings,
    Completes,
    OfferedPool,
)
from kube_rdma.model.ipam import PoolName
from kube_rdma.programs.admission.review import completed, validated
from kube_rdma.programs.mirror import Mirror

PORT = 9443
VALIDATE, COMPLETE = "/validate", "/complete"
CONFINED = "/complete-confined"  # where Pod Security would refuse a pod for its IPC_LOCK

log = structlog.get_logger()


def _later(_failures: int) -> float:
    """Where a kind is not installed, or may not be read."""
    return random.uniform(30.0, 60.0)  # noqa: S311  spreads load


class SecretPlace(Frozen):
    """Which Secret the certificate is taken from, and taken anew whenever it changes."""

    namespace: str
    name: str


class ServedPair(Frozen):
    """The certificate of a Secret with its key, PEM."""

    certificate: bytes
    key: bytes


class AdmissionServer:
    """The webhook with what it knows of the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        source: Path | SecretPlace,
        settings: AdmissionSettings = USUAL,
        pause: Callable[[int], float] = _later,
    ) -> None:
        """The certificate is in a folder, or in a Secret that may be there later.

        Raise Refused when a folder has none that can be used.
        """
        self._cluster, self._settings, self._pause = cluster, settings, pause
        self._policies = Mirror(NODE_POLICY, policy_of)
        self._ip_pools = Mirror(IP_POOL, _name)
        self._networks = Mirror(DEFINITION, _resource, optional=True)
        self.taken = 0  # so many certificates of the Secret were taken into use
        self._held = HeldIdentity()
        self._secret: Mirror[ServedPair | None] | None = None
        identity: ServerIdentity | HeldIdentity = self._held
        if isinstance(source, SecretPlace):
            where = Where(source.namespace, source.name)
            self._secret = Mirror(WEBHOOK_SECRET, _pair, self._take, where)
        else:
            identity = ServerIdentity(
                source, partial(log.warning, "certificate not taken into use")
            )
        self._confined = replace(settings, never=(Completes.IPC_LOCK,))
        answers = {
            VALIDATE: self._validated,
            COMPLETE: self._completed,
            CONFINED: self._completed_confined,
        }
        self.server = WebhookServer(identity, answers, MOST_BYTES)

    async def run(self, host: str | None = None, port: int = PORT) -> None:
        """Answer until cancelled; without a host on every address.

        It listens once it has looked for a certificate. To wait until there is one would hold up a
        rollout, whose end is what lets a copy lead that makes it.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._secret:
                    start(tasks, {"admission: certificate": self._followed(self._secret)})
                    await self._secret.tried.wait()
                await self.server.listen(host, port)
                log.info("admission served", port=self.server.port)
                start(
                    tasks,
                    {
                        "admission: node policies": self._followed(self._policies),
                        "admission: pools": self._followed(self._ip_pools),
                        "admission: networks": self._followed(self._networks),
                    },
                )
        finally:
            await self.server.close()

    def _followed(self, mirror: Mirror[Any]) -> Part:
        return partial(mirror.follow, self._cluster, self._pause)

    @property
    def facts(self) -> AdmissionFacts:
        """What is known now; also asked in a thread, so what the loop changes is copied first."""
        policies = tuple(self._policies.values.values())
        return AdmissionFacts(
            pools=tuple(OfferedPool(spec, one.selector) for one in policies for spec in one.pools),
            ip_pools=tuple(self._ip_pools.values.values()) if self._all_pools_known else None,
            resources=tuple(sorted(filter(None, {*tuple(self._networks.values.values())}))),
        )

    @property
    def _all_pools_known(self) -> bool:
        pools = self._ip_pools
        return pools.synced.is_set() and not pools.trouble and not pools.faults

    def _take(self, _old: ServedPair | None, new: ServedPair | None) -> None:
        """A Secret that is away, or not usable, changes nothing: the former pair is shown."""
        if new is None:
            return
        try:
            self._held.take(new.certificate, new.key)
        except Refused as error:
            log.warning("certificate not taken into use", why=str(error))
        else:
            self.taken += 1
            log.info("certificate taken into use")

    def _validated(self, body: bytes) -> bytes:
        return validated(body, self.facts, self._settings)

    def _completed(self, body: bytes) -> bytes:
        return completed(body, self.facts, self._settings)

    def _completed_confined(self, body: bytes) -> bytes:
        return completed(body, self.facts, self._confined)


def _name(stored: Stored[object, object]) -> PoolName:
    return PoolName(stored.name)


def _resource(stored: Stored[DefinitionSpec, None]) -> str:
    """The resource that a network takes shares of; empty where it names none."""
    return dict(stored.annotations).get(RESOURCE, "")


def _pair(stored: Stored[SecretData, None]) -> ServedPair | None:
    """None while there is none yet."""
    if CERTIFICATE not in stored.spec or KEY not in stored.spec:
        return None
    return ServedPair(stored.spec[CERTIFICATE], stored.spec[KEY])
