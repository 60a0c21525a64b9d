"""What has to be written so that the slices of a node say what it offers.

Behind claims/rules/shape; claims/publisher carries out what comes out. The rules of
a pool (k8s.io/api/resource/v1/types.go, ResourcePool): all its slices have one generation and say
how many they are, and nothing of a pool is allocated while some are missing. So a change of a
single slice keeps the generation, as the helper of Go drivers does (k8s.io/dynamic-resource-
allocation/resourceslice), and any other begins a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_base.frozen import Frozen
from kube_rdma.claims.rules.names import slice_name
from kube_rdma.claims.rules.shape import Before, Slices
from kube_rdma.model.claims.devices import ClaimFeature, OfferedDevice, PublishedSlice


class Publication(Frozen):
    """The writes: `removed` first, then `changed`, then `created`.

    A slice that is gone only withdraws devices; one that is created completes the pool.
    """

    removed: tuple[PublishedSlice, ...] = ()
    changed: tuple[PublishedSlice, ...] = ()
    created: tuple[PublishedSlice, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether all is said already."""
        return not (self.removed or self.changed or self.created)


class PoolSite(Frozen):
    """Whose pool it is: the name and uid of the Node object."""

    node: str
    uid: str


def publication(
    site: PoolSite,
    stored: Iterable[PublishedSlice],
    wanted: Slices,
    without: frozenset[ClaimFeature] = frozenset(),
) -> Publication:
    """What is to be written: nothing where the stored slices say it all."""
    mine = {part.name: part for part in stored}
    latest = max((part.generation for part in mine.values()), default=0)
    for generation in (latest, latest + 1):
        target = _target(site, generation, wanted, without)
        names = {part.name for part in target}
        result = Publication(
            removed=tuple(part for name, part in sorted(mine.items()) if name not in names),
            changed=tuple(p for p in target if p.name in mine and not _same(mine[p.name], p)),
            created=tuple(part for part in target if part.name not in mine),
        )
        if mine and not result.created and len(result.changed) <= 1:
            return result
    return result


def _target(
    site: PoolSite, generation: int, wanted: Slices, without: frozenset[ClaimFeature]
) -> tuple[PublishedSlice, ...]:
    return tuple(
        PublishedSlice(
            slice_name(number, site.node), generation, len(wanted), devices, site.uid, without
        )
        for number, devices in enumerate(wanted)
    )


def _same(stored: PublishedSlice, wanted: PublishedSlice) -> bool:
    """Whether a slice says what it should; times that nobody has chosen are the server's."""
    return stored == wanted or (
        stored.devices != wanted.devices
        and without_times(stored.devices) == without_times(wanted.devices)
        and _head(stored) == _head(wanted)
    )


def _head(part: PublishedSlice) -> tuple[object, ...]:
    return part.generation, part.count, part.owner, part.without


def without_times(devices: Sequence[OfferedDevice]) -> tuple[object, ...]:
    """The devices, but for when taints were added."""
    return tuple(
        (
            device.name,
            device.attributes,
            device.capacities,
            device.shared,
            tuple((taint.key, taint.effect) for taint in device.taints),
        )
        for device in devices
    )


def dropped(
    written: Sequence[OfferedDevice], stored: Sequence[OfferedDevice]
) -> frozenset[ClaimFeature]:
    """The features of which the server kept nothing: their gates are off.

    It drops their fields in silence (dropDisabledFields, pkg/registry/resource/resourceslice).
    """
    shown = {device.name: device for device in stored}
    pairs = [(device, shown[device.name]) for device in written if device.name in shown]
    missing = set()
    if any(device.shared and not after.shared for device, after in pairs):
        missing.add(ClaimFeature.CONSUMABLE_CAPACITY)
    if any(device.taints and not after.taints for device, after in pairs):
        missing.add(ClaimFeature.DEVICE_TAINTS)
    return frozenset(missing)


def last_shown(stored: Iterable[PublishedSlice]) -> Before:
    """The devices that slices have, by name."""
    return {device.name: device for part in stored for device in part.devices}


def written_without(stored: Iterable[PublishedSlice]) -> frozenset[ClaimFeature]:
    """The features that the slices do without."""
    return frozenset(feature for part in stored for feature in part.without)
