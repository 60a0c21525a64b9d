"""Which devices the claims of pods have been given: what a card is chosen near to, and prepared.

claims/publisher.py asks when a share is to be preferred: the scheduler has
allocated the claims of a pod by then (KEP-4381), the kubelet has prepared none.
claims asks for what its own driver has to prepare, and for whom.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from kube_base.frozen import Frozen
from kube_client import wire
from kube_client.errors import NotInstalled
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_client.watching import WatchEvent
from kube_rdma.adapters.cluster.kinds.offered_slice import (
    OFFERED_SLICE,
    OfferedSliceSpec,
    StoredSlice,
    changed_slice,
    wanted_slice,
)
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
from kube_rdma.model.claims.claim import AllocatedClaim, ClaimName, DeviceStatus, PodClaims
from kube_rdma.model.claims.devices import ClaimedPod, DeviceSlice, PublishedSlice, SliceDevice
from kube_rdma.model.late_binding import PodName


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


# The ResourceSlices of one node and this driver: followed, created, changed and removed.


class OfferedSlices(Frozen):
    """The door of one agent: the slices of this driver on the node of this name."""

    cluster: Cluster
    driver: str
    node: str

    def watch(self) -> AsyncGenerator[WatchEvent[OfferedSliceSpec, None], None]:
        """The slices now and whenever they change; raise Refused when the kind is not served."""
        fields = f"spec.driver={self.driver},spec.nodeName={self.node}"
        return self.cluster.watch(OFFERED_SLICE, Where(fields=fields))

    async def create(self, part: PublishedSlice) -> StoredSlice:
        """Create a slice; what comes back is what the server has kept of it."""
        return await self.cluster.create(OFFERED_SLICE, wanted_slice(part, self.driver, self.node))

    async def change(self, stored: StoredSlice, part: PublishedSlice) -> StoredSlice:
        """Replace what a slice says; Conflict when somebody wrote it since it was read."""
        changed = changed_slice(stored, part, self.driver, self.node)
        return await self.cluster.replace(OFFERED_SLICE, changed)

    async def remove(self, stored: StoredSlice) -> None:
        """Delete a slice that devices are no longer in, whoever wrote it last."""
        await self.cluster.delete(OFFERED_SLICE, stored, unchanged=False)
