"""Meets the wishes for pools with what the node has: which cards, which shares, how they are.

Between pools/rules/cards, whose cards it takes, and adapters/kubelet, which tells the Offer. The
same wishes and the same node make the same pools, so a program may call it whenever something
changed and compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools.pool import (
    Attach,
    Bind,
    Offer,
    Pool,
    PoolSpec,
    Serving,
    Share,
    ShareId,
)
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.modes import ModeRow, terms
from kube_rdma.pools.rules.selection import Functions, why_not

Held = Mapping[str, Collection[CardId]]  # which cards pods hold, by resource


class Clash(Frozen):
    """A card that two wishes mean; `first` alone has it when it is `fatal`, else both have it."""

    card: Card
    first: PoolSpec
    second: PoolSpec
    fatal: bool

    def __str__(self) -> str:
        """One sentence with both places."""
        both = f"{self.first.resource} ({self.first.source}) and {self.second.resource}"
        consequence = (
            f"it stays with {self.first.resource}, for mode "
            f"{self.first.mode if terms(self.first).owns else self.second.mode} shares no card"
            if self.fatal
            else "so their shares count it twice"
        )
        return f"{self.card.name} belongs to {both} ({self.second.source}); {consequence}"


def resolve(
    specs: Sequence[PoolSpec],
    node: Sequence[Card],
    survey: Survey,
    held: Held | None = None,
) -> tuple[tuple[Pool, ...], tuple[Clash, ...]]:
    """The pool of each wish, in their order, on the node of these cards.

    A card that two wishes mean belongs to both, or to the first alone when a mode of them owns its
    cards. `held` says by resource which cards pods hold. Such a card stays in its pool, whatever
    else means it, as long as its function is there: inside a pod its interface and devices cannot
    be seen from here.

    A card whose port is down belongs to its pool too: a port recovers. In a pool whose shares stand
    for the pool a share is healthy as long as one card is usable. Without any card there are no
    shares, as with the plugin of v0.1.0: zero tells more than a thousand that are unhealthy.
    """
    functions: Functions = {card.function.seat.pci: card.function for card in node if card.function}
    cards: list[list[Card]] = [[] for _ in specs]
    clashes: list[Clash] = []
    for card in node:
        claims = _claims(card, specs, functions, held or {})
        for index in claims:
            first, second = specs[claims[0]], specs[index]
            fatal = terms(first).owns or terms(second).owns
            if index != claims[0]:
                clashes.append(Clash(card, first, second, fatal))
            if index == claims[0] or not fatal:
                cards[index].append(card)
    rdma_cm = survey.rdma_cm.path if survey.rdma_cm else None
    pools = (
        Pool(spec, tuple(shares_of(spec, mine)), tuple(mine), rdma_cm)
        for spec, mine in zip(specs, cards, strict=True)
    )
    return tuple(pools), tuple(clashes)


def owners(
    specs: Sequence[PoolSpec], node: Sequence[Card], held: Held | None = None
) -> dict[CardId, PoolSpec]:
    """By card the wish that has it, alone or before others; cards in no pool are left out."""
    functions: Functions = {card.function.seat.pci: card.function for card in node if card.function}
    claims_by_card = ((card.id, _claims(card, specs, functions, held or {})) for card in node)
    return {name: specs[claims[0]] for name, claims in claims_by_card if claims}


def _claims(
    card: Card, specs: Sequence[PoolSpec], functions: Functions, held: Held
) -> Sequence[int]:
    """The wishes that mean `card`, by their places: first whose pods hold it, then in order."""
    holding = [card.id in held.get(spec.resource, ()) for spec in specs]
    meaning = (
        place
        for place, spec in enumerate(specs)
        if holding[place] or why_not(spec, card, functions) is None
    )
    return sorted(meaning, key=lambda place: not holding[place])


def offer(pool: Pool) -> Offer:
    """What the kubelet is told of `pool`.

    It asks before a container starts where that waits for a network, or for limits of the kernel.
    Of one that claims serve it is told that there is no share, so that the scheduler takes the way
    of claims (allocatable 0), and that nothing is asked before a container starts: the kubelet
    would refuse a container that has no share (kubernetes@v1.36.3 devicemanager/manager.go,
    callPreStartContainerIfNeeded). Without the registration it would refuse the pods of claims as
    long as older pods hold shares (GetDeviceRunContainerOptions): docs/decisions/0107.
    """
    if pool.spec.serve is Serving.CLAIMS:
        return Offer(pool.spec.resource, ())
    row = terms(pool.spec)
    return Offer(
        pool.spec.resource,
        pool.shares,
        prefers=row.bind is Bind.PER_CARD,
        gated=row.attach is not Attach.NONE or pool.spec.limits is not None,
    )


def shares_of(spec: PoolSpec, cards: Sequence[Card]) -> Iterator[Share]:
    """The shares that a pool of these cards has, card by card."""
    row = terms(spec)
    if row.bind is Bind.POOL:
        healthy = any(card.usable for card in cards)
        count = row.shares if cards else 0
        prefix = "" if spec.bare_ids else f"{spec.mode}-"
        yield from (Share(ShareId(f"{prefix}{n}"), healthy) for n in range(count))
        return
    for card in cards:
        hint = card.numa_node if spec.numa_hints else None
        nodes = () if hint is None else (hint,)
        for name in _names(row, card):
            yield Share(name, card.usable, nodes, card.id)


def _names(row: ModeRow, card: Card) -> Iterator[ShareId]:
    """The ids of a card's shares: ``<card>-<slot>``, or the card's own."""
    if not row.numbered:
        yield ShareId(card.id)
        return
    yield from (ShareId(f"{card.id}-{slot}") for slot in range(row.shares))
