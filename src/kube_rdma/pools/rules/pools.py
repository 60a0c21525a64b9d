"""Makes the pools of a node: gives each PoolSpec its cards, and finds specs that disagree.

It takes the cards that pools/rules/selection makes; adapters/kubelet sends the resulting Offer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.model import pools as model
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import RDMA_MODULES
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.selection import Functions, why_not

Held = Mapping[str, Collection[CardId]]  # which cards pods hold, by resource


class Clash(Frozen):
    """A card that two specs select; only `first` gets it if the clash is `fatal`, else both."""

    card: Card
    first: model.PoolSpec
    second: model.PoolSpec
    fatal: bool  # a mode of the two owns its cards

    def __str__(self) -> str:
        """Return a sentence that names the card, both pools and the consequence."""
        both = f"{self.first.resource} ({self.first.source}) and {self.second.resource}"
        consequence = (
            f"it stays with {self.first.resource}, for mode "
            f"{self.first.mode if terms(self.first).owns else self.second.mode} shares no card"
            if self.fatal
            else "so their shares count it twice"
        )
        return f"{self.card.name} belongs to {both} ({self.second.source}); {consequence}"


def resolve(
    specs: Sequence[model.PoolSpec], node: Sequence[Card], survey: Survey, held: Held | None = None
) -> tuple[tuple[model.Pool, ...], tuple[Clash, ...]]:
    """Return the pool of each spec, in order of the specs, and the cards that several specs select.

    A card that two specs select belongs to both, unless the mode of either owns its cards. Then it
    belongs to the spec by which pods hold it, else to the first. `held` says by resource which
    cards pods hold. A held card stays in its pool as long as it is in `node`, for its devices in a
    pod may be hidden. A card whose port is down stays in its pool too. If shares stand for the
    whole pool, each is healthy while one card is usable. A pool without cards has no shares.
    """
    functions: Functions = {
        card.function.position.pci: card.function for card in node if card.function
    }
    cards: list[list[Card]] = [[] for _ in specs]
    clashes: list[Clash] = []
    for card in node:
        candidates = _candidates(card, specs, functions, held or {})
        for index in candidates:
            first, second = specs[candidates[0]], specs[index]
            fatal = terms(first).owns or terms(second).owns
            if index != candidates[0]:
                clashes.append(Clash(card, first, second, fatal))
            if index == candidates[0] or not fatal:
                cards[index].append(card)
    rdma_cm = survey.rdma_cm.path if survey.rdma_cm else None
    pools = (
        model.Pool(spec, tuple(shares_of(spec, mine)), tuple(mine), rdma_cm)
        for spec, mine in zip(specs, cards, strict=True)
    )
    return tuple(pools), tuple(clashes)


def owners(
    specs: Sequence[model.PoolSpec], node: Sequence[Card], held: Held | None = None
) -> dict[CardId, model.PoolSpec]:
    """Return by card the spec that has it; skip cards in no pool.

    Of several specs it is one by which pods hold the card, else the first.
    """
    functions: Functions = {
        card.function.position.pci: card.function for card in node if card.function
    }
    by_card = ((card.id, _candidates(card, specs, functions, held or {})) for card in node)
    return {name: specs[candidates[0]] for name, candidates in by_card if candidates}


def _candidates(
    card: Card, specs: Sequence[model.PoolSpec], functions: Functions, held: Held
) -> Sequence[int]:
    """Return the indexes of specs that select `card`; specs by which pods hold it come first."""
    holding = [card.id in held.get(spec.resource, ()) for spec in specs]
    meaning = (
        place
        for place, spec in enumerate(specs)
        if holding[place] or why_not(spec, card, functions) is None
    )
    return sorted(meaning, key=lambda place: not holding[place])


def offer(pool: model.Pool) -> model.Offer:
    """Return the Offer that the kubelet receives for `pool`.

    It is gated where a container may wait for a network or for kernel limits, so that the kubelet
    calls PreStartContainer. An Offer of a pool that claims serve has no share, so that the
    scheduler uses claims (allocatable 0). It is not gated either, for the kubelet would refuse a
    container that has no share (kubernetes@v1.36.3 devicemanager/manager.go,
    callPreStartContainerIfNeeded). It stays registered: without that the kubelet would refuse the
    pods of claims as long as older pods hold shares (GetDeviceRunContainerOptions):
    docs/decisions/0107.
    """
    if pool.spec.serve is model.Serving.CLAIMS:
        return model.Offer(pool.spec.resource, ())
    row = terms(pool.spec)
    return model.Offer(
        pool.spec.resource,
        pool.shares,
        prefers=row.bind is model.Bind.PER_CARD,
        gated=row.attach is not model.Attach.NONE or pool.spec.limits is not None,
    )


def shares_of(spec: model.PoolSpec, cards: Sequence[Card]) -> Iterator[model.Share]:
    """Yield the shares that a pool of these cards offers, card by card."""
    row = terms(spec)
    if row.bind is model.Bind.POOL:
        healthy = any(card.usable for card in cards)
        count = row.shares if cards else 0
        prefix = "" if spec.bare_ids else f"{spec.mode}-"
        yield from (model.Share(model.ShareId(f"{prefix}{n}"), healthy) for n in range(count))
        return
    for card in cards:
        hint = card.numa_node if spec.numa_hints else None
        nodes = () if hint is None else (hint,)
        slots = [f"{card.id}-{slot}" for slot in range(row.shares)] if row.numbered else [card.id]
        for name in slots:
            yield model.Share(model.ShareId(name), card.usable, nodes, card.id)


# Specs among themselves, before any node is looked at.

# Fields of a Selector that name single cards, and those that narrow a choice down.
_NAMING = ("pci_addresses", "interfaces", "rdma_devices", "acpi_indexes")
_RANGES = ("physical", "roots")
_NARROWING = ("vendors", "device_ids", "drivers", "link_types", "auxiliary_types", "pkeys")


def with_defaults(spec: model.PoolSpec) -> model.PoolSpec:
    """Return the spec with its mode's defaults in fields that it leaves out."""
    row = terms(spec)
    return replace(spec, shares=row.shares, bind=row.bind, attach=row.attach, prefer=row.prefer)


