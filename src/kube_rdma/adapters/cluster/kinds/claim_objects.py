"""ResourceSlices, ResourceClaims and DeviceClasses with all that the scheduler looks at.

resource.k8s.io/v1 since 1.34 (k8s.io/api v0.36.3, resource/v1/types.go). The kinds of
resource_slice.py have less, for programs that run all day. Read by explain/evidence.py and
verify/claimed_cards.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.adapters.cluster.kinds.amounts import amount
from kube_rdma.adapters.cluster.kinds.resource_claim import GivenDevice, OwnClaimStatus
from kube_rdma.adapters.cluster.kinds.resource_slice import (
    GROUP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    VERSION,
)
from kube_rdma.model.claims.claim import (
    AllocationResult,
    Claim,
    ClaimConstraint,
    ClaimRequest,
    DeviceClass,
    DeviceToleration,
    RequestChoices,
)
from kube_rdma.model.claims.devices import (
    AttributeValue,
    CapacityPolicy,
    CounterUse,
    ListedCapacity,
    ListedDevice,
    ListedSlice,
    ListedTaint,
    NodeChoice,
    SliceDevice,
    Version,
)

_Quantities = Mapping[str, str | float]


class _WholeAttribute(msgspec.Struct, frozen=True):
    text: str | None = msgspec.field(default=None, name="string")
    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None


class _WholeRange(msgspec.Struct, frozen=True):
    min: str | int | None = None
    max: str | int | None = None
    step: str | int | None = None


class _WholePolicy(msgspec.Struct, frozen=True, rename="camel"):
    default: str | int | None = None
    valid_values: tuple[str | int, ...] = ()
    valid_range: _WholeRange | None = None


class _WholeCapacity(msgspec.Struct, frozen=True, rename="camel"):
    value: str | int = "0"
    request_policy: _WholePolicy | None = None


class _Counter(msgspec.Struct, frozen=True):
    value: str | int = "0"


class _Counters(msgspec.Struct, frozen=True, rename="camel"):
    """Of a set (`name`), or of a device that uses one (`counter_set`)."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, _Counter] = {}


class _NodeChoice(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: dict[str, object] | None = None


class _WholeDevice(_NodeChoice, frozen=True, rename="camel", kw_only=True):
    name: str = ""
    attributes: dict[str, _WholeAttribute] = {}
    capacity: dict[str, _WholeCapacity] = {}
    taints: tuple[ListedTaint, ...] = ()
    consumes_counters: tuple[_Counters, ...] = ()
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] | None = None


