"""Ranges of virtual functions (``ens4f0#4-9``) beside how many their card has or is to have.

What lies outside chooses nothing, without a word: pools/rules/selection only finds that no card is
among it. So a document that says both, the range and the number, is refused, and on a node the
range is told of. A range that begins inside and goes on further is well: people write ``#0-63`` so
that the card itself is not meant while it has no functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_base.errors import Refused
from kube_rdma.model.card import Function
from kube_rdma.model.functions.function import FunctionsWish
from kube_rdma.model.pools.pool import FunctionRange, PoolSpec, Selector
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.functions.plan import wished


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
