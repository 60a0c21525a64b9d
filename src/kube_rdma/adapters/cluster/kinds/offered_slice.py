"""This driver's own ResourceSlices on the wire (resource.k8s.io/v1, k8s.io/api/resource/v1).

Beside resource_slice.py, which reads those of any driver and too little of them to write one back.
Quantities are written as the API server prints them, so that what is stored compares equal.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, Owner, Stored, Wanted
from kube_rdma.adapters.cluster.kinds.node import NODE, units
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_SLICE
from kube_rdma.model.claims.devices import (
    ClaimFeature,
    DeviceCapacity,
    DeviceTaint,
    OfferedDevice,
    PublishedSlice,
    RequestPolicy,
    TaintEffect,
)
from kube_rdma.model.kubernetes import quantity_text

WITHOUT = "rdma.kube-rdma.io/without"
"""The annotation of a slice that was written without some features."""


class _Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attribute: one of the three, of those that this driver writes."""

    string: str | None = None
    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")


class _Range(msgspec.Struct, frozen=True, omit_defaults=True):
    min: str = "0"
    max: str | None = None
    step: str | None = None


class _Policy(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    default: str | None = None
    valid_range: _Range | None = None


class _Capacity(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    value: str = "0"
    request_policy: _Policy | None = None


class _SliceTaint(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    key: str
    effect: str
    time_added: str = ""


class _OwnDevice(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    attributes: dict[str, _Value] = {}
    capacity: dict[str, _Capacity] = {}
    allow_multiple_allocations: bool | None = None
    taints: tuple[_SliceTaint, ...] = ()


class _OwnPool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    generation: int
    resource_slice_count: int


class OfferedSliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a slice of this driver has of a spec."""

    driver: str
    pool: _OwnPool
    node_name: str = ""
    devices: tuple[_OwnDevice, ...] = ()


OFFERED_SLICE = RESOURCE_SLICE.read_as(ObjectCodec.of(OfferedSliceSpec), NOTHING)
StoredSlice: TypeAlias = Stored[OfferedSliceSpec, None]


def published(stored: StoredSlice) -> PublishedSlice:
    """The model value of a slice; what this driver does not write of one is left out."""
    pool = stored.spec.pool
    owners = (owner.uid for owner in stored.owners if owner.kind == NODE.kind)
    names = (stored.annotation(WITHOUT) or "").split(",")
    return PublishedSlice(
        stored.name,
        pool.generation,
        pool.resource_slice_count,
        tuple(map(_read_device, stored.spec.devices)),
        next(owners, ""),
        frozenset(feature for feature in ClaimFeature if feature in names),
    )


def wanted_slice(part: PublishedSlice, driver: str, node: str) -> Wanted[OfferedSliceSpec]:
    """The object to create."""
    pool = _OwnPool(node, part.generation, part.count)
    return Wanted(
        part.name,
        spec=OfferedSliceSpec(driver, pool, node, tuple(map(_written_device, part.devices))),
        annotations=_annotations(part),
        owners=(Owner(NODE.api_version, NODE.kind, node, part.owner, controller=True),),
    )


def changed_slice(stored: StoredSlice, part: PublishedSlice, driver: str, node: str) -> StoredSlice:
    """The object as it is to be from now on."""
    wanted = wanted_slice(part, driver, node)
    assert wanted.spec
    others = tuple(pair for pair in stored.annotations if pair[0] != WITHOUT)
    annotations = tuple(sorted((*others, *wanted.annotations)))
    return replace(stored, spec=wanted.spec, owners=wanted.owners, annotations=annotations)


def _annotations(part: PublishedSlice) -> tuple[tuple[str, str], ...]:
    return ((WITHOUT, ",".join(sorted(part.without))),) if part.without else ()


def _written_device(device: OfferedDevice) -> _OwnDevice:
    return _OwnDevice(
        device.name,
        {name: _written_value(value) for name, value in device.attributes},
        {name: _written_capacity(capacity) for name, capacity in device.capacities},
        True if device.shared else None,
        tuple(_SliceTaint(one.key, one.effect.value, one.added) for one in device.taints),
    )


def _written_capacity(capacity: DeviceCapacity) -> _Capacity:
    value, policy = quantity_text(capacity.value), capacity.policy
    if policy is None:
        return _Capacity(value)
    step = None if policy.step is None else quantity_text(policy.step)
    span = _Range(quantity_text(policy.least), quantity_text(policy.most), step)
    return _Capacity(value, _Policy(quantity_text(policy.default), span))


def _read_device(device: _OwnDevice) -> OfferedDevice:
    return OfferedDevice(
        device.name,
        tuple(sorted((name, _read_value(value)) for name, value in device.attributes.items())),
        tuple(sorted((name, _read_capacity(one)) for name, one in device.capacity.items())),
        bool(device.allow_multiple_allocations),
        tuple(
            DeviceTaint(taint.key, _effect(taint.effect), taint.time_added)
            for taint in device.taints
        ),
    )


def _written_value(value: str | int) -> _Value:
    if isinstance(value, bool):  # before int, which it is too
        return _Value(truth=value)
    return _Value(number=value) if isinstance(value, int) else _Value(value)


def _read_value(value: _Value) -> str | int:
    if value.truth is not None:
        return value.truth
    return value.string if value.string is not None else value.number or 0


def _read_capacity(capacity: _Capacity) -> DeviceCapacity:
    policy = capacity.request_policy
    if policy is None or policy.valid_range is None or policy.default is None:
        return DeviceCapacity(units(capacity.value))
    span = policy.valid_range
    return DeviceCapacity(
        units(capacity.value),
        RequestPolicy(
            units(policy.default),
            units(span.min),
            units(span.max or capacity.value),
            None if span.step is None else units(span.step),
        ),
    )


def _effect(text: str) -> TaintEffect:
    """One that somebody else wrote counts as a harmless one, and is written over."""
    return next((effect for effect in TaintEffect if effect == text), TaintEffect.NONE)