class _WholePool(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class WholeSliceSpec(_NodeChoice, frozen=True, rename="camel", kw_only=True):
    """What WHOLE_SLICE has of a spec."""

    driver: str = ""
    pool: _WholePool = _WholePool()
    per_device_node_selection: bool | None = None
    devices: tuple[_WholeDevice, ...] = ()
    shared_counters: tuple[_Counters, ...] = ()


class _Expression(msgspec.Struct, frozen=True):
    expression: str = ""


class _CelSelector(msgspec.Struct, frozen=True):
    cel: _Expression = _Expression()


class _Wanted(msgspec.Struct, frozen=True):
    requests: _Quantities = {}


class _Exactly(msgspec.Struct, frozen=True, rename="camel"):
    """A request by itself, or one of those of firstAvailable, which has a name."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[_CelSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: _Wanted | None = None


class _WholeRequest(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    exactly: _Exactly | None = None
    first_available: tuple[_Exactly, ...] = ()


class _Constraint(msgspec.Struct, frozen=True, rename="camel"):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class _ClaimDevices(msgspec.Struct, frozen=True):
    requests: tuple[_WholeRequest, ...] = ()
    constraints: tuple[_Constraint, ...] = ()


class WholeClaimSpec(msgspec.Struct, frozen=True):
    """What WHOLE_CLAIM has of a spec."""

    devices: _ClaimDevices = _ClaimDevices()


class ClaimTemplateSpec(msgspec.Struct, frozen=True):
    """What CLAIM_TEMPLATE has of a spec."""

    spec: WholeClaimSpec = WholeClaimSpec()


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What DEVICE_CLASS has of a spec."""

    selectors: tuple[_CelSelector, ...] = ()
    extended_resource_name: str | None = None  # KEP-5004


WHOLE_SLICE = RESOURCE_SLICE.read_as(ObjectCodec.of(WholeSliceSpec, writes=False), NOTHING)
WHOLE_CLAIM = RESOURCE_CLAIM.read_as(
    ObjectCodec.of(WholeClaimSpec, writes=False), ObjectCodec.of(OwnClaimStatus, writes=False)
)
CLAIM_TEMPLATE = ObjectKind(
    GROUP,
    VERSION,
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    namespaced=True,
    spec=ObjectCodec.of(ClaimTemplateSpec, writes=False),
    status=NOTHING,
)
DEVICE_CLASS = ObjectKind(
    GROUP,
    VERSION,
    "DeviceClass",
    "deviceclasses",
    namespaced=False,
    spec=ObjectCodec.of(DeviceClassSpec, writes=False),
    status=NOTHING,
)


def listed_slice(stored: Stored[WholeSliceSpec, None]) -> ListedSlice:
    """The model value of a ResourceSlice; raise Refused for what is no quantity."""
    spec = stored.spec
    return ListedSlice(
        name=stored.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        nodes=_nodes(spec),
        per_device=bool(spec.per_device_node_selection),
        devices=tuple(map(_device, spec.devices)),
        counter_sets=tuple((one.name, _counters(one)) for one in spec.shared_counters),
    )


def claim_of(stored: Stored[WholeClaimSpec, OwnClaimStatus]) -> Claim:
    """The model value of a ResourceClaim; raise Refused for what is no quantity."""
    status = stored.status or OwnClaimStatus()
    return replace(
        _unallocated(stored.namespace, stored.name, stored.spec),
        held=None if status.results is None else tuple(map(_held, status.results)),
        reserved_for=tuple(f"{one.resource}/{one.name}" for one in status.reserved_for),
    )


def claim_of_template(stored: Stored[ClaimTemplateSpec, None]) -> Claim:
    """The claim that a pod gets of a ResourceClaimTemplate; raise Refused as `claim_of`."""
    return _unallocated(stored.namespace, stored.name, stored.spec.spec)


def device_class(stored: Stored[DeviceClassSpec, None]) -> DeviceClass:
    """The model value of a DeviceClass."""
    spec = stored.spec
    selectors = _expressions(spec.selectors)
    return DeviceClass(stored.name, selectors, spec.extended_resource_name or "")


def _unallocated(namespace: str, name: str, spec: WholeClaimSpec) -> Claim:
    return Claim(
        namespace=namespace,
        name=name,
        requests=tuple(map(_request, spec.devices.requests)),
        constraints=tuple(map(_constraint, spec.devices.constraints)),
    )


def _nodes(choice: _NodeChoice) -> NodeChoice:
    return NodeChoice(choice.node_name or "", bool(choice.all_nodes), choice.node_selector)


def _device(device: _WholeDevice) -> ListedDevice:
    return ListedDevice(
        name=device.name,
        attributes={name: _attribute(one) for name, one in device.attributes.items()},
        capacity={
            name: ListedCapacity(amount(one.value), _policy(one.request_policy))
            for name, one in device.capacity.items()
        },
        taints=device.taints,
        uses=tuple(CounterUse(one.counter_set, _counters(one)) for one in device.consumes_counters),
        shared=bool(device.allow_multiple_allocations),
        nodes=_nodes(device),
        has_bindings=device.binding_conditions is not None,
    )


def _attribute(attribute: _WholeAttribute) -> AttributeValue:
    if attribute.version is not None:
        return Version(attribute.version)
    values = (attribute.number, attribute.truth, attribute.text)
    return next((value for value in values if value is not None), None)


def _policy(policy: _WholePolicy | None) -> CapacityPolicy | None:
    if policy is None:
        return None
    limits = policy.valid_range or _WholeRange()
    return CapacityPolicy(
        default=_maybe(policy.default),
        values=tuple(map(amount, policy.valid_values)),
        least=_maybe(limits.min),
        most=_maybe(limits.max),
        step=_maybe(limits.step),
        has_range=policy.valid_range is not None,
    )


def _counters(counted: _Counters) -> Mapping[str, Fraction]:
    return {name: amount(counter.value) for name, counter in counted.counters.items()}


def _request(request: _WholeRequest) -> RequestChoices:
    if request.exactly is not None:
        return RequestChoices(request.name, (_choice(request.exactly, request.name),))
    choices = (_choice(one, f"{request.name}/{one.name}") for one in request.first_available)
    return RequestChoices(request.name, tuple(choices))


def _choice(exactly: _Exactly, name: str) -> ClaimRequest:
    return ClaimRequest(
        name=name,
        device_class=exactly.device_class_name,
        selectors=_expressions(exactly.selectors),
        every=exactly.allocation_mode == "All",
        count=exactly.count,
        admin=bool(exactly.admin_access),
        tolerations=exactly.tolerations,
        capacity=_amounts(exactly.capacity.requests if exactly.capacity else {}),
    )


def _constraint(constraint: _Constraint) -> ClaimConstraint:
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    return ClaimConstraint(name, constraint.match_attribute is None, constraint.requests)


def _held(result: GivenDevice) -> AllocationResult:
    return AllocationResult(
        SliceDevice(result.driver, result.pool, result.device),
        result.request,
        bool(result.admin_access),
        result.share_id,
        _amounts(result.consumed_capacity),
    )


def _expressions(selectors: tuple[_CelSelector, ...]) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in selectors)


def _amounts(quantities: _Quantities) -> Mapping[str, Fraction]:
    return {name: amount(text) for name, text in quantities.items()}


def _maybe(text: str | int | None) -> Fraction | None:
    return None if text is None else amount(text)
