"""Describes the API group of ResourceClaims (resource.k8s.io/v1, served since Kubernetes 1.34).

Fields are those of k8s.io/api v0.36.3, resource/v1/types.go, without those of feature gates that
are off by default. Where the model has the shape of the wire, its values are decoded directly. A
quantity that cannot be read makes its object unreadable. Pods stand here as far as they name
claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Owner, Stored, Wanted
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD, Container, ContainerResources
from kube_rdma.model.claims import claim as model
from kube_rdma.model.claims import devices as slices
from kube_rdma.model.kubernetes import Toleration, quantity, quantity_text

GROUP, VERSION = "resource.k8s.io", "v1"
WITHOUT = "rdma.kube-rdma.io/without"
"""The annotation of a slice that was written without some features."""
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"  # k8s.io/dynamic-resource-allocation/deviceattribute
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"  # PodResourceClaimAnnotation, resource/v1

# NVML writes eight digits for the domain, and capitals.
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])")

T = TypeVar("T")
S = TypeVar("S")


def _read_quantity(what: type, written: Any) -> Fraction:
    if what is not Fraction or not isinstance(written, str | int | float):
        raise TypeError(f"{written!r:.80} is no {what.__name__}")
    return quantity(str(written))


def _written_quantity(amount: object) -> str:
    """Return an amount as the API server prints it, so that it compares equal to what is stored."""
    assert isinstance(amount, Fraction)
    return quantity_text(int(amount))


def _codec(what: type[T], *, writes: bool = False) -> ObjectCodec[T]:
    """Return the codec of a spec or status that has quantities in it."""
    encode = partial(msgspec.json.encode, enc_hook=_written_quantity)
    return ObjectCodec(partial(decoded, what=what, hook=_read_quantity), encode if writes else None)


# Claims, templates of claims and classes: what is asked for, and what the scheduler has given.


class _Expression(msgspec.Struct, frozen=True):
    expression: str = ""


class _CelSelector(msgspec.Struct, frozen=True):
    cel: _Expression = _Expression()


class _Capacity(msgspec.Struct, frozen=True):
    requests: dict[str, Fraction] = {}


class _ExactRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A request for devices in a claim, alone or as one of firstAvailable."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[_CelSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: _Capacity | None = None


class _RequestEntry(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    exactly: _ExactRequest | None = None
    first_available: tuple[_ExactRequest, ...] = ()


class _ConstraintEntry(msgspec.Struct, frozen=True, rename="camel"):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class _RequestedDevices(msgspec.Struct, frozen=True):
    requests: tuple[_RequestEntry, ...] = ()
    constraints: tuple[_ConstraintEntry, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True):
    """The fields of a ResourceClaim's spec that kube-rdma reads."""

    devices: _RequestedDevices = _RequestedDevices()


class ClaimTemplateSpec(msgspec.Struct, frozen=True):
    """The fields of a ResourceClaimTemplate's spec that kube-rdma reads."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a DeviceClass' spec that kube-rdma reads."""

    selectors: tuple[_CelSelector, ...] = ()
    extended_resource_name: str | None = None  # KEP-5004


