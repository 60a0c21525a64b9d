"""Claims, slices and pods with claims at the API server: read, watched and written.

claims/publisher asks for claims of pending pods when the kubelet asks which shares to prefer. The
scheduler has allocated them by then (KEP-4381). claims/prepared_claims asks for claims that
kube-rdma's driver has to prepare, and for the pods that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube_base.errors import Refused
from kube_client import wire
from kube_client.errors import NotInstalled
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds import resource_api
from kube_rdma.adapters.cluster.kinds.resource_api import (
    BETA_TAINT_RULE,
    CLAIMING_POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    TAINT_RULE,
    resource_claim,
)
from kube_rdma.model.claims.claim import ClaimName, DeviceStatus, PodClaims, ResourceClaim
from kube_rdma.model.claims.devices import DeviceSlice, SliceDevice, TaintRules
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.late_binding import PodName

MOST_RULES = 2_000
"""The most DeviceTaintRules that are looked at."""
_BETA_RULES = (
    "DeviceTaintRules count here, and for the scheduler with the feature gate DRADeviceTaintRules,"
    " which is off by default before Kubernetes 1.37."
)


async def pending_pods(cluster: Cluster, node: str) -> tuple[PodClaims, ...]:
    """Return the pending pods of a node that have claims and are not being deleted."""
    fields = f"spec.nodeName={node},status.phase=Pending"
    seen = await cluster.see(CLAIMING_POD, Where(fields=fields))
    pods = (resource_api.pod_claims(pod) for pod in seen.objects if not pod.deleting)
    return tuple(pod for pod in pods if pod.claims)


def claimed_pod(document: Mapping[str, Any]) -> PodClaims:
    """Return the claims of a pod from its object, decoded from JSON or YAML."""
    return resource_api.pod_claims(wire.stored(CLAIMING_POD, msgspec.json.encode(document)))


async def devices_of(cluster: Cluster, pod: PodClaims) -> tuple[SliceDevice, ...]:
    """Return the devices that are allocated to a pod's claims, of any driver."""
    devices: list[SliceDevice] = []
    for name in dict.fromkeys(name for _, name in pod.claims):
        if claim := await cluster.get(RESOURCE_CLAIM, name, pod.namespace):
            devices += (result.id for result in resource_claim(claim).devices)
    return tuple(devices)


async def allocated(cluster: Cluster, claim: ClaimName) -> ResourceClaim | None:
    """Return the ResourceClaim of this name, whatever its uid; None without one."""
    stored = await cluster.get(RESOURCE_CLAIM, claim.name, claim.namespace)
    return resource_claim(stored) if stored else None


async def claims_of_pod(cluster: Cluster, pod: PodName) -> PodClaims | None:
    """Return the claims of a pod and the containers that use them, or None without the pod."""
    stored = await cluster.get(CLAIMING_POD, pod.name, pod.namespace)
    return resource_api.pod_claims(stored) if stored else None


async def write_statuses(
    cluster: Cluster, claim: ClaimName, statuses: Sequence[DeviceStatus]
) -> None:
    """Write the status of a claim's devices with the present time; entries of other drivers stay.

    The write is a server-side apply, which changes only the entries of this writer. It needs the
    verb patch of resourceclaims/status and, from Kubernetes 1.36 on, associated-node:patch of
    resourceclaims/driver. Raise Conflict(GONE) without the claim.
    """
    status = resource_api.device_statuses(statuses, moment(datetime.now(UTC)))
    kind = resource_api.CLAIM_STATUS
    await cluster.apply_status(kind, claim.name, claim.namespace, status, force=True)


async def node_slices(cluster: Cluster, node: str) -> tuple[DeviceSlice, ...]:
    """Return all ResourceSlices of a node; none where the API server does not serve the kind."""
    try:
        slices = await cluster.list(RESOURCE_SLICE, Where(fields=f"spec.nodeName={node}"))
    except NotInstalled:
        return ()
    return tuple(map(resource_api.device_slice, slices))


async def taint_rules(cluster: Cluster) -> TaintRules:
    """Return the DeviceTaintRules, with a sentence if some of them are not there.

    Kubernetes serves them from 1.37 on, and their beta in 1.36 where an administrator enabled it.
    """
    for kind in (TAINT_RULE, BETA_TAINT_RULE):
        try:
            rules = await cluster.list(kind)
        except NotInstalled:
            continue
        except Refused as error:
            return TaintRules(remark=f"DeviceTaintRules, if there are any, were not read: {error}")
        more = len(rules) - MOST_RULES
        remark = f"{more} of {len(rules)} DeviceTaintRules were left out." if more > 0 else ""
        if rules and kind is BETA_TAINT_RULE:
            remark = f"{_BETA_RULES} {remark}".strip()
        return TaintRules({one.name: one.spec for one in rules[:MOST_RULES]}, remark)
    return TaintRules()
