"""Which devices the claims of pods have been given: what a card is chosen near to, and prepared.

claims/claimed_gpus.py asks when a share is to be preferred: the scheduler has
allocated the claims of a pod by then (KEP-4381), the kubelet has prepared none.
claims asks for what its own driver has to prepare, and for whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube_client import wire
from kube_client.errors import NotInstalled
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_claim import (
    CLAIM_STATUS,
    CLAIMING_POD,
    OWN_CLAIM,
    ClaimingSpec,
    ClaimingStatus,
    allocated_claim,
    device_statuses,
    pod_claims,
)
from kube_rdma.adapters.cluster.kinds.resource_slice import (
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    claimed_devices,
    node_slice,
)
from kube_rdma.model.claims.device import ClaimedPod, DeviceSlice, SliceDevice
from kube_rdma.model.claims.prepared import AllocatedClaim, ClaimName
from kube_rdma.model.claims.status import DeviceStatus
from kube_rdma.model.claims.users import PodClaims
from kube_rdma.model.late_binding.binding import PodName


async def pending_pods(cluster: Cluster, node: str) -> tuple[ClaimedPod, ...]:
    """The pods of a node that have not started and name claims."""
    fields = f"spec.nodeName={node},status.phase=Pending"
    pods = await cluster.see(CLAIMING_POD, Where(fields=fields))
    read = (_claimed(pod) for pod in pods.objects if not pod.deleting)
    return tuple(pod for pod in read if pod.claims)


def claimed_pod(document: Mapping[str, Any]) -> ClaimedPod:
    """The same of a pod that was read as people write it (verify/cluster)."""
    return _claimed(wire.stored(CLAIMING_POD, msgspec.json.encode(document)))


async def devices_of(cluster: Cluster, pod: ClaimedPod) -> tuple[SliceDevice, ...]:
    """What the claims of a pod have been given, by any driver."""
    devices: list[SliceDevice] = []
    for name in pod.claims:
        claim = await cluster.get(RESOURCE_CLAIM, name, pod.namespace)
        if claim:
            devices += claimed_devices(claim)
    return tuple(devices)


async def allocated(cluster: Cluster, claim: ClaimName) -> AllocatedClaim | None:
    """What has the name of a claim now, None for nothing; its uid may be another."""
    stored = await cluster.get(OWN_CLAIM, claim.name, claim.namespace)
    return allocated_claim(stored) if stored else None


async def claims_of_pod(cluster: Cluster, pod: PodName) -> PodClaims | None:
    """The claims of a pod and who uses them, None without such a pod."""
    stored = await cluster.get(CLAIMING_POD, pod.name, pod.namespace)
    return pod_claims(stored) if stored else None


async def write_statuses(
    cluster: Cluster, claim: ClaimName, statuses: Sequence[DeviceStatus], now: str
) -> None:
    """Write what became of the devices of a claim; entries of other drivers stay.

    By server-side apply, whose entries are those of this writer alone. Needs the verb patch of
    resourceclaims/status and, from Kubernetes 1.36 on, associated-node:patch of
    resourceclaims/driver. Conflict(GONE) without the claim.
    """
    status = device_statuses(statuses, now)
    await cluster.apply_status(CLAIM_STATUS, claim.name, claim.namespace, status, force=True)


async def node_slices(cluster: Cluster, node: str) -> tuple[DeviceSlice, ...]:
    """The ResourceSlices of a node; none before Kubernetes 1.34, which has no such kind."""
    try:
        slices = await cluster.list(RESOURCE_SLICE, Where(fields=f"spec.nodeName={node}"))
    except NotInstalled:
        return ()
    return tuple(map(node_slice, slices))


def _claimed(pod: Stored[ClaimingSpec, ClaimingStatus]) -> ClaimedPod:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return ClaimedPod(
        namespace=pod.namespace,
        name=pod.name,
        claims=tuple(dict.fromkeys(name for _, name in pod_claims(pod).claims)),
        resources=tuple(dict.fromkeys(name for one in containers for name in one.extended)),
    )
