"""The pools of devices that a node can reach: which slices count, and what is wrong with them.

Called by claims/rules/search. As k8s.io/dynamic-resource-allocation v0.36.3 has it,
structured/internal/incubating/pools_incubating.go: only the newest generation counts; a pool of
which slices are missing, or with two devices of a name, gives nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.model.claims.claim import ClaimNode
from kube_rdma.model.claims.devices import ListedDevice, ListedSlice, NodeChoice, SliceDevice
from kube_rdma.operator.rules.placement import REQUIRED, allows

_CounterSets = Mapping[str, Mapping[str, Fraction]]


class DevicePool(Frozen):
    """A pool as a node sees it: `slices` have devices for the node, `elsewhere` for others only.

    Where it is `incomplete` or `invalid` (a few words why), nothing is allocated from it.
    """

    driver: str
    name: str
    slices: tuple[ListedSlice, ...] = ()
    elsewhere: tuple[ListedSlice, ...] = ()
    counter_sets: Mapping[str, Mapping[str, Fraction]] = {}
    incomplete: str = ""
    invalid: str = ""

    def devices(self) -> Iterator[tuple[SliceDevice, ListedDevice, ListedSlice]]:
        """Those for the node, in their order."""
        for part in self.slices:
            for device in part.devices:
                yield SliceDevice(self.driver, self.name, device.name), device, part


def pools_of(node: ClaimNode, slices: Sequence[ListedSlice]) -> tuple[DevicePool, ...]:
    """The pools in the scheduler's order; those with binding conditions come last."""
    newest: dict[tuple[str, str], list[ListedSlice]] = {}
    local = [one for one in slices if _is_local(one) and one.nodes.node == node.name]
    for part in (*local, *(one for one in slices if not _is_local(one))):
        if not _is_relevant(part, node):
            continue
        parts = newest.setdefault((part.driver, part.pool), [])
        if parts and part.generation > parts[0].generation:
            parts.clear()
        if not parts or part.generation == parts[0].generation:
            parts.append(part)
    pools = [_pool(parts, slices) for parts in newest.values()]
    return tuple(sorted(filter(None, pools), key=lambda one: (_has_bindings(one), _id(one))))


def is_for(choice: NodeChoice, node: ClaimNode) -> bool:
    """Whether a slice or a device is for a node."""
    if choice.node:
        return choice.node == node.name
    if choice.every or choice.selector is None:
        return choice.every
    return allows({REQUIRED: choice.selector}, node.name, node.labels)


def _is_local(part: ListedSlice) -> bool:
    return bool(part.nodes.node) and not part.counter_sets


def _is_relevant(part: ListedSlice, node: ClaimNode) -> bool:
    if part.counter_sets:
        return True
    if part.nodes.is_set:
        return is_for(part.nodes, node)
    return part.per_device and any(is_for(device.nodes, node) for device in part.devices)


def _pool(parts: list[ListedSlice], slices: Sequence[ListedSlice]) -> DevicePool | None:
    """The pool of slices of a generation; None if a newer one exists for other nodes."""
    first = parts[0]
    if len(parts) == first.slices:
        return _built(parts, None)
    whole = [one for one in slices if (one.driver, one.pool) == (first.driver, first.pool)]
    if any(one.generation > first.generation for one in whole):
        return None
    whole = [one for one in whole if one.generation == first.generation]
    if len(whole) != first.slices:
        text = f"{len(whole)} of its {first.slices} slices are there"
        return DevicePool(first.driver, first.pool, tuple(parts), incomplete=text)
    return _built(parts, whole)


def _built(parts: list[ListedSlice], whole: list[ListedSlice] | None) -> DevicePool:
    first, named = parts[0], sorted(parts, key=lambda one: one.name)
    devices = tuple(one for one in named if not one.counter_sets)
    pool = DevicePool(first.driver, first.pool, devices)
    names = Counter(device.name for part in devices for device in part.devices)
    sets = [one for part in named for one in part.counter_sets]
    fault = _twice("device", names) or _twice("counter set", Counter(name for name, _ in sets))
    counter_sets = dict(sets)
    fault = fault or _unknown_counter(named, counter_sets)
    elsewhere: tuple[ListedSlice, ...] = ()
    if not fault and whole is not None and len(whole) != len(parts):
        mine = {one.name for one in parts}
        elsewhere = tuple(one for one in whole if one.name not in mine)
        fault = _unknown_counter(elsewhere, counter_sets)
    return DevicePool(pool.driver, pool.name, devices, elsewhere, counter_sets, invalid=fault)


def _twice(what: str, names: Counter[str]) -> str:
    twice = next((name for name, count in names.items() if count > 1), "")
    return f"{what} {twice} is there twice" if twice else ""


def _unknown_counter(parts: Iterable[ListedSlice], sets: _CounterSets) -> str:
    for part in parts:
        for device in part.devices:
            for use in device.uses:
                if use.counter_set not in sets:
                    return f"device {device.name} uses counter set {use.counter_set}, there is none"
                unknown = sorted(set(use.counters) - set(sets[use.counter_set]))
                if unknown:
                    return f"device {device.name} uses counter {unknown[0]}, there is none"
    return ""


def _has_bindings(pool: DevicePool) -> bool:
    unusable = pool.incomplete or pool.invalid
    return not unusable and any(device.has_bindings for _, device, _ in pool.devices())


def _id(pool: DevicePool) -> tuple[str, str]:
    return pool.driver, pool.name
