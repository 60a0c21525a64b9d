"""Reads nodes, and reads, makes and deletes pods that measure, as whole JSON objects.

Objects of claims are read as model values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from kube_base.frozen import Frozen
from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.kinds import ObjectCodec, Stored, Where
from kube_client.objects import Cluster
from kube_client.wire import ApiRequest
from kube_rdma.adapters.bulkhead import read_or_refusal
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.adapters.cluster.kinds.resource_api import (
    CLAIM_TEMPLATE,
    DEVICE_CLASS,
    RESOURCE_SLICE,
    claim_of_template,
    device_class,
    resource_slice,
)
from kube_rdma.claims.cluster import taint_rules
from kube_rdma.model.claims.claim import DeviceClass, ResourceClaim
from kube_rdma.model.claims.devices import ResourceSlice, TaintRules
from kube_rdma.model.verify import BandwidthCheckStatus, BandwidthPlan, LastMeasurement
from kube_rdma.verify.bandwidth_check import decode, encode, load_plan

# A copy ends as its manifest asks, and nothing waits for it (DeleteOptions of meta/v1).
_DELETE = msgspec.json.encode(
    {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
)


class VerifyObjects:
    """The nodes, pods and claims of one cluster; all methods raise what `Cluster` raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.namespace = cluster.namespace

    async def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes of the cluster as JSON objects."""
        return await self._list(ApiRequest("list", "", "v1", "nodes"))

    async def pods(
        self, namespace: str, *, names: Sequence[str] = (), selector: str = ""
    ) -> list[dict[str, Any]]:
        """Return the pods with these names, in this order, else those that `selector` chooses."""
        if names:
            requests = [ApiRequest("get", "", "v1", "pods", namespace, name) for name in names]
            return [
                wire.parse(await self._cluster.write(each), dict[str, Any]) for each in requests
            ]
        query = (("labelSelector", selector),)
        return await self._list(ApiRequest("list", "", "v1", "pods", namespace, query=query))

    async def create(self, namespace: str, document: dict[str, Any]) -> None:
        """Create a pod from its manifest."""
        body = msgspec.json.encode(document)
        request = ApiRequest(
            "create", "", "v1", "pods", namespace, query=self._cluster.managed, body=body
        )
        await self._cluster.write(request)

    async def delete(self, namespace: str, selector: str) -> None:
        """Delete the pods that a label selector chooses, without waiting for their end."""
        for pod in await self.pods(namespace, selector=selector):
            name = pod["metadata"]["name"]
            request = ApiRequest("delete", "", "v1", "pods", namespace, name, body=_DELETE)
            try:
                await self._cluster.write(request)
            except Conflict as missing:
                if missing.lost is not Lost.GONE:
                    raise

    async def classes(self) -> tuple[DeviceClass, ...]:
        """Return the DeviceClasses that can be read; raise NotInstalled before Kubernetes 1.34."""
        return tuple(map(device_class, (await self._cluster.see(DEVICE_CLASS)).objects))

    async def slices(self) -> tuple[ResourceSlice, ...]:
        """Return the ResourceSlices of all drivers and nodes that can be read."""
        return tuple(map(resource_slice, (await self._cluster.see(RESOURCE_SLICE)).objects))

    async def taint_rules(self) -> TaintRules:
        """Return the DeviceTaintRules."""
        return await taint_rules(self._cluster)

    async def claim_of(self, namespace: str, template: str) -> ResourceClaim | None:
        """Return the claim that a ResourceClaimTemplate makes for a pod; None if it is missing."""
        stored = await self._cluster.get(CLAIM_TEMPLATE, template, namespace)
        return claim_of_template(stored) if stored else None

    async def _list(self, request: ApiRequest) -> list[dict[str, Any]]:
        documents = wire.page(await self._cluster.write(request)).items
        return [wire.parse(document, dict[str, Any]) for document in documents]


# BandwidthChecks at the API server, as the controller sees them; it writes their status.

_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)  # undecoded: a faulty spec gets a status too
_STATUS = ObjectCodec(decode, encode)
BANDWIDTH_CHECK = own_kind("BandwidthCheck", "bandwidthchecks", _SPEC, _STATUS, namespaced=True)


class SeenCheck(Frozen):
    """A BandwidthCheck as stored: its plan or the reason for its refusal, and its status."""

    namespace: str
    name: str
    uid: str
    generation: int
    plan: BandwidthPlan | None
    refusal: str
    status: BandwidthCheckStatus | None

    @property
    def title(self) -> str:
        """Return the check's name as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def seen_check(stored: Stored[bytes, BandwidthCheckStatus]) -> SeenCheck:
    """Decode a stored check; a check that is refused gets the reason instead of a plan."""
    title = f"{stored.namespace}/{stored.name}"
    read = partial(load_plan, stored.spec, title)
    plan, refusal = read_or_refusal(BANDWIDTH_CHECK.kind, title, read)
    place = (stored.namespace, stored.name, stored.uid, stored.generation)
    return SeenCheck(*place, plan, refusal, stored.status)


def last_measurement(stored: Stored[Any, BandwidthCheckStatus]) -> LastMeasurement | None:
    """Return what the last run of a BandwidthCheck with figures suspects; None without such a run.

    While a next run is under way, the time is when that began.
    """
    status = stored.status
    history = status.history if status and status.state != "NotMeasured" else None
    if not status or not history:
        return None
    why = f"is a suspect of BandwidthCheck {stored.namespace}/{stored.name}"
    ends = ((frozenset(filter(None, (one.node, one.peer))), one) for one in status.suspects)
    suspects = {of: f"{why} ({one.device})" if one.device else why for of, one in ends if of}
    cards = defaultdict[str, dict[str, str]](dict)
    for one in status.suspects:
        if one.node and one.device and not one.peer:
            cards[one.node][one.device] = f"{why} ({one.device})"
    return LastMeasurement(stored.namespace, history.ended or history.began, suspects, cards)


async def listed_checks(
    cluster: Cluster, namespaces: Iterable[str]
) -> list[tuple[str, BandwidthCheckStatus]]:
    """Return title and status of the BandwidthChecks that list pairs, the latest run first."""
    places = (Where(namespace=name) for name in sorted(namespaces))
    every = [one for at in places for one in (await cluster.see(BANDWIDTH_CHECK, at)).objects]
    titled = [(f"{one.namespace}/{one.name}", one.status) for one in every]
    listed = [(title, status) for title, status in titled if status and status.pairs]
    return sorted(listed, key=lambda one: one[1].start_time or "", reverse=True)


async def write_status(cluster: Cluster, seen: SeenCheck, status: BandwidthCheckStatus) -> None:
    """Write the status of a check; raise Conflict(GONE) if the check does not exist."""
    await cluster.apply_status(BANDWIDTH_CHECK, seen.name, seen.namespace, status, force=True)
