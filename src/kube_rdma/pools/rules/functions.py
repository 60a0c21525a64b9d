"""Meets the wishes for virtual functions with a node: what can be done, what waits, what is wrong.

Between api, which makes the wishes, and adapters/kernel/sriov/functions, which runs the acts. The
kernel changes a number only by way of zero, so whoever uses one function stands in the way of all
of its card. The same wishes and the same node make the same plan, so functions that a reboot took
away are made again by nothing but the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from shlex import quote
from types import MappingProxyType

from kube_base.errors import Refused
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId, Function, Netdev, Use
from kube_rdma.model.device import Device, PciAddress
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import (
    Bind,
    FunctionRange,
    FunctionsPlan,
    FunctionsWish,
    Pool,
    PoolSpec,
    Selector,
    SetFunctions,
    ShareId,
)
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.pools import meeting
from kube_rdma.pools.rules.selection import unmet

Held = Mapping[CardId, Sequence[str]]  # by card the pods, namespace/name, that hold it
Uses = Mapping[str, Use]  # by interface; of one that is not in it nobody knows


def function_faults(wishes: Sequence[FunctionsWish]) -> tuple[Refused, ...]:
    """What makes these wishes impossible on every node: two numbers for a card that both name."""
    return tuple(
        _disagreement(what, first, second)
        for first, second in combinations(wishes, 2)
        if _differ(first, second) and (what := _both(first, second))
    )


def held_functions(holdings: Sequence[Holding], pools: Mapping[str, Pool]) -> Held:
    """By card the pods that hold it, by resources of kube-rdma or of another device plugin.

    `pools` are those that are offered. The shares of other SR-IOV device plugins are PCI addresses,
    and those of a pool that is no longer offered begin with one.
    """
    pods_by_card: dict[CardId, dict[str, None]] = {}
    for holding in holdings:
        pool = pools.get(holding.resource)
        for share in holding.shares:
            for card in _cards_of(share, pool):
                pods_by_card.setdefault(card, {})[f"{holding.namespace}/{holding.pod}"] = None
    return {card: tuple(pods) for card, pods in pods_by_card.items()}


def plan_functions(
    wishes: Sequence[FunctionsWish],
    survey: Survey,
    held: Held | None,
    ours: Collection[PciAddress],
    uses: Uses = MappingProxyType({}),
) -> FunctionsPlan:
    """What follows from the wishes on this node now.

    `held` says who holds which card, None that nobody can tell. `ours` are the physical functions
    whose virtual ones the agent answers for; those of others are changed only by force. `uses` is
    about the interfaces that `in_question` names.
    """
    functions = {function.seat.pci: function for function in survey.functions}
    meant: dict[PciAddress, list[FunctionsWish]] = {}
    waits: list[str] = []
    for wish in wishes:
        chosen = [
            pci
            for pci, one in functions.items()
            if any(_chosen(selector, one, functions) for selector in wish.selectors)
        ]
        for pci in chosen:
            meant.setdefault(pci, []).append(wish)
        if not chosen:
            waits.append(f"no card of this node can have the virtual functions of {wish.source}")
    acts, refusals, kept, waiting = [], [], [], []
    node = _Node(survey, functions, held, ours, uses)
    for pci, those in sorted(meant.items()):
        match node.meet(functions[pci], those):
            case SetFunctions() as act:
                acts.append(act)
            case Refused() as refusal:
                refusals.append(refusal)
            case str() as wait:
                waits.append(wait)
                waiting.append((those[0].source, wait))
            case None:
                kept.append(pci)
    return FunctionsPlan(tuple(acts), tuple(waits), tuple(refusals), tuple(kept), tuple(waiting))


def wished(wishes: Sequence[FunctionsWish], survey: Survey) -> dict[PciAddress, int]:
    """How many virtual functions the physical ones that any wish means are to have."""
    functions = {function.seat.pci: function for function in survey.functions}
    return {
        pci: wish.count
        for wish in wishes
        for pci, one in functions.items()
        if any(_chosen(selector, one, functions) for selector in wish.selectors)
    }


def in_question(wishes: Sequence[FunctionsWish], survey: Survey) -> frozenset[str]:
    """The interfaces of virtual functions that may have to go: ask what they are used for."""
    counts = wished(wishes, survey)
    changing = {
        one.seat.pci
        for one in survey.functions
        if counts.get(one.seat.pci) not in (None, len(one.seat.virtual_functions))
    }
    parts = (one for one in survey.functions if one.seat.physical_function in changing)
    return frozenset(netdev.name for part in parts for netdev in part.netdevs)


def _both(first: FunctionsWish, second: FunctionsWish) -> str | None:
    pairs = ((one, other) for one in first.selectors for other in second.selectors)
    return next((what for pair in pairs if (what := meeting(*pair))), None)


def _cards_of(share: ShareId, pool: Pool | None) -> Iterator[CardId]:
    if pool is None:
        yield from (CardId(share), CardId(share.rpartition("-")[0]))
    elif terms(pool.spec).bind is Bind.POOL:
        yield from (card.id for card in pool.cards)
    elif card := card_of(pool.spec, share):
        yield card


def _chosen(
    selector: Selector, function: Function, functions: Mapping[PciAddress, Function]
) -> bool:
    """Whether it is meant: one that cannot have virtual functions only if it is named itself."""
    if unmet(selector, Card(CardId(function.seat.pci), (), function), functions) is not None:
        return False
    return bool(selector.interfaces or selector.pci_addresses or function.seat.sriov_total)


def _differ(first: FunctionsWish, second: FunctionsWish) -> bool:
    return (first.count, first.autoprobe) != (second.count, second.autoprobe)


def _disagreement(name: str, first: FunctionsWish, second: FunctionsWish) -> Refused:
    says = f"{name} is to have {_describe(second)} here and {_describe(first)} by {first.source}"
    remedy = "Write the same in both, or let one choose other cards"
    return Refused(says, remedy=remedy, where=second.source)


def _describe(wish: FunctionsWish) -> str:
    drivers = "" if wish.autoprobe else " without drivers"
    return f"{wish.count} virtual functions{drivers}"


class _Node:
    """The node of one plan."""

    def __init__(
        self,
        survey: Survey,
        functions: Mapping[PciAddress, Function],
        held: Held | None,
        ours: Collection[PciAddress],
        uses: Uses,
    ) -> None:
        self._survey = survey
        self._functions = functions
        self._held = held
        self._ours = ours
        self._uses = uses

    def meet(
        self, card: Function, wishes: Sequence[FunctionsWish]
    ) -> SetFunctions | Refused | str | None:
        """What follows for one physical function from those that mean it; None when all is well."""
        wish, *others = wishes
        if other := next((one for one in others if _differ(wish, one)), None):
            return _disagreement(_name(card), wish, other)
        if refusal := _incapable(card, wish):
            return refusal
        now, forced = len(card.seat.virtual_functions), any(one.force for one in wishes)
        if now == wish.count:
            return None
        if until := next(self._obstacles(card, forced=forced), None):
            state = f"{_name(card)} stays with {now} virtual functions"
            return f"{state}; {wish.count} ({wish.source}) wait until {until}"
        refusal = (None if forced else self._unforced(card, wish)) or _down(card, wish)
        act = SetFunctions(card.seat.pci, _name(card), now, wish.count, wish.autoprobe)
        return refusal or act

    def _obstacles(self, card: Function, *, forced: bool) -> Iterator[str]:
        """Who is in the way, as what has to happen first."""
        parts = [
            self._functions[pci] for pci in card.seat.virtual_functions if pci in self._functions
        ]
        held = self._held or {}
        pods = [pod for one in (card, *parts) for pod in held.get(CardId(one.seat.pci), ())]
        if pods:
            yield f"these pods have ended: {listed(list(dict.fromkeys(pods)))}"
        if parts and self._held is None:
            yield "the kubelet reports which pods hold them: mount its folder pod-resources"
        if card.driver is None:
            yield "a driver is bound to it: load its module, dmesg may say why it did not bind"
        for function in (card, *parts):
            if function.driver and not function.netdevs and not self._has_device(function):
                yield (
                    f"{function.seat.pci} is free: it has the driver {function.driver}, and its "
                    "interface is not among the node's"
                )
        for part in parts:
            if any(netdev.vital for netdev in part.netdevs):
                yield f"the node itself is no longer reached through {_name(part)}"
            if not forced and (use := self._use(part)):
                yield f'{use}, or the configuration has "force": true'

    def _use(self, part: Function) -> str | None:
        """What the node itself does with a virtual function, as what has to end."""
        soft = [d.name for d in self._survey.devices if d.is_soft and _on(d, part)]
        if soft:
            return f"the soft device {soft[0]} on {_name(part)} is removed"
        return next(filter(None, map(self._busy, part.netdevs)), None)

    def _busy(self, netdev: Netdev) -> str | None:
        """Why an interface counts as in use, by the node or by a pod through it.

        Being up alone does not count, for trying a card out sets its functions up. It counts where
        nothing else is known of the interface.
        """
        use = self._uses.get(netdev.name)
        if use is None:
            return f"{netdev.name} is set down, for the node may use it" if netdev.up else None
        if use.above:
            return f"{listed(use.above)} no longer stands on {netdev.name}"
        if use.addresses:
            return f"{netdev.name} has no longer the address {listed(use.addresses)}"
        if use.routes:
            return f"no route leads through {netdev.name} to {listed(use.routes)}"
        if use.guests:
            macs = listed(use.guests)
            return f"nothing stands on {netdev.name} any more, which takes frames for {macs}"
        return None

    def _has_device(self, function: Function) -> bool:
        return any(_on(device, function) for device in self._survey.devices)

    def _unforced(self, card: Function, wish: FunctionsWish) -> Refused | None:
        name, now = _name(card), len(card.seat.virtual_functions)
        force = 'write "force": true if the node may be cut off for a moment'
        if any(netdev.vital for netdev in card.netdevs):
            problem = f"the node itself is, or may be, reached through {name}"
            return Refused(problem, remedy=f"Choose another card, or {force}", where=wish.source)
        if now and card.seat.pci not in self._ours:
            problem = f"{name} has {now} virtual functions that kube-rdma did not make"
            remedy = f'Write {now}, or "force": true to have {wish.count} in their place'
            return Refused(problem, remedy=remedy, where=wish.source)
        return None


def _incapable(card: Function, wish: FunctionsWish) -> Refused | None:
    """Why the card can never have what is wished."""
    name, total = _name(card), card.seat.sriov_total
    if card.seat.physical_function:
        problem = f"{name} is itself a virtual function"
        remedy = f"Choose its physical one, {card.seat.physical_function}"
        return Refused(problem, remedy=remedy, where=wish.source)
    if not total:
        remedy = "Turn SR-IOV on in its firmware and in that of the machine, or choose another card"
        return Refused(f"{name} offers no SR-IOV", remedy=remedy, where=wish.source)
    if wish.count > total:
        problem = f"{name} can have {total} virtual functions, not {wish.count}"
        remedy = f"Write {total} or less, or allow more in its firmware"
        return Refused(problem, remedy=remedy, where=wish.source)
    return None


def _down(card: Function, wish: FunctionsWish) -> Refused | None:
    """Virtual functions have no link while their physical one is down; to remove them is well."""
    if not wish.count or not card.netdevs or any(netdev.up for netdev in card.netdevs):
        return None
    problem = f"{_name(card)} is down, and so would be its virtual functions"
    remedy = f"Set it up, on the node and for good: ip link set {quote(_name(card))} up"
    return Refused(problem, remedy=remedy, where=wish.source)


def _name(function: Function) -> str:
    return function.netdevs[0].name if function.netdevs else function.seat.pci


def _on(device: Device, function: Function) -> bool:
    return device.seat is not None and device.seat.pci == function.seat.pci


# Ranges of virtual functions (``ens4f0#4-9``) beside how many their card has or is to have.


def range_faults(specs: Sequence[PoolSpec], wishes: Sequence[FunctionsWish]) -> tuple[Refused, ...]:
    """Ranges of which no function is made on any node, by the wishes of the same document."""
    faults = []
    for spec, selector, function_range in _ranges(specs):
        sure = (
            wish
            for wish in wishes
            if any(_covers(w, function_range, selector) for w in wish.selectors)
        )
        wish = next(sure, None)
        if wish and (first := _beyond(function_range, wish.count)) is not None:
            faults.append(_fault(function_range, first, wish, selector.source or spec.source))
    return tuple(faults)


def outside(
    specs: Sequence[PoolSpec], survey: Survey, wishes: Sequence[FunctionsWish] = ()
) -> tuple[str, ...]:
    """Ranges of which something is not on this node, nor will be by the wishes: sentences."""
    counts = wished(wishes, survey)
    cards = [card for card in survey.functions if card.seat.physical_function is None]
    return tuple(
        f"{function_range} of {spec.resource} ({spec.source}) goes beyond what is there: {what}"
        for spec, selector, function_range in _ranges(specs)
        for card in cards
        if _is_of(function_range, card) and _fits(selector, card)
        if (
            what := _missing(
                _without_parts(function_range, card, survey), card, counts.get(card.seat.pci)
            )
        )
    )


def _ranges(specs: Sequence[PoolSpec]) -> Iterator[tuple[PoolSpec, Selector, FunctionRange]]:
    """Those of virtual functions; numbers of sub-functions are what their makers gave them."""
    for spec in specs:
        for selector in spec.selectors:
            for function_range in (*selector.physical, *selector.roots):
                if function_range.indexes and not selector.auxiliary_types:
                    yield spec, selector, function_range


def _covers(wished: Selector, function_range: FunctionRange, chosen: Selector) -> bool:
    """Whether a wish means the card of a range wherever the pool's selector does."""
    named = [*wished.interfaces, *wished.pci_addresses]
    if function_range.parent not in named or (wished.interfaces and wished.pci_addresses):
        return False
    vendors = not wished.vendors or set(chosen.vendors or ("",)) <= set(wished.vendors)
    return vendors and not wished.device_ids and not wished.drivers


