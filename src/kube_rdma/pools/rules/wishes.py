"""Judges the wishes for pools among themselves, before any node is looked at.

Between api, which makes each wish, and pools/rules/pools, which meets them with a node: what the
mode does not allow, and cards that two pools mean for sure. That two pools meet on one card only on
some nodes cannot be told here; pools/rules/pools finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model.pools.pool import FunctionRange, PoolSpec, Selector
from kube_rdma.pools.rules.modes import MODES, terms

# Fields of a Selector that name single cards, and those that narrow a choice down.
_NAMING = ("pci_addresses", "interfaces", "rdma_devices", "acpi_indexes")
_RANGES = ("physical", "roots")
_NARROWING = ("vendors", "device_ids", "drivers", "link_types", "auxiliary_types", "pkeys")


def with_defaults(spec: PoolSpec) -> PoolSpec:
    """The wish with nothing left unsaid: what it leaves to the mode is filled in."""
    row = terms(spec)
    return replace(spec, shares=row.shares, bind=row.bind, attach=row.attach, prefer=row.prefer)


def faults(specs: Sequence[PoolSpec]) -> tuple[Refused, ...]:
    """What makes these wishes impossible on every node, in their order."""
    refusals: list[Refused] = []
    for index, spec in enumerate(specs):
        refusals += _too_many(spec)
        refusals += _beside(spec, specs[:index])
    return tuple(refusals)


def warnings(specs: Sequence[PoolSpec]) -> tuple[str, ...]:
    """What is possible and probably not meant: sentences."""
    return tuple(
        f"{first.resource} ({first.source}) and {second.resource} ({second.source}) both have "
        f"{what}, so its shares are counted twice"
        for first, second in combinations(specs, 2)
        if (what := _common(first, second)) and not _owner(first, second)
    )


def _too_many(spec: PoolSpec) -> Iterator[Refused]:
    most = MODES[spec.mode].most
    if most is not None and spec.shares is not None and spec.shares > most:
        problem = f"{spec.shares} shares of a card are more than mode {spec.mode} has"
        remedy = f"Write {most} or less, or leave shares out"
        yield Refused(problem, remedy=remedy, where=spec.source)


def _beside(spec: PoolSpec, before: Sequence[PoolSpec]) -> Iterator[Refused]:
    """What keeps `spec` from standing beside those before it."""
    if twin := next((first for first in before if first.resource == spec.resource), None):
        problem = f"the resource {spec.resource} is given twice"
        remedy = f"Rename one, the first is {twin.source}"
        yield Refused(problem, remedy=remedy, where=spec.source)
        return
    for first in before:
        owner, what = _owner(first, spec), _common(first, spec)
        if owner and what:
            problem = f"{first.resource} has {what} too, and mode {owner} shares no card"
            remedy = f"Change the selectors of this pool or of {first.source}"
            yield Refused(problem, remedy=remedy, where=spec.source)


def _owner(first: PoolSpec, second: PoolSpec) -> str | None:
    """The mode that has its cards for itself, when one of the two is such."""
    return next((spec.mode for spec in (first, second) if MODES[spec.mode].owns), None)


def _common(first: PoolSpec, second: PoolSpec) -> str | None:
    """Cards that both pools mean wherever one of them means them; None when that is not certain."""
    if not first.selectors and not second.selectors:
        return "every card"
    pairs = ((one, other) for one in first.selectors for other in second.selectors)
    return next((what for pair in pairs if (what := meeting(*pair))), None)


def meeting(first: Selector, second: Selector) -> str | None:
    """What two selectors name both, when what else they demand cannot keep them apart."""
    shared = {name: _shared(getattr(first, name), getattr(second, name)) for name in _NAMING}
    shared |= {name: _crossing(getattr(first, name), getattr(second, name)) for name in _RANGES}
    named = {name: what for name, what in shared.items() if what}
    if len(named) != 1:  # none, or two ways to name a card that may be different ones
        return next(iter(named.values()), None) if _equal(first, second) else None
    (name,) = named
    return named[name] if _within(first, second, name) or _within(second, first, name) else None


def _equal(first: Selector, second: Selector) -> bool:
    return replace(first, source="") == replace(second, source="")


def _within(narrow: Selector, wide: Selector, name: str) -> bool:
    """Whether `narrow` demands, besides `name`, everything that `wide` does."""
    for field in (*_NAMING, *_RANGES, *_NARROWING):
        wanted = set(getattr(wide, field))
        if field != name and wanted and not set(getattr(narrow, field) or ("",)) <= wanted:
            return False
    return wide.rdma is None or wide.rdma is narrow.rdma


def _shared(first: Sequence[object], second: Sequence[object]) -> str | None:
    return next((str(value) for value in first if value in second), None)


def _crossing(first: Sequence[FunctionRange], second: Sequence[FunctionRange]) -> str | None:
    """The physical function of which both have the same virtual ones."""
    pairs = ((a, b) for a in first for b in second if a.parent == b.parent)
    return next((a.parent for a, b in pairs if _ranges_cross(a, b)), None)


def _ranges_cross(left: FunctionRange, right: FunctionRange) -> bool:
    if not left.indexes or not right.indexes:
        return True
    return any(a <= last and first <= b for a, b in left.indexes for first, last in right.indexes)
