"""What an API server does to a ResourceSlice before it is stored: drops or sets fields, refuses it.

Follows Kubernetes 1.36.3: dropDisabledFields of pkg/registry/resource/resourceslice/strategy.go,
SetDefaults_DeviceTaint of pkg/apis/resource/v1/defaults.go, and the limits of
pkg/apis/resource/validation/validation.go. Only fields that this project writes are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kube_rdma.model.kubernetes import quantity
from kube_rdma_testing.cluster.fields import Document

CONSUMABLE, TAINTS = "DRAConsumableCapacity", "DRADeviceTaints"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TAINT_KEY = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_EFFECTS = ("None", "NoSchedule", "NoExecute")
_NOW = "2026-01-01T00:00:00Z"


def kept(document: Document, old: Document | None, gates_off: Collection[str]) -> Document:
    """Return a ResourceSlice as stored: without fields of disabled gates, with a time in taints.

    A field whose gate is off stays if the object had such a field already.
    """
    spec = dict(document.get("spec", {}))
    before = (old or {}).get("spec", {}).get("devices", ())
    consumable = CONSUMABLE not in gates_off or any(map(_consumes, before))
    taints = TAINTS not in gates_off or any(device.get("taints") for device in before)
    spec["devices"] = [
        _kept(device, consumable=consumable, taints=taints) for device in spec.get("devices", ())
    ]
    return {**document, "spec": spec}


def faults(spec: Document) -> Iterator[str]:
    """Yield the reasons for which the server refuses a ResourceSlice."""
    devices = spec.get("devices", ())
    most = 64 if any(device.get("taints") for device in devices) else 128
    if len(devices) > most:
        yield f"spec.devices: Too many: {len(devices)}: must have at most {most} items"
    names = [device["name"] for device in devices]
    yield from (f"{name}: Duplicate value" for name in sorted(set(names)) if names.count(name) > 1)
    pool = spec.get("pool", {})
    if len(pool.get("name", "")) > 253 or not _DOMAIN.fullmatch(pool.get("name", "")):
        yield "spec.pool.name: must be DNS subdomains"
    if pool.get("resourceSliceCount", 0) <= 0 or pool.get("generation", -1) < 0:
        yield "spec.pool: must be greater than zero"
    if not spec.get("nodeName") or not spec.get("driver") or len(spec["driver"]) > 63:
        yield "spec: nodeName and driver are required"
    for device in devices:
        yield from (f"{device['name']}: {why}" for why in _device_faults(device))


def immutable(spec: Document, old: Document) -> Iterator[str]:
    """Yield an error for each change of a field that an update cannot change."""
    for name in ("driver", "nodeName"):
        if spec.get(name) != old.get(name):
            yield f"spec.{name}: field is immutable"
    if spec["pool"]["name"] != old["pool"]["name"]:
        yield "spec.pool.name: field is immutable"


def _consumes(device: Document) -> bool:
    capacities = device.get("capacity", {}).values()
    return "allowMultipleAllocations" in device or any("requestPolicy" in c for c in capacities)


def _kept(device: Document, *, consumable: bool, taints: bool) -> Document:
    device = dict(device)
    if not consumable:
        device.pop("allowMultipleAllocations", None)
        device["capacity"] = {
            name: {key: value for key, value in capacity.items() if key != "requestPolicy"}
            for name, capacity in device.get("capacity", {}).items()
        }
    if not taints:
        device.pop("taints", None)
    if device.get("taints"):
        device["taints"] = [{"timeAdded": _NOW, **taint} for taint in device["taints"]]
    return device


def _device_faults(device: Document) -> Iterator[str]:
    attributes, capacities = device.get("attributes", {}), device.get("capacity", {})
    if not _LABEL.fullmatch(device["name"]):
        yield "name: must be a DNS label"
    if len(attributes) + len(capacities) > 32:
        yield "the total number of attributes and capacities must not exceed 32"
    for name in (*attributes, *capacities):
        yield from (f"{name}: {why}" for why in _name_faults(name))
    for name, value in attributes.items():
        if len(value) != 1:
            yield f"{name}: exactly one value must be specified"
        if len(str(value.get("string", "")).encode()) > 64:
            yield f"{name}: Too long: may not be more than 64 bytes"
    shared = bool(device.get("allowMultipleAllocations"))
    for name, capacity in capacities.items():
        yield from (f"{name}: {why}" for why in _capacity_faults(capacity, shared=shared))
    yield from _taint_faults(device.get("taints", ()))


def _name_faults(name: str) -> Iterator[str]:
    domain, _, word = name.rpartition("/")
    if not _NAME.fullmatch(word) or (domain and not _DOMAIN.fullmatch(domain)):
        yield "must be a C identifier"
    if len(domain) > 63:
        yield "the domain is too long"


def _taint_faults(taints: Sequence[Document]) -> Iterator[str]:
    if len(taints) > 16:
        yield "taints: Too many"
    for taint in taints:
        if not _TAINT_KEY.fullmatch(taint["key"]) or taint.get("effect") not in _EFFECTS:
            yield "taints: not supported"


def _capacity_faults(capacity: Document, *, shared: bool) -> Iterator[str]:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shared:
        yield "requestPolicy: Forbidden: allowMultipleAllocations must be true"
    value, span = quantity(capacity["value"]), policy["validRange"]
    default, least = quantity(policy["default"]), quantity(span["min"])
    most = quantity(span.get("max", capacity["value"]))
    if not least <= default <= most <= value:
        yield "validRange: min <= default <= max <= value does not hold"
    step: Any = span.get("step") and quantity(span["step"])
    if step is not None:
        if least + step > value:
            yield "step: one step is larger than the capacity's value"
        if (default - least) % step or (most - least) % step:
            yield "step: value is not a multiple of it"
