"""Plans the virtual functions of a node: what can be made, what waits, what a person must change.

pools/documents makes the specs, adapters/kernel/sriov/functions runs the plan. The kernel changes a
number only by way of zero, so whoever uses one function stands in the way of all of its card. The
next survey is enough to make functions again that a reboot removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product
from shlex import quote
from types import MappingProxyType

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId, Function, Netdev, Use
from kube_rdma.model.device import Device, PciAddress
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import (
    Bind,
    FunctionRange,
    FunctionsPlan,
    FunctionsSpec,
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
Uses = Mapping[str, Use]  # by interface; the use of any other interface is unknown


def function_faults(specs: Sequence[FunctionsSpec]) -> tuple[Refused, ...]:
    """Return a refusal for each two specs whose selectors want different settings on one card."""
    return tuple(
        _disagreement(what, first, second)
        for first, second in combinations(specs, 2)
        if _differ(first, second)
        for one, other in product(first.selectors, second.selectors)
        if (what := meeting(one, other))
    )


def held_functions(holdings: Sequence[Holding], pools: Mapping[str, Pool]) -> Held:
    """Return by card the pods that hold it, through resources of kube-rdma or of another plugin.

    `pools` are the offered ones. A share of another resource may stand for the card whose address
    it is, or begins with.
    """
    pods_by_card: dict[CardId, dict[str, None]] = {}
    for holding in holdings:
        pool = pools.get(holding.resource)
        for share in holding.shares:
            for card in _cards_of(share, pool):
                pods_by_card.setdefault(card, {})[f"{holding.namespace}/{holding.pod}"] = None
    return {card: tuple(pods) for card, pods in pods_by_card.items()}


def plan_functions(
    specs: Sequence[FunctionsSpec],
    survey: Survey,
    held: Held | None,
    ours: Collection[PciAddress],
    uses: Uses = MappingProxyType({}),
) -> FunctionsPlan:
    """Return the changes of virtual functions that the specs require, with refusals and waits.

    `held` says who holds which card, None if unknown. `ours` are the physical functions whose
    virtual ones the agent manages; others that have some are changed only by force. `uses` is about
    the interfaces that `in_question` names.
    """
    functions = {function.position.pci: function for function in survey.functions}
    meant: dict[PciAddress, list[FunctionsSpec]] = {}
    waits: list[str] = []
    for spec in specs:
        chosen = _chosen(spec, functions)
        for pci in chosen:
            meant.setdefault(pci, []).append(spec)
        if not chosen:
            waits.append(f"no card of this node can have the virtual functions of {spec.source}")
    node = _Node(survey, functions, held, ours, uses)
    met = [(pci, of, node.meet(functions[pci], of)) for pci, of in sorted(meant.items())]
    waiting = [(of[0].source, wait) for _, of, wait in met if isinstance(wait, str)]
    return FunctionsPlan(
        acts=tuple(act for _, _, act in met if isinstance(act, SetFunctions)),
        waits=(*waits, *(wait for _, wait in waiting)),
        refusals=tuple(refusal for _, _, refusal in met if isinstance(refusal, Refused)),
        kept=tuple(pci for pci, _, consequence in met if consequence is None),
        waiting=tuple(waiting),
    )


def function_counts(specs: Sequence[FunctionsSpec], survey: Survey) -> dict[PciAddress, int]:
    """Return by physical function the number of virtual functions that the specs want."""
    functions = {function.position.pci: function for function in survey.functions}
    return {pci: spec.count for spec in specs for pci in _chosen(spec, functions)}


def in_question(specs: Sequence[FunctionsSpec], survey: Survey) -> frozenset[str]:
    """Return the interfaces of virtual functions that a plan may remove, to read their use."""
    counts = function_counts(specs, survey)
    changing = {
        one.position.pci
        for one in survey.functions
        if counts.get(one.position.pci) not in (None, len(one.position.virtual_functions))
    }
    parts = (one for one in survey.functions if one.position.physical_function in changing)
    return frozenset(netdev.name for part in parts for netdev in part.netdevs)


def _cards_of(share: ShareId, pool: Pool | None) -> Iterator[CardId]:
    if pool is None:
        yield from (CardId(share), CardId(share.rpartition("-")[0]))
    elif terms(pool.spec).bind is Bind.POOL:
        yield from (card.id for card in pool.cards)
    elif card := card_of(pool.spec, share):
        yield card


def _chosen(spec: FunctionsSpec, functions: Mapping[PciAddress, Function]) -> list[PciAddress]:
    """Return the functions that a spec chooses: one without SR-IOV only if named by itself."""
    return [
        pci
        for pci, function in functions.items()
        if any(
            unmet(one, Card(CardId(pci), (), function), functions) is None
            and (one.interfaces or one.pci_addresses or function.position.sriov_total)
            for one in spec.selectors
        )
    ]


def _differ(first: FunctionsSpec, second: FunctionsSpec) -> bool:
    return (first.count, first.autoprobe) != (second.count, second.autoprobe)


def _disagreement(name: str, first: FunctionsSpec, second: FunctionsSpec) -> Refused:
    says = f"{name} is to have {_describe(second)} here and {_describe(first)} by {first.source}"
    remedy = "Write the same in both, or let one choose other cards"
    return Refused(says, remedy=remedy, where=second.source)


def _describe(spec: FunctionsSpec) -> str:
    drivers = "" if spec.autoprobe else " without drivers"
    return f"{spec.count} virtual functions{drivers}"


class _Node(Frozen):
    """The facts about a node from which a plan of its virtual functions is made."""

    survey: Survey
    functions: Mapping[PciAddress, Function]
    held: Held | None  # None: nobody can tell who holds which card
    ours: Collection[PciAddress]  # physical functions whose virtual ones the agent answers for
    uses: Uses

    def meet(
        self, card: Function, specs: Sequence[FunctionsSpec]
    ) -> SetFunctions | Refused | str | None:
        """Return the change of one card's virtual functions, a refusal or a reason to wait.

        Return None when nothing has to change.
        """
        spec, *others = specs
        if other := next((one for one in others if _differ(spec, one)), None):
            return _disagreement(_name(card), spec, other)
        if refusal := _incapable(card, spec):
            return refusal
        now, forced = len(card.position.virtual_functions), any(one.force for one in specs)
        if now == spec.count:
            return None
        if until := next(self._obstacles(card, forced=forced), None):
            state = f"{_name(card)} stays with {now} virtual functions"
            return f"{state}; {spec.count} ({spec.source}) wait until {until}"
        refusal = (None if forced else self._unforced(card, spec)) or _down(card, spec)
        act = SetFunctions(card.position.pci, _name(card), now, spec.count, spec.autoprobe)
        return refusal or act

    def _obstacles(self, card: Function, *, forced: bool) -> Iterator[str]:
        """Yield obstacles to changing a card's functions, each as what has to happen first."""
        parts = [
            self.functions[pci] for pci in card.position.virtual_functions if pci in self.functions
        ]
        held = self.held or {}
        pods = [pod for one in (card, *parts) for pod in held.get(CardId(one.position.pci), ())]
        if pods:
            yield f"these pods have ended: {listed(list(dict.fromkeys(pods)))}"
        if parts and self.held is None:
            yield "the kubelet reports which pods hold them: mount its folder pod-resources"
        if card.driver is None:
            yield "a driver is bound to it: load its module, dmesg may say why it did not bind"
        for function in (card, *parts):
            is_seen = function.netdevs or any(_on(one, function) for one in self.survey.devices)
            if function.driver and not is_seen:
                yield (
                    f"{function.position.pci} is free: it has the driver {function.driver}, and "
                    "its interface is not among the node's"
                )
        for part in parts:
            if any(netdev.vital for netdev in part.netdevs):
                yield f"the node itself is no longer reached through {_name(part)}"
            if not forced and (use := self._use(part)):
                yield f'{use}, or the configuration has "force": true'

    def _use(self, part: Function) -> str | None:
        """Return which use by the node of a virtual function has to end first; None if unused."""
        soft = [d.name for d in self.survey.devices if d.is_soft and _on(d, part)]
        if soft:
            return f"the soft device {soft[0]} on {_name(part)} is removed"
        return next(filter(None, map(self._busy, part.netdevs)), None)

    def _busy(self, netdev: Netdev) -> str | None:
        """Return which use of an interface by the node or a pod has to end first; None if unused.

        Being up is no use by itself, for people set interfaces up to try a card out. It counts only
        where nothing else is known of the interface.
        """
        use = self.uses.get(netdev.name)
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

    def _unforced(self, card: Function, spec: FunctionsSpec) -> Refused | None:
        name, now = _name(card), len(card.position.virtual_functions)
        force = 'write "force": true if the node may be cut off for a moment'
        if any(netdev.vital for netdev in card.netdevs):
            problem = f"the node itself is, or may be, reached through {name}"
            return Refused(problem, remedy=f"Choose another card, or {force}", where=spec.source)
        if now and card.position.pci not in self.ours:
            problem = f"{name} has {now} virtual functions that kube-rdma did not make"
            remedy = f'Write {now}, or "force": true to have {spec.count} in their place'
            return Refused(problem, remedy=remedy, where=spec.source)
        return None