class _Opaque(msgspec.Struct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _AllocationConfig(msgspec.Struct, frozen=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: _Opaque | None = None


class _AllocatedDevices(msgspec.Struct, frozen=True):
    results: tuple[model.AllocationResult, ...] = ()
    config: tuple[_AllocationConfig, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _AllocatedDevices = _AllocatedDevices()


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a ResourceClaim's status that kube-rdma reads."""

    allocation: _Allocation | None = None
    reserved_for: tuple[model.ClaimUser, ...] = ()


def _kind(
    name: str, plural: str, spec: ObjectCodec[T], status: ObjectCodec[S], *, namespaced: bool
) -> ObjectKind[T, S]:
    return ObjectKind(GROUP, VERSION, name, plural, namespaced, spec, status)


_SPEC, _STATUS = _codec(ResourceClaimSpec), _codec(ResourceClaimStatus)
_TEMPLATE, _CLASS = _codec(ClaimTemplateSpec), ObjectCodec.of(DeviceClassSpec, writes=False)
RESOURCE_CLAIM = _kind("ResourceClaim", "resourceclaims", _SPEC, _STATUS, namespaced=True)
CLAIM_TEMPLATE = _kind(
    "ResourceClaimTemplate", "resourceclaimtemplates", _TEMPLATE, NOTHING, namespaced=True
)
DEVICE_CLASS = _kind("DeviceClass", "deviceclasses", _CLASS, NOTHING, namespaced=False)


def resource_claim(stored: Stored[ResourceClaimSpec, ResourceClaimStatus]) -> model.ResourceClaim:
    """Return the model value of a ResourceClaim."""
    status = stored.status or ResourceClaimStatus()
    given = status.allocation.devices if status.allocation else None
    return replace(
        _unallocated(model.ClaimName(stored.namespace, stored.name, stored.uid), stored.spec),
        allocated=given.results if given else None,
        users=status.reserved_for,
        configs=tuple(_config(one, one.opaque) for one in given.config if one.opaque)
        if given
        else (),
        pod_claim=stored.annotation(POD_CLAIM) or "",
    )


def claim_of_template(stored: Stored[ClaimTemplateSpec, None]) -> model.ResourceClaim:
    """Return the claim that a pod gets from a ResourceClaimTemplate, under the template's name."""
    return _unallocated(
        model.ClaimName(stored.namespace, stored.name, stored.uid), stored.spec.spec
    )


def device_class(stored: Stored[DeviceClassSpec, None]) -> model.DeviceClass:
    """Return the model value of a DeviceClass."""
    spec = stored.spec
    return model.DeviceClass(
        stored.name, _expressions(spec.selectors), spec.extended_resource_name or ""
    )


def _unallocated(claim: model.ClaimName, spec: ResourceClaimSpec) -> model.ResourceClaim:
    requests, constraints = spec.devices.requests, spec.devices.constraints
    return model.ResourceClaim(
        claim, tuple(map(_choices, requests)), tuple(map(_constraint, constraints))
    )


def _constraint(entry: _ConstraintEntry) -> model.ClaimConstraint:
    attribute = entry.match_attribute or entry.distinct_attribute or ""
    return model.ClaimConstraint(attribute, entry.match_attribute is None, entry.requests)


def _choices(request: _RequestEntry) -> model.RequestChoices:
    if request.exactly is not None:
        return model.RequestChoices(request.name, (_request(request.exactly, request.name),))
    choices = (_request(one, f"{request.name}/{one.name}") for one in request.first_available)
    return model.RequestChoices(request.name, tuple(choices))


def _request(exactly: _ExactRequest, name: str) -> model.ClaimRequest:
    return model.ClaimRequest(
        name=name,
        device_class=exactly.device_class_name,
        selectors=_expressions(exactly.selectors),
        every=exactly.allocation_mode == "All",
        count=exactly.count,
        admin=bool(exactly.admin_access),
        tolerations=exactly.tolerations,
        capacity=exactly.capacity.requests if exactly.capacity else {},
    )


def _expressions(selectors: tuple[_CelSelector, ...]) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in selectors)


def _config(config: _AllocationConfig, opaque: _Opaque) -> model.OpaqueConfig:
    """Return a device configuration, marked as the class' or the claim's."""
    of_class = config.source == "FromClass"
    origin = model.ConfigOrigin.CLASS if of_class else model.ConfigOrigin.CLAIM
    return model.OpaqueConfig(origin, opaque.driver, bytes(opaque.parameters), config.requests)


# The status of devices that a driver writes into a claim.


class ClaimDevicesStatus(msgspec.Struct, frozen=True):
    """The devices of one driver in the status of a claim, to be applied."""

    devices: tuple[dict[str, object], ...]


CLAIM_STATUS = RESOURCE_CLAIM.read_as(NOTHING, ObjectCodec.of(ClaimDevicesStatus))


def device_statuses(statuses: Sequence[model.DeviceStatus], now: str) -> ClaimDevicesStatus:
    """Return the entries of status.devices; `now` is the time of all conditions, in RFC 3339.

    The key of an entry is driver, pool, device and share (resource/v1, AllocatedDeviceStatus).
    """
    return ClaimDevicesStatus(tuple(_status_entry(status, now) for status in statuses))


def _status_entry(status: model.DeviceStatus, now: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "driver": slices.DRIVER,
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


# Slices, of which kube-rdma writes those of its own driver.

_SLICE = _codec(slices.SliceSpec, writes=True)
RESOURCE_SLICE = _kind("ResourceSlice", "resourceslices", _SLICE, NOTHING, namespaced=False)
StoredSlice: TypeAlias = Stored[slices.SliceSpec, None]


class _DeviceName(msgspec.Struct, frozen=True):
    name: str = ""


class DeviceNames(msgspec.Struct, frozen=True, rename="camel"):
    """The names in a ResourceSlice, which are read quickly."""

    driver: str = ""
    node_name: str | None = None
    pool: slices.SlicePool = slices.SlicePool()
    devices: tuple[_DeviceName, ...] = ()


NAMED_SLICE = RESOURCE_SLICE.read_as(ObjectCodec.of(DeviceNames, writes=False), NOTHING)


class _BetaRuleSpec(slices.TaintRuleSpec):
    """The same in v1beta2: in Kubernetes 1.36 a rule without a selector is for all devices."""

    device_selector: slices.DeviceSelector | None = slices.DeviceSelector()


_RULE: ObjectCodec[slices.TaintRuleSpec] = ObjectCodec.of(slices.TaintRuleSpec)
_BETA_RULE: ObjectCodec[slices.TaintRuleSpec] = ObjectCodec.of(_BetaRuleSpec, writes=False)
TAINT_RULE = _kind("DeviceTaintRule", "devicetaintrules", _RULE, NOTHING, namespaced=False)
BETA_TAINT_RULE = replace(TAINT_RULE, version="v1beta2", spec=_BETA_RULE)


def resource_slice(stored: StoredSlice) -> slices.ResourceSlice:
    """Return the model value of a ResourceSlice."""
    owners = (owner.uid for owner in stored.owners if owner.kind == NODE.kind)
    without = (stored.annotation(WITHOUT) or "").split(",")
    features = frozenset(feature for feature in slices.ClaimFeature if feature in without)
    return slices.ResourceSlice(stored.name, stored.spec, next(owners, ""), features)


def device_slice(stored: StoredSlice) -> slices.DeviceSlice:
    """Return the part of a ResourceSlice that says on which cards its devices are."""
    spec = stored.spec
    addresses = ((device.name, _addresses(device.attributes)) for device in spec.devices)
    return slices.DeviceSlice(
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        addresses=tuple((name, where) for name, where in addresses if where),
        cards=tuple(card for device in spec.devices if (card := _card(device))),
    )


def _addresses(attributes: slices.Attributes) -> tuple[str, ...]:
    """Return the PCI addresses among the attributes, the one of the standard attribute first."""
    names = sorted(attributes, key=lambda name: (name != PCI_BUS_ID, name))
    matches = (_ADDRESS.fullmatch((attributes[name].string or "").lower()) for name in names)
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def _card(device: slices.ListedDevice) -> slices.PublishedCard | None:
    """Return the card that a device's attributes describe, None where they identify none.

    Names are those of DRANET (dra.net/pciAddress, ifName, rdmaDevice, rdma; kubernetes-sigs/dranet
    pkg/apis/attributes.go), of the SR-IOV driver (pciAddress, interfaceName, rdmaCapable;
    k8snetworkplumbingwg/dra-driver-sriov pkg/consts/consts.go) and of kube-rdma. The domain before
    the slash does not count: AWS and NVIDIA have the same names in other domains.
    """
    bare = {name.rpartition("/")[2]: value for name, value in device.attributes.items()}
    standard = device.attributes.get(PCI_BUS_ID)
    pci = _text(bare, ("pciAddress", "pciBusID")) if standard is None else standard.string or ""
    address = _ADDRESS.fullmatch(pci.lower())
    capable = (bare[name].truth for name in ("rdma", "rdmaCapable") if name in bare)
    card = slices.PublishedCard(
        device.name,
        address[1] if address else "",
        _text(bare, ("rdmaDevice",)),
        _text(bare, ("ifName", "interfaceName", "interface")),
        next(capable, None),
    )
    return card if card.pci or card.rdma or card.interface else None


def _text(attributes: slices.Attributes, names: Iterable[str]) -> str:
    return next((attributes[name].string or "" for name in names if name in attributes), "")


def wanted_slice(part: slices.ResourceSlice) -> Wanted[slices.SliceSpec]:
    """Return the ResourceSlice object to create for a node."""
    node = part.spec.node_name or ""
    without = ((WITHOUT, ",".join(sorted(part.without))),) if part.without else ()
    owner = Owner(NODE.api_version, NODE.kind, node, part.owner, controller=True)
    return Wanted(part.name, spec=part.spec, annotations=without, owners=(owner,))


def changed_slice(stored: StoredSlice, part: slices.ResourceSlice) -> StoredSlice:
    """Return the stored ResourceSlice with new spec, owners and annotations."""
    wanted = wanted_slice(part)
    others = (pair for pair in stored.annotations if pair[0] != WITHOUT)
    annotations = tuple(sorted((*others, *wanted.annotations)))
    return replace(stored, spec=part.spec, owners=wanted.owners, annotations=annotations)


# Pods with their claims: core/v1/types.go.


class _PodClaim(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of spec.resourceClaims, or of status.resourceClaimStatuses."""

    name: str = ""
    resource_claim_name: str | None = None


class _ContainerClaim(msgspec.Struct, frozen=True):
    name: str = ""
    request: str = ""


class _ContainerResources(ContainerResources, frozen=True):
    claims: tuple[_ContainerClaim, ...] = ()


class _Container(Container, frozen=True):
    resources: _ContainerResources = _ContainerResources()


class ClaimingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that names claims."""

    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resource_claims: tuple[_PodClaim, ...] = ()


class _RequestMapping(msgspec.Struct, frozen=True, rename="camel"):
    container_name: str = ""
    request_name: str = ""
    resource_name: str = ""


class ExtendedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """The claim that the scheduler made for a pod's extended resources (KEP-5004)."""

    resource_claim_name: str = ""
    request_mappings: tuple[_RequestMapping, ...] = ()


class ClaimingStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's status that names claims."""

    resource_claim_statuses: tuple[_PodClaim, ...] = ()
    extended_resource_claim_status: ExtendedClaim | None = None


CLAIMING_POD = POD.read_as(
    ObjectCodec.of(ClaimingSpec, writes=False), ObjectCodec.of(ClaimingStatus, writes=False)
)


def pod_claims(pod: Stored[ClaimingSpec, ClaimingStatus]) -> model.PodClaims:
    """Return the claims of a pod.

    Names of claims made from a template stand in the status, names of other claims in the spec.
    """
    status = pod.status or ClaimingStatus()
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    entries = (*pod.spec.resource_claims, *status.resource_claim_statuses)
    claims = [(one.name, one.resource_claim_name) for one in entries if one.resource_claim_name]
    extended = status.extended_resource_claim_status
    if extended and extended.resource_claim_name:
        claims.append((extended.resource_claim_name, extended.resource_claim_name))
    return model.PodClaims(
        pod.namespace,
        pod.name,
        pod.uid,
        tuple(dict.fromkeys(claims)),
        tuple(_uses(containers, extended)),
        tuple(one.name for one in status.resource_claim_statuses),
        tuple(dict.fromkeys(name for one in containers for name in one.extended)),
    )


def _uses(
    containers: Sequence[_Container], extended: ExtendedClaim | None
) -> Iterator[model.ClaimUse]:
    for container in containers:
        for use in container.resources.claims:
            yield model.ClaimUse(container.name, use.name, use.request)
    if extended:
        claim = extended.resource_claim_name
        for entry in extended.request_mappings:
            yield model.ClaimUse(entry.container_name, claim, entry.request_name)
