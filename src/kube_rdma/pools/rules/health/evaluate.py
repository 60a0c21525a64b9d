"""Judges a node, all of it and in one order: its cards, what is wrong with each, and its pools.

The agent asks at every look, `config check --node` once and with less known. Each pass adds reasons
to cards, so the order is part of the answer: what a card is by itself (cards.py), what its pool
needs of it (membership.py), what no survey sees (damping.py, absence.py), then what has to last
(damping.py), then who has it already; pools are made of what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from kube_base.frozen import Frozen, field, replace
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.functions.function import FunctionsWish
from kube_rdma.model.link import PodLink
from kube_rdma.model.pools.pool import Pool, PoolSpec
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.cards import cards, interfaces
from kube_rdma.pools.rules.functions.ranges import outside
from kube_rdma.pools.rules.health.absence import DEVICE_GONE, MOVED, is_away
from kube_rdma.pools.rules.health.damping import (
    Assessment,
    Health,
    assess,
    inside_pod,
    with_missing_nodes,
)
from kube_rdma.pools.rules.health.discovery import judge
from kube_rdma.pools.rules.health.membership import Holders, as_members, not_free
from kube_rdma.pools.rules.pools import Clash, Held, resolve
from kube_rdma.pools.rules.selection import moves, spared

LinksInside = Mapping[CardId, tuple[str, Sequence[PodLink]]]  # by card the pod and its links
UNMANAGED = "config/node-files/10-kube-rdma-unmanaged.rules"  # of the repository
LEAVING = "its card is to have another number of virtual functions"


class NodeFacts(Frozen):
    """What is known of a node at one moment.

    `cards` are those of the survey (node_cards). Outside the agent only `specs` and
    `function_specs` are known beside them. `kept` are specs that nobody wishes for any more and
    pods still hold cards of; `held` says by resource and card which pods. `missing` are paths of
    device nodes that are not there. `inside` has the pod and the links of its namespace for cards
    that are in one. `leaving` are functions that are to be removed. `gone` are cards whose
    interface another program took, or whose RDMA device left; `stays` says by resource which of
    such cards were in its pool, where they stay while they cannot be seen.
    """

    survey: Survey
    cards: Sequence[Card]
    specs: Sequence[PoolSpec]
    function_specs: Sequence[FunctionsWish] = ()
    kept: Sequence[PoolSpec] = ()
    held: Holders = field(default_factory=dict)
    missing: Collection[str] = ()
    inside: LinksInside = field(default_factory=dict)
    leaving: Collection[CardId] = ()
    gone: Collection[CardId] = ()
    stays: Held = field(default_factory=dict)

    @property
    def placed(self) -> Held:
        """By resource the cards that belong to it whatever else can be seen of them."""
        resources = {*self.held, *self.stays}
        return {name: {*self.held.get(name, ()), *self.stays.get(name, ())} for name in resources}


class NodeVerdict(Frozen):
    """What a node comes to.

    `cards` are all of it, each with what is wrong with it for the pool that has it, before that is
    damped. `taken`, `beyond`, `spared` and `dynamic` are sentences: cards that pods hold by another
    resource, ranges that choose functions which are not there, cards that the node cannot do
    without, free cards to which another program gives addresses.
    """

    cards: tuple[Card, ...]
    pools: tuple[Pool, ...]
    clashes: tuple[Clash, ...]
    assessment: Assessment
    taken: tuple[str, ...]
    beyond: tuple[str, ...]
    spared: tuple[str, ...]
    dynamic: tuple[str, ...]


def evaluate(
    facts: NodeFacts, health: Mapping[CardId, Health] | None = None, now: float = 0.0
) -> NodeVerdict:
    """Return what the node comes to; `health` is that of the last assessment, None at the first.

    `now` is in seconds of one clock that never goes back.
    """
    judged = _judged(facts)
    assessment = assess(health or {}, judged, now)
    free = not_free(facts.specs, assessment.cards, facts.held, facts.kept)
    pools, clashes = resolve(facts.specs, free, facts.survey, facts.placed)
    taken = tuple(_added(assessment.cards, free))
    beyond = outside(facts.specs, facts.survey, facts.function_specs)
    spared = tuple(_spared(facts))
    dynamic = tuple(_dynamic(facts, pools))
    return NodeVerdict(judged, pools, clashes, assessment, taken, beyond, spared, dynamic)


def node_cards(survey: Survey) -> tuple[Card, ...]:
    """Return the cards of a node, each as it is by itself, whatever pool it is for."""
    return cards(survey, judge(survey))


def _judged(facts: NodeFacts) -> tuple[Card, ...]:
    members = as_members(facts.specs, facts.cards, facts.survey, facts.placed)
    complete = with_missing_nodes(members, facts.missing)
    return tuple(_leaving(_gone(_inside(card, facts), facts), facts) for card in complete)


def _inside(card: Card, facts: NodeFacts) -> Card:
    seen = facts.inside.get(card.id)
    return inside_pod(card, *seen) if seen else card


def _gone(card: Card, facts: NodeFacts) -> Card:
    """First of its reasons: what else is wrong with such a card, as a port without GID, follows.

    That no driver is bound to a function says why its RDMA device is gone.
    """
    if card.id not in facts.gone:
        return card
    if is_away(card):
        return replace(card, reasons=(MOVED, *card.reasons))
    unbound = card.function is not None and card.function.driver is None
    return card if unbound and card.reasons else replace(card, reasons=(DEVICE_GONE, *card.reasons))


def _leaving(card: Card, facts: NodeFacts) -> Card:
    return replace(card, reasons=(*card.reasons, LEAVING)) if card.id in facts.leaving else card


def _spared(facts: NodeFacts) -> Iterator[str]:
    """Yield why cards that a pool means stay with the node."""
    functions = {function.seat.pci: function for function in facts.survey.functions}
    for spec in facts.specs:
        for card in facts.cards:
            if card.id in facts.held.get(spec.resource, {}):
                continue
            if why := spared(spec, card, functions):
                yield f"{card.name} is not a card of {spec.resource} ({spec.source}): {why}"


def _dynamic(facts: NodeFacts, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield which pools have free cards whose address ends by itself, with one card of each.

    Such addresses come from a program of the node that has taken a card over. It will configure the
    card again whenever it comes back from a pod, and renews nothing while it is there.
    """
    holders = set().union(*facts.held.values())
    for pool in filter(lambda pool: moves(pool.spec), pools):
        free = (card for card in pool.cards if card.id not in holders)
        netdevs = (netdev for card in free for netdev in interfaces(card, facts.survey.functions))
        leased = ((n.name, n.use.dynamic[0]) for n in netdevs if n.use and n.use.dynamic)
        for name, address in islice(leased, 1):
            yield (
                f"{name} of {pool.spec.resource} has {address} by DHCP or SLAAC, which no program "
                f"renews inside a pod: make it static, or install {UNMANAGED}"
            )


def _added(before: Sequence[Card], after: Sequence[Card]) -> Iterator[str]:
    """Yield what came to stand against cards, with their names."""
    for was, card in zip(before, after, strict=True):
        yield from (f"{card.name}: {reason}" for reason in card.reasons[len(was.reasons) :])