def faults(specs: Sequence[model.PoolSpec]) -> tuple[Refused, ...]:
    """Return refusals of specs with too many shares, or that contradict each other on every node.

    The refusals are in the order of the specs.
    """
    refusals: list[Refused] = []
    for index, spec in enumerate(specs):
        most = MODES[spec.mode].most
        if most is not None and spec.shares is not None and spec.shares > most:
            problem = f"{spec.shares} shares of a card are more than mode {spec.mode} has"
            remedy = f"Write {most} or less, or leave shares out"
            refusals.append(Refused(problem, remedy=remedy, where=spec.source))
        refusals += _beside(spec, specs[:index])
    return tuple(refusals)


def warnings(specs: Sequence[model.PoolSpec]) -> tuple[str, ...]:
    """Return sentences about valid specs that are probably mistakes."""
    of_modules = {module: driver for driver, module in RDMA_MODULES.items()}
    idle = tuple(
        f"{selector.source or spec.source}: no card has the driver {name}, which is the module of "
        f"its RDMA devices. Did you mean {of_modules[name]}?"
        for spec in specs
        for selector in spec.selectors
        if selector.drivers and all(name in of_modules for name in selector.drivers)
        for name in selector.drivers
    )
    return idle + tuple(
        f"{first.resource} ({first.source}) and {second.resource} ({second.source}) both have "
        f"{what}, so its shares are counted twice"
        for first, second in combinations(specs, 2)
        if (what := _common(first, second)) and not _owner(first, second)
    )


def _beside(spec: model.PoolSpec, before: Sequence[model.PoolSpec]) -> Iterator[Refused]:
    """Yield refusals of `spec` beside earlier ones: one resource twice, or a card that one owns."""
    if twin := next((first for first in before if first.resource == spec.resource), None):
        problem = f"the resource {spec.resource} is given twice"
        remedy = f"Rename one, the first is {twin.source}"
        yield Refused(problem, remedy=remedy, where=spec.source)
        return
    for first in before:
        owner, what = _owner(first, spec), _common(first, spec)
        if owner and what:
            both = f"{spec.resource} and {first.resource} both have {what}"
            problem = f"{both}, and mode {owner} shares no card"
            remedy = f"Change the selectors of this pool or of {first.source}"
            yield Refused(problem, remedy=remedy, where=spec.source)