def _beyond(function_range: FunctionRange, count: int) -> int | None:
    """The first number of a span that lies wholly beyond `count` functions."""
    return next((first for first, _ in function_range.indexes if first >= count), None)


def _fault(function_range: FunctionRange, first: int, wish: FunctionsWish, where: str) -> Refused:
    most = max(last for _, last in function_range.indexes) + 1
    inside = (
        f"Write {function_range.parent}#{_span(wish.count)}, or"
        if wish.count
        else "Remove the range, or"
    )
    return Refused(
        f"{function_range} asks for virtual function {first}, and {function_range.parent} is to "
        f"have {_number(wish.count)} ({wish.source})",
        remedy=f'{inside} "count": {most}',
        where=where,
    )


def _missing(function_range: FunctionRange, card: Function, wish: int | None) -> str | None:
    """What a card has too little of; the wish is met sooner or later, unless it asks too much."""
    has, name = len(card.seat.virtual_functions), function_range.parent
    most = max(card.seat.sriov_total or 0, has)
    if (first := _beyond(function_range, most)) is not None:
        return f"function {first} is asked for, and {name} can have {_number(most)}"
    now = has if wish is None else wish
    if (first := _beyond(function_range, now)) is not None:
        verb = "has" if wish is None else "is to have"
        return f"function {first} is asked for, and {name} {verb} {_number(now)}, of {most} at most"
    return None


def _is_of(function_range: FunctionRange, card: Function) -> bool:
    return function_range.parent in (card.seat.pci, *(netdev.name for netdev in card.netdevs))


def _fits(selector: Selector, card: Function) -> bool:
    """Whether functions of the card can be meant, which have its vendor."""
    return not selector.vendors or f"{card.vendor:04x}" in selector.vendors


def _without_parts(function_range: FunctionRange, card: Function, survey: Survey) -> FunctionRange:
    """The range without spans that mean sub-functions of the card."""
    below = (d for d in survey.devices if d.seat and d.seat.pci == card.seat.pci)
    numbers = [device.subfunction for device in below if device.subfunction is not None]
    spans = (
        span for span in function_range.indexes if not any(span[0] <= n <= span[1] for n in numbers)
    )
    return FunctionRange(function_range.parent, tuple(spans))


def _number(count: int) -> str:
    """``4 (0-3)``."""
    return f"{count} ({_span(count)})" if count else "none"


def _span(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"
