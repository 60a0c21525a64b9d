"""ResourceSlices and ResourceClaims of any driver (resource.k8s.io/v1 since 1.34; KEP-4381).

Only what says which device sits where, and which a claim has been given. Read by
programs/agent/device_plugin/claimed_gpus.py and programs/doctor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.model.claims.device import DeviceSlice, SliceDevice

GROUP, VERSION = "resource.k8s.io", "v1"
STANDARD = "resource.kubernetes.io/pciBusID"  # k8s.io/dynamic-resource-allocation/deviceattribute
# NVML writes eight digits for the domain, and capitals.
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])")


class _Attribute(msgspec.Struct, frozen=True):
    string: str | None = None


class _Device(msgspec.Struct, frozen=True):
    name: str = ""
    attributes: dict[str, _Attribute] = {}


class _SlicePool(msgspec.Struct, frozen=True):
    name: str = ""
    generation: int = 0


class SliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What RESOURCE_SLICE has of a spec."""

    driver: str = ""
    pool: _SlicePool = _SlicePool()
    devices: tuple[_Device, ...] = ()


class _Result(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""


class _Devices(msgspec.Struct, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class ClaimStatus(msgspec.Struct, frozen=True):
    """What RESOURCE_CLAIM has of a status."""

    allocation: _Allocation | None = None


RESOURCE_SLICE = ObjectKind(
    GROUP,
    VERSION,
    "ResourceSlice",
    "resourceslices",
    namespaced=False,
    spec=ObjectCodec.of(SliceSpec, writes=False),
    status=NOTHING,
)
RESOURCE_CLAIM = ObjectKind(
    GROUP,
    VERSION,
    "ResourceClaim",
    "resourceclaims",
    namespaced=True,
    spec=NOTHING,
    status=ObjectCodec.of(ClaimStatus, writes=False),
)


def node_slice(stored: Stored[SliceSpec, None]) -> DeviceSlice:
    """The model value of a ResourceSlice."""
    spec = stored.spec
    addresses = ((device.name, _addresses(device.attributes)) for device in spec.devices)
    return DeviceSlice(
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        addresses=tuple((name, where) for name, where in addresses if where),
    )


def claimed_devices(stored: Stored[None, ClaimStatus]) -> tuple[SliceDevice, ...]:
    """The devices that a claim has been given; none before it is allocated."""
    allocation = stored.status.allocation if stored.status else None
    results = allocation.devices.results if allocation else ()
    return tuple(SliceDevice(one.driver, one.pool, one.device) for one in results)


def _addresses(attributes: Mapping[str, _Attribute]) -> tuple[str, ...]:
    """The PCI addresses among the attributes of a device, that of the standard's name first."""
    ordered = sorted(attributes, key=lambda name: (name != STANDARD, name))
    texts = ((attributes[name].string or "").lower() for name in ordered)
    matches = (_ADDRESS.fullmatch(text) for text in texts)
    return tuple(dict.fromkeys(match[1] for match in matches if match))
