"""Decides what has to be written so that the slices of a node say what it offers.

It stands behind claims/rules/shape; claims/publisher carries out its decisions. The rules of a pool
(k8s.io/api/resource/v1/types.go, ResourcePool): all its slices have one generation and say how many
they are. Nothing of a pool is allocated while some are missing. So a change of a single slice
keeps the generation, as the helper of Go drivers does (k8s.io/dynamic-resource-allocation/
resourceslice). So do changes in which no device comes, goes or moves, such as a taint: each slice
is right by itself. Any other change begins a new generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_base.frozen import Frozen, replace
from kube_rdma.claims.rules.shape import PublishedDevices, Slices, slice_name
from kube_rdma.model.claims import devices as model


class Publication(Frozen):
    """The changes of ResourceSlices to write: `removed` first, then `changed`, then `created`.

    The scheduler allocates nothing of a pool until all its slices are there.
    """

    removed: tuple[model.ResourceSlice, ...] = ()
    changed: tuple[model.ResourceSlice, ...] = ()
    created: tuple[model.ResourceSlice, ...] = ()

    def __len__(self) -> int:
        """Return the number of slices to write or remove."""
        return len(self.removed) + len(self.changed) + len(self.created)


class PoolSite(Frozen):
    """The name and uid of the Node that owns a pool of ResourceSlices."""

    node: str
    uid: str


def publication(
    site: PoolSite,
    stored: Iterable[model.ResourceSlice],
    wanted: Slices,
    without: frozenset[model.ClaimFeature] = frozenset(),
) -> Publication:
    """Return the changes of slices to write; none if the stored ones are right already."""
    mine = {part.name: part for part in stored}
    latest = max((part.spec.pool.generation for part in mine.values()), default=0)
    for generation in (latest, latest + 1):
        target = pool_slices(site, generation, wanted, without)
        names = {part.name for part in target}
        result = Publication(
            removed=tuple(part for name, part in sorted(mine.items()) if name not in names),
            changed=tuple(p for p in target if p.name in mine and not _same(mine[p.name], p)),
            created=tuple(part for part in target if part.name not in mine),
        )
        if mine and not result.created and (len(result.changed) <= 1 or _stay(mine, result)):
            return result
    return result


def pool_slices(
    site: PoolSite,
    generation: int,
    wanted: Slices,
    without: frozenset[model.ClaimFeature] = frozenset(),
) -> tuple[model.ResourceSlice, ...]:
    """Return the ResourceSlices of a node's pool, one for each group of devices."""
    pool = model.SlicePool(site.node, generation, len(wanted))
    return tuple(
        model.ResourceSlice(
            slice_name(number, site.node),
            model.SliceSpec(model.DRIVER, pool, devices, node_name=site.node),
            site.uid,
            without,
        )
        for number, devices in enumerate(wanted)
    )


def _stay(mine: Mapping[str, model.ResourceSlice], writes: Publication) -> bool:
    """Return whether all devices stay in their slices, and no slice is removed."""
    return not writes.removed and all(
        old.spec.pool == new.spec.pool
        and [one.name for one in old.spec.devices] == [one.name for one in new.spec.devices]
        for old, new in ((mine[part.name], part) for part in writes.changed)
    )


def _same(stored: model.ResourceSlice, wanted: model.ResourceSlice) -> bool:
    """Return whether a stored slice equals the wanted one, apart from the times of taints."""
    return stored == wanted or _without_times(stored) == _without_times(wanted)


def _without_times(part: model.ResourceSlice) -> model.ResourceSlice:
    devices = tuple(
        replace(device, taints=tuple(replace(one, time_added="") for one in device.taints))
        for device in part.spec.devices
    )
    return replace(part, spec=replace(part.spec, devices=devices))


def dropped(
    written: Sequence[model.ListedDevice], stored: Sequence[model.ListedDevice]
) -> frozenset[model.ClaimFeature]:
    """Return the features whose fields the server dropped, as their gates are off.

    It drops their fields in silence (dropDisabledFields, pkg/registry/resource/resourceslice).
    """
    shown = {device.name: device for device in stored}
    pairs = [(device, shown[device.name]) for device in written if device.name in shown]
    missing = set()
    if any(device.shared and not after.shared for device, after in pairs):
        missing.add(model.ClaimFeature.CONSUMABLE_CAPACITY)
    if any(device.taints and not after.taints for device, after in pairs):
        missing.add(model.ClaimFeature.DEVICE_TAINTS)
    return frozenset(missing)


def published_devices(stored: Iterable[model.ResourceSlice]) -> PublishedDevices:
    """Return all devices of these slices by name."""
    return {device.name: device for part in stored for device in part.spec.devices}
