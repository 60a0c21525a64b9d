"""Finds the pools of devices that a node can reach, and what is wrong with them.

claims/rules/search calls it. The rules are those of k8s.io/dynamic-resource-allocation v0.36.3,
structured/internal/incubating/pools_incubating.go. Only the newest generation counts, and a pool of
which slices are missing, or with two devices of a name, gives nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product

from kube_base.frozen import Frozen, replace
from kube_rdma.model.claims.claim import ClaimNode
from kube_rdma.model.claims.devices import (
    CounterSet,
    DeviceSelector,
    ListedDevice,
    NodeChoice,
    ResourceSlice,
    RuleTaint,
    SliceDevice,
    SliceSpec,
    TaintRuleSpec,
)
from kube_rdma.operator.rules.placement import REQUIRED, allows


class DevicePool(Frozen):
    """A pool of ResourceSlices as one node sees it.

    Nothing is allocated from an incomplete or invalid pool.
    """

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()  # with devices for the node
    elsewhere: tuple[ResourceSlice, ...] = ()  # with devices for other nodes only
    counter_sets: Mapping[str, CounterSet] = {}
    incomplete: str = ""  # a few words why
    invalid: str = ""

    @property
    def fault(self) -> str:
        """Return why the scheduler allocates nothing from the pool; empty without a fault."""
        return self.incomplete or self.invalid

    @property
    def has_bindings(self) -> bool:
        """Return whether a device of a pool without fault has conditions to meet before its use."""
        devices = () if self.fault else self.devices()
        return any(device.binding_conditions is not None for _, device, _ in devices)

    def devices(self) -> Iterator[tuple[SliceDevice, ListedDevice, ResourceSlice]]:
        """Yield the devices of `slices` in order; `is_for` says which are for the node."""
        for part in self.slices:
            for device in part.spec.devices:
                yield SliceDevice(self.driver, self.name, device.name), device, part


def ruled(
    slices: Iterable[ResourceSlice], rules: Mapping[str, TaintRuleSpec]
) -> tuple[ResourceSlice, ...]:
    """Return slices with the taints that DeviceTaintRules add to their devices; `rules` by name.

    The scheduler does so before it looks at a device (v0.37.2, resourceslice/tracker/tracker.go).
    """
    taints: dict[DeviceSelector, list[RuleTaint]] = defaultdict(list)
    for name, rule in rules.items():
        if rule.device_selector is not None:
            added = RuleTaint(rule.taint.key, rule.taint.effect, rule.taint.value, rule=name)
            taints[rule.device_selector].append(added)

    def devices(spec: SliceSpec) -> Iterator[ListedDevice]:
        for device in spec.devices:
            names = product((None, spec.driver), (None, spec.pool.name), (None, device.name))
            added = chain.from_iterable(taints.get(DeviceSelector(*each), ()) for each in names)
            yield replace(device, taints=(*device.taints, *added))

    return tuple(
        replace(one, spec=replace(one.spec, devices=tuple(devices(one.spec)))) if taints else one
        for one in slices
    )


def pools_of(node: ClaimNode, slices: Sequence[ResourceSlice]) -> tuple[DevicePool, ...]:
    """Return a node's pools in the scheduler's order: those with binding conditions come last."""
    newest: dict[tuple[str, str], list[ResourceSlice]] = {}
    local = [one for one in slices if one.spec.node_name == node.name and not one.spec.counter_sets]
    others = (one for one in slices if not one.spec.node_name or one.spec.counter_sets)
    for part in (*local, *others):
        if not _is_relevant(part, node):
            continue
        parts = newest.setdefault(_key(part), [])
        if parts and _generation(part) > _generation(parts[0]):
            parts.clear()
        if not parts or _generation(part) == _generation(parts[0]):
            parts.append(part)
    pools = filter(None, (_pool(parts, slices) for parts in newest.values()))
    return tuple(sorted(pools, key=lambda one: (one.has_bindings, one.driver, one.name)))


def is_for(choice: NodeChoice, node: ClaimNode) -> bool:
    """Return whether a slice or a device can be used on a node."""
    if choice.node_name:
        return choice.node_name == node.name
    if choice.all_nodes or choice.node_selector is None:
        return bool(choice.all_nodes)
    return allows({REQUIRED: choice.node_selector}, node.name, node.labels)


def _key(part: ResourceSlice) -> tuple[str, str]:
    return part.spec.driver, part.spec.pool.name


def _generation(part: ResourceSlice) -> int:
    return part.spec.pool.generation


def _is_relevant(part: ResourceSlice, node: ClaimNode) -> bool:
    spec = part.spec
    if spec.counter_sets:
        return True
    if spec.is_set:
        return is_for(spec, node)
    return bool(spec.per_device) and any(is_for(device, node) for device in spec.devices)


def _pool(parts: list[ResourceSlice], slices: Sequence[ResourceSlice]) -> DevicePool | None:
    """Return the pool made of these slices; None if other slices have a newer generation."""
    first, count = parts[0], parts[0].spec.pool.slices
    if len(parts) == count:
        return _built(parts, parts)
    whole = [one for one in slices if _key(one) == _key(first)]
    if any(_generation(one) > _generation(first) for one in whole):
        return None
    whole = [one for one in whole if _generation(one) == _generation(first)]
    if len(whole) != count:
        text = f"{len(whole)} of its {count} slices are there"
        return DevicePool(*_key(first), tuple(parts), incomplete=text)
    return _built(parts, whole)


def _built(parts: list[ResourceSlice], whole: list[ResourceSlice]) -> DevicePool:
    """Return the pool of a node's slices. `whole` has all slices, also those for other nodes."""
    named = sorted(parts, key=lambda one: one.name)
    devices = tuple(one for one in named if not one.spec.counter_sets)
    names = Counter(device.name for part in devices for device in part.spec.devices)
    sets = [one for part in named for one in part.spec.counter_sets]
    counter_sets = {one.name: one for one in sets}
    fault = (
        _twice("device", names)
        or _twice("counter set", Counter(one.name for one in sets))
        or _unknown_counter(named, counter_sets)
    )
    elsewhere: tuple[ResourceSlice, ...] = ()
    if not fault and len(whole) != len(parts):
        mine = {one.name for one in parts}
        elsewhere = tuple(one for one in whole if one.name not in mine)
        fault = _unknown_counter(elsewhere, counter_sets)
    return DevicePool(*_key(named[0]), devices, elsewhere, counter_sets, invalid=fault)


def _twice(what: str, names: Counter[str]) -> str:
    twice = next((name for name, count in names.items() if count > 1), "")
    return f"{what} {twice} is there twice" if twice else ""


def _unknown_counter(parts: Iterable[ResourceSlice], sets: Mapping[str, CounterSet]) -> str:
    for device in (device for part in parts for device in part.spec.devices):
        for use in device.uses:
            if use.counter_set not in sets:
                return f"device {device.name} uses counter set {use.counter_set}, there is none"
            unknown = sorted(use.counters.keys() - sets[use.counter_set].counters.keys())
            if unknown:
                return f"device {device.name} uses counter {unknown[0]}, there is none"
    return ""