def _incapable(card: Function, spec: FunctionsSpec) -> Refused | None:
    """Return a refusal if the card can never have the spec's virtual functions, else None."""
    name, total = _name(card), card.position.sriov_total
    if card.position.physical_function:
        problem = f"{name} is itself a virtual function"
        remedy = f"Choose its physical one, {card.position.physical_function}"
        return Refused(problem, remedy=remedy, where=spec.source)
    if not total:
        remedy = "Turn SR-IOV on in its firmware and in that of the machine, or choose another card"
        return Refused(f"{name} offers no SR-IOV", remedy=remedy, where=spec.source)
    if spec.count > total:
        problem = f"{name} can have {total} virtual functions, not {spec.count}"
        remedy = f"Write {total} or less, or allow more in its firmware"
        return Refused(problem, remedy=remedy, where=spec.source)
    return None


def _down(card: Function, spec: FunctionsSpec) -> Refused | None:
    """Return a refusal if the card is down, for its functions would have no link; else None.

    The removal of all functions is not refused.
    """
    if not spec.count or not card.netdevs or any(netdev.up for netdev in card.netdevs):
        return None
    problem = f"{_name(card)} is down, and so would be its virtual functions"
    remedy = f"Set it up, on the node and for good: ip link set {quote(_name(card))} up"
    return Refused(problem, remedy=remedy, where=spec.source)


