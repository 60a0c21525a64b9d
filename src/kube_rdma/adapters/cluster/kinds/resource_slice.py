"""ResourceSlices and ResourceClaims of any driver (resource.k8s.io/v1 since 1.34; KEP-4381).

Only what says which device sits where, and which a claim has been given. Read by
claims/publisher.py, doctor and verify.

Words for network cards are those of DRANET (dra.net/pciAddress, ifName, rdmaDevice, rdma;
kubernetes-sigs/dranet pkg/apis/attributes.go), of the SR-IOV driver (pciAddress, interfaceName,
rdmaCapable; k8snetworkplumbingwg/dra-driver-sriov pkg/consts/consts.go) and of kube-rdma. What
stands before the slash does not count: AWS and NVIDIA have the same words under other domains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.model.claims.devices import DeviceSlice, PublishedCard, SliceDevice

GROUP, VERSION = "resource.k8s.io", "v1"
STANDARD = "resource.kubernetes.io/pciBusID"  # k8s.io/dynamic-resource-allocation/deviceattribute
# NVML writes eight digits for the domain, and capitals.
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])")


_PCI_WORDS = ("pciAddress", "pciBusID")
_RDMA_WORDS = ("rdmaDevice",)
_INTERFACE_WORDS = ("ifName", "interfaceName", "interface")
_CAPABLE_WORDS = ("rdma", "rdmaCapable")


class _Attribute(msgspec.Struct, frozen=True):
    string: str | None = None
    flag: bool | None = msgspec.field(default=None, name="bool")


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
        cards=tuple(card for device in spec.devices if (card := _card(device))),
    )


def claimed_devices(stored: Stored[None, ClaimStatus]) -> tuple[SliceDevice, ...]:
    """The devices that a claim has been given; none before it is allocated."""
    allocation = stored.status.allocation if stored.status else None
    results = allocation.devices.results if allocation else ()
    return tuple(SliceDevice(one.driver, one.pool, one.device) for one in results)


def _card(device: _Device) -> PublishedCard | None:
    """What a device says of itself as a card; None where nothing would lead to one."""
    words = {name.rpartition("/")[2]: value for name, value in device.attributes.items()}
    standard = device.attributes.get(STANDARD)
    pci = _text(words, _PCI_WORDS) if standard is None else standard.string or ""
    address = _ADDRESS.fullmatch(pci.lower())
    capable = (words[name].flag for name in _CAPABLE_WORDS if name in words)
    card = PublishedCard(
        device.name,
        address[1] if address else "",
        _text(words, _RDMA_WORDS),
        _text(words, _INTERFACE_WORDS),
        next(capable, None),
    )
    return card if card.pci or card.rdma or card.interface else None


def _text(words: Mapping[str, _Attribute], names: Iterable[str]) -> str:
    return next((words[name].string or "" for name in names if name in words), "")


def _addresses(attributes: Mapping[str, _Attribute]) -> tuple[str, ...]:
    """The PCI addresses among the attributes of a device, that of the standard's name first."""
    ordered = sorted(attributes, key=lambda name: (name != STANDARD, name))
    texts = ((attributes[name].string or "").lower() for name in ordered)
    matches = (_ADDRESS.fullmatch(text) for text in texts)
    return tuple(dict.fromkeys(match[1] for match in matches if match))
