"""ResourceClaims as kube-rdma's own driver reads them (resource.k8s.io/v1), and pods that use them.

More of a claim than kinds/resource_slice reads, which asks of other drivers' claims only which
devices they have. Fields are those of k8s.io/api@v0.36.3, resource/v1/types.go
(DeviceRequestAllocationResult) and core/v1/types.go; those of gates that are off are not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, Stored
from kube_rdma.adapters.cluster.kinds.amounts import amount
from kube_rdma.adapters.cluster.kinds.pod import POD, Container, ContainerResources
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_CLAIM
from kube_rdma.model.claims.claim import (
    AllocatedClaim,
    AllocatedDevice,
    ClaimName,
    ClaimUse,
    ClaimUser,
    ConfigOrigin,
    DeviceStatus,
    OpaqueConfig,
    PodClaims,
)
from kube_rdma.model.claims.devices import DRIVER

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"  # PodResourceClaimAnnotation, resource/v1
SLOTS = "slots"  # the capacity of a device that several claims share


class GivenDevice(msgspec.Struct, frozen=True, rename="camel"):
    """What a claim was given for a request (DeviceRequestAllocationResult)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str | int] = {}
    tolerations: tuple[msgspec.Raw, ...] = ()


class _Opaque(msgspec.Struct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _GivenConfig(msgspec.Struct, frozen=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: _Opaque | None = None


class _GivenDevices(msgspec.Struct, frozen=True):
    results: tuple[GivenDevice, ...] = ()
    config: tuple[_GivenConfig, ...] = ()


class _GivenAllocation(msgspec.Struct, frozen=True):
    devices: _GivenDevices = _GivenDevices()


class _Reservation(msgspec.Struct, frozen=True):
    resource: str = ""
    name: str = ""
    uid: str = ""


class OwnClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What OWN_CLAIM has of a status, and WHOLE_CLAIM of claim_objects.py."""

    allocation: _GivenAllocation | None = None
    reserved_for: tuple[_Reservation, ...] = ()

    @property
    def results(self) -> tuple[GivenDevice, ...] | None:
        """What was given, by any driver; None before it is allocated."""
        return self.allocation.devices.results if self.allocation else None


class _ClaimEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of spec.resourceClaims, or of status.resourceClaimStatuses."""

    name: str = ""
    resource_claim_name: str | None = None


class _ClaimOfContainer(msgspec.Struct, frozen=True):
    name: str = ""
    request: str = ""


class _ClaimResources(ContainerResources, frozen=True):
    claims: tuple[_ClaimOfContainer, ...] = ()


class _ClaimingContainer(Container, frozen=True):
    resources: _ClaimResources = _ClaimResources()


class ClaimingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What CLAIMING_POD has of a spec."""

    containers: tuple[_ClaimingContainer, ...] = ()
    init_containers: tuple[_ClaimingContainer, ...] = ()
    resource_claims: tuple[_ClaimEntry, ...] = ()


class _RequestMapping(msgspec.Struct, frozen=True, rename="camel"):
    container_name: str = ""
    request_name: str = ""


class _ExtendedClaim(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_name: str = ""
    request_mappings: tuple[_RequestMapping, ...] = ()


class ClaimingStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What CLAIMING_POD has of a status."""

    resource_claim_statuses: tuple[_ClaimEntry, ...] = ()
    extended_resource_claim_status: _ExtendedClaim | None = None


OWN_CLAIM = RESOURCE_CLAIM.read_as(NOTHING, ObjectCodec.of(OwnClaimStatus, writes=False))
CLAIMING_POD = POD.read_as(
    ObjectCodec.of(ClaimingSpec, writes=False), ObjectCodec.of(ClaimingStatus, writes=False)
)


def allocated_claim(stored: Stored[None, OwnClaimStatus]) -> AllocatedClaim:
    """The model value of a claim; no device before it is allocated.

    Raise Refused for what is no quantity.
    """
    status = stored.status or OwnClaimStatus()
    given = status.allocation.devices if status.allocation else _GivenDevices()
    return AllocatedClaim(
        ClaimName(stored.namespace, stored.name, stored.uid),
        tuple(map(_device, given.results)),
        tuple(ClaimUser(one.resource, one.name, one.uid) for one in status.reserved_for),
        tuple(_config(one, one.opaque) for one in given.config if one.opaque),
        stored.annotation(POD_CLAIM) or "",
    )


def _config(given: _GivenConfig, opaque: _Opaque) -> OpaqueConfig:
    """Whoever wrote it if not the class, is the claim (AllocationConfigSource of resource/v1)."""
    of_class = given.source == "FromClass"
    origin = ConfigOrigin.CLASS if of_class else ConfigOrigin.CLAIM
    return OpaqueConfig(origin, opaque.driver, bytes(opaque.parameters), given.requests)


def pod_claims(pod: Stored[ClaimingSpec, ClaimingStatus]) -> PodClaims:
    """The claims of a pod.

    Names of claims made from a template stand in the status, those of others in the spec.
    """
    status = pod.status or ClaimingStatus()
    entries = (*pod.spec.resource_claims, *status.resource_claim_statuses)
    claims = [(one.name, one.resource_claim_name) for one in entries if one.resource_claim_name]
    extended = status.extended_resource_claim_status
    if extended and extended.resource_claim_name:
        claims.append((extended.resource_claim_name, extended.resource_claim_name))
    return PodClaims(
        pod.namespace,
        pod.name,
        pod.uid,
        tuple(dict.fromkeys(claims)),
        tuple(_uses(pod, extended)),
        tuple(one.name for one in status.resource_claim_statuses),
    )


class ClaimDevicesStatus(msgspec.Struct, frozen=True):
    """What a driver writes into the status of a claim: entries of its own devices alone."""

    devices: tuple[dict[str, object], ...]


CLAIM_STATUS = RESOURCE_CLAIM.read_as(NOTHING, ObjectCodec.of(ClaimDevicesStatus))


def device_statuses(statuses: Sequence[DeviceStatus], now: str) -> ClaimDevicesStatus:
    """The entries of status.devices; `now` is the time of all conditions, in RFC 3339.

    The key of an entry is driver, pool, device and share (resource/v1, AllocatedDeviceStatus).
    """
    return ClaimDevicesStatus(tuple(_entry(status, now) for status in statuses))


def _entry(status: DeviceStatus, now: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "driver": DRIVER,
        "pool": status.pool,
        "device": status.device,
        "conditions": [
            {
                "type": one.type,
                "status": "True" if one.holds else "False",
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": now,
            }
            for one in status.conditions
        ],
    }
    if status.share_id:
        entry["shareID"] = status.share_id
    if status.interface:
        entry["networkData"] = {
            "interfaceName": status.interface,
            "ips": list(status.addresses),
            "hardwareAddress": status.mac,
        }
    return entry


def _uses(
    pod: Stored[ClaimingSpec, ClaimingStatus], extended: _ExtendedClaim | None
) -> Iterator[ClaimUse]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for use in container.resources.claims:
            yield ClaimUse(container.name, use.name, use.request)
    if extended:
        claim = extended.resource_claim_name
        for entry in extended.request_mappings:
            yield ClaimUse(entry.container_name, claim, entry.request_name)


def _device(result: GivenDevice) -> AllocatedDevice:
    capacity = result.consumed_capacity
    consumed = capacity.get(SLOTS, capacity.get(f"{DRIVER}/{SLOTS}"))
    return AllocatedDevice(
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share=result.share_id,
        slots=None if consumed is None else math.ceil(amount(consumed)),
        admin=bool(result.admin_access),
        tolerant=bool(result.tolerations),
    )