def _name(function: Function) -> str:
    return function.netdevs[0].name if function.netdevs else function.position.pci


def _on(device: Device, function: Function) -> bool:
    return device.position is not None and device.position.pci == function.position.pci


# Ranges of virtual functions (``ens4f0#4-9``) beside how many their card has or is to have.


def range_faults(
    specs: Sequence[PoolSpec], function_specs: Sequence[FunctionsSpec]
) -> tuple[Refused, ...]:
    """Return a refusal for each range of functions with a span beyond those of the document."""
    faults = []
    for spec, selector, spans in _ranges(specs):
        for wanted in function_specs:
            if any(_covers(one, spans, selector) for one in wanted.selectors):
                if (first := _beyond(spans, wanted.count)) is not None:
                    faults.append(_fault(spans, first, wanted, selector.source or spec.source))
                break
    return tuple(faults)


def outside(
    specs: Sequence[PoolSpec], survey: Survey, function_specs: Sequence[FunctionsSpec] = ()
) -> tuple[str, ...]:
    """Return a sentence for each range of functions with a span beyond those of a card here."""
    counts = function_counts(function_specs, survey)
    cards = [card for card in survey.functions if card.position.physical_function is None]
    sentences = []
    for (spec, selector, spans), card in product(_ranges(specs), cards):
        names = (card.position.pci, *(netdev.name for netdev in card.netdevs))
        # Functions of a card have its vendor.
        fits = not selector.vendors or f"{card.vendor:04x}" in selector.vendors
        if spans.parent in names and fits:
            own = _without_parts(spans, card, survey)
            if what := _missing(own, card, counts.get(card.position.pci)):
                where = f"{spans} of {spec.resource} ({spec.source})"
                sentences.append(f"{where} goes beyond what is there: {what}")
    return tuple(sentences)


