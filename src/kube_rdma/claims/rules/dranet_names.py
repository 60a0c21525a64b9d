"""The attributes of a device under DRANET's names too, for claims and programs that know those.

Behind claims/rules/shape, before claims/rules/publication, where an agent wishes it. They are made
of the device's own attributes and of nothing else, so what a card in a pod does not show is as
lasting under these names. Names and meanings are those of sigs.k8s.io/dranet (pkg/apis/
attributes.go); its others change with addresses and links, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.claims.rules.cards import STANDARD
from kube_rdma.claims.rules.shape import Slices
from kube_rdma.model.claims.offered import Attributes, OfferedDevice

DOMAIN = "dra.net/"

_NAMES = {
    "interface": "ifName",
    "rdmaDevice": "rdmaDevice",
    f"{STANDARD}pciBusID": "pciAddress",
    f"{STANDARD}numaNode": "numaNode",
}


def with_dranet_names(parts: Slices) -> Slices:
    """The devices of slices, each with both names of what it says."""
    return tuple(tuple(map(_named, devices)) for devices in parts)


def without_dranet_names(devices: Mapping[str, OfferedDevice]) -> dict[str, OfferedDevice]:
    """Devices of slices by name, with their own attributes alone."""
    return {
        name: replace(device, attributes=_own(device.attributes))
        for name, device in devices.items()
    }


def _own(attributes: Attributes) -> Attributes:
    return tuple((name, value) for name, value in attributes if not name.startswith(DOMAIN))


def _named(device: OfferedDevice) -> OfferedDevice:
    return replace(
        device, attributes=tuple(sorted((*device.attributes, *_dranet(device.attributes))))
    )


def _dranet(attributes: Sequence[tuple[str, str | int]]) -> Iterator[tuple[str, str | int]]:
    values = dict(attributes)
    for name, theirs in _NAMES.items():
        if name in values:
            yield f"{DOMAIN}{theirs}", values[name]
    if "linkLayer" in values:  # as netlink calls it (rtnl_link, ARPHRD_ETHER)
        is_ethernet = values["linkLayer"] == "ethernet"
        yield f"{DOMAIN}encapsulation", "ether" if is_ethernet else values["linkLayer"]
    yield f"{DOMAIN}isSriovVf", values.get("kind") == "vf"
    yield f"{DOMAIN}rdma", "rdmaDevice" in values