def _owner(first: model.PoolSpec, second: model.PoolSpec) -> str | None:
    """Return which mode of the two specs needs its cards exclusively, None if neither does."""
    return next((spec.mode for spec in (first, second) if MODES[spec.mode].owns), None)


def _common(first: model.PoolSpec, second: model.PoolSpec) -> str | None:
    """Return words for cards that one spec selects only where the other does; None if unsure."""
    if not first.selectors and not second.selectors:
        return "every card"
    pairs = ((one, other) for one in first.selectors for other in second.selectors)
    return next((what for pair in pairs if (what := meeting(*pair))), None)


def meeting(first: model.Selector, second: model.Selector) -> str | None:
    """Name a card or range that both selectors list, unless their other fields keep them apart."""
    named: dict[str, str] = {}
    for name in _NAMING:
        others = getattr(second, name)
        if what := next((str(value) for value in getattr(first, name) if value in others), None):
            named[name] = what
    for name in _RANGES:
        if what := _crossing(getattr(first, name), getattr(second, name)):
            named[name] = what
    if len(named) != 1:  # none, or two ways to name a card that may be different ones
        equal = replace(first, source="") == replace(second, source="")
        return next(iter(named.values()), None) if equal else None
    (name,) = named
    return named[name] if _within(first, second, name) or _within(second, first, name) else None


def _within(narrow: model.Selector, wide: model.Selector, name: str) -> bool:
    """Decide whether selector `narrow` demands all that `wide` does, apart from field `name`."""
    for field in (*_NAMING, *_RANGES, *_NARROWING):
        wanted = set(getattr(wide, field))
        if field != name and wanted and not set(getattr(narrow, field) or ("",)) <= wanted:
            return False
    return wide.rdma is None or wide.rdma is narrow.rdma


def _crossing(
    first: Sequence[model.FunctionRange], second: Sequence[model.FunctionRange]
) -> str | None:
    """Return functions in both ranges: ens2f0#4-7, or ens2f0 if both mean all; else None."""
    for one, other in ((a, b) for a in first for b in second if a.parent == b.parent):
        if not one.indexes or not other.indexes:
            return str(one if one.indexes else other)
        for begin, end in one.indexes:
            for start, stop in other.indexes:
                if begin <= stop and start <= end:
                    both = (max(begin, start), min(end, stop))
                    return str(replace(one, indexes=(both,)))
    return None


# NodePolicies of a cluster, put together for one node.


def node_specs(
    policies: Iterable[model.ClusterNodePolicy], labels: Iterable[tuple[str, str]]
) -> model.NodeSpecs:
    """Return the pools, functions and rails that policies want on a node with these labels."""
    node_labels = frozenset(labels)
    own = sorted(  # the winner of each pair first
        (policy for policy in policies if node_labels.issuperset(policy.selector)),
        key=lambda policy: (-policy.priority, policy.name),
    )
    pools: dict[str, tuple[model.ClusterNodePolicy, model.PoolSpec]] = {}
    overlaps = []
    for policy in own:
        for pool in policy.pools:
            winner, _ = pools.setdefault(pool.resource, (policy, pool))
            if winner is not policy and winner.priority == policy.priority:
                what = f"name the resource {pool.resource}"
                overlaps.append(_overlap(winner, policy, what))
    rails = [policy for policy in own if policy.rails]
    overlaps += [
        _overlap(rails[0], policy, "order the rails")
        for policy in rails[1:]
        if policy.priority == rails[0].priority and policy.rails != rails[0].rails
    ]
    return model.NodeSpecs(
        tuple(pool for _, pool in pools.values()),
        tuple(spec for policy in own for spec in policy.functions),
        rails[0].rails if rails else (),
        tuple(overlaps),
        tuple(own),
    )


def _overlap(winner: model.ClusterNodePolicy, policy: model.ClusterNodePolicy, what: str) -> str:
    return (
        f"NodePolicy {winner.name} and NodePolicy {policy.name} both {what} with priority "
        f"{policy.priority}; {winner.name} counts. Give one of them a higher priority"
    )