def _ranges(specs: Sequence[PoolSpec]) -> Iterator[tuple[PoolSpec, Selector, FunctionRange]]:
    """Yield each range of virtual functions with its spec and selector; skip sub-functions."""
    for spec in specs:
        for selector in spec.selectors:
            for function_range in (*selector.physical, *selector.roots):
                if function_range.indexes and not selector.auxiliary_types:
                    yield spec, selector, function_range


def _covers(wanted: Selector, function_range: FunctionRange, chosen: Selector) -> bool:
    """Decide whether selector `wanted` means a range's card wherever selector `chosen` does."""
    named = [*wanted.interfaces, *wanted.pci_addresses]
    if function_range.parent not in named or (wanted.interfaces and wanted.pci_addresses):
        return False
    vendors = not wanted.vendors or set(chosen.vendors or ("",)) <= set(wanted.vendors)
    return vendors and not wanted.device_ids and not wanted.drivers


def _beyond(function_range: FunctionRange, count: int) -> int | None:
    """Return the first number of a span that lies wholly beyond `count`; None without one."""
    return next((first for first, _ in function_range.indexes if first >= count), None)


def _fault(function_range: FunctionRange, first: int, wanted: FunctionsSpec, where: str) -> Refused:
    most = max(last for _, last in function_range.indexes) + 1
    inside = "Remove the range, or"
    if wanted.count:
        inside = f"Write {function_range.parent}#{_span(wanted.count)}, or"
    return Refused(
        f"{function_range} asks for virtual function {first}, and {function_range.parent} is to "
        f"have {_number(wanted.count)} ({wanted.source})",
        remedy=f'{inside} "count": {most}',
        where=where,
    )


def _missing(function_range: FunctionRange, card: Function, wanted: int | None) -> str | None:
    """Say which span of a range lies beyond what the card has or gets; None if none does."""
    has, name = len(card.position.virtual_functions), function_range.parent
    most = max(card.position.sriov_total or 0, has)
    if (first := _beyond(function_range, most)) is not None:
        return f"function {first} is asked for, and {name} can have {_number(most)}"
    now = has if wanted is None else wanted
    if (first := _beyond(function_range, now)) is not None:
        verb = "has" if wanted is None else "is to have"
        return f"function {first} is asked for, and {name} {verb} {_number(now)}, of {most} at most"
    return None


def _without_parts(function_range: FunctionRange, card: Function, survey: Survey) -> FunctionRange:
    """Return the range without the spans that name sub-functions of the card."""
    below = (d for d in survey.devices if d.position and d.position.pci == card.position.pci)
    numbers = [device.subfunction for device in below if device.subfunction is not None]
    spans = function_range.indexes
    own = (span for span in spans if not any(span[0] <= n <= span[1] for n in numbers))
    return FunctionRange(function_range.parent, tuple(own))


def _number(count: int) -> str:
    """Return a count of functions with their indexes, such as ``4 (0-3)``, or "none"."""
    return f"{count} ({_span(count)})" if count else "none"


def _span(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"
