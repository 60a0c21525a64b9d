"""Says in one condition of the Node object how all cards of this node's pools are.

Behind pools/rules/health: the loop hands in each verdict, and agent/node/marks
writes what comes out when it differs from what the Node object has. Its type and the three fields
follow the API conventions for conditions, so whoever heals nodes by conditions can read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, field
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciAddress
from kube_rdma.model.kubernetes import NodeCondition
from kube_rdma.model.pools import PoolSpec
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.absence import VANISHED
from kube_rdma.pools.rules.health import LEAVING, NodeVerdict

LONGEST = 1024  # bytes of a message, as of an Event's note


class PoolCard(Frozen):
    """A card that a pool has or had; `physical` is the function that it is a virtual one of."""

    name: str
    pci: PciAddress | None
    physical: PciAddress | None = None


class CardsState(Frozen):
    """The cards of the pools at one look, and what is wrong with some of them."""

    specs: tuple[PoolSpec, ...] = ()
    cards: Mapping[CardId, PoolCard] = field(default_factory=dict)
    wrong: Mapping[CardId, str] = field(default_factory=dict)


def looked(
    before: CardsState, verdict: NodeVerdict, specs: Sequence[PoolSpec], survey: Survey
) -> CardsState:
    """The state after one more look.

    A card that vanished counts as long as the same pools are wished for: nobody else remembers that
    it was there. Not so a soft device, or a virtual function whose physical one is there: somebody
    removed these. A card that is held back after its return keeps the words of before, so a link
    that flaps changes nothing. A function that is to be removed is nobody's trouble.
    """
    now = {card.id: card for card in verdict.cards if LEAVING not in card.reasons}
    pooled = {card.id for pool in verdict.pools for card in pool.cards}
    cards = {
        name: _pool_card(card, before.cards.get(name))
        for name, card in now.items()
        if name in pooled
    }
    wrong = {
        card.id: _why(now[card.id]) or before.wrong.get(card.id) or _why(card)
        for card in verdict.assessment.cards
        if card.id in cards and card.reasons
    }
    if before.specs == tuple(specs):
        present = {card.id for card in verdict.cards}
        functions = {function.seat.pci for function in survey.functions}
        missed = {
            name: card
            for name, card in before.cards.items()
            if name not in present and card.pci and card.physical not in functions
        }
        cards |= missed
        wrong |= dict.fromkeys(missed, VANISHED)
    return CardsState(tuple(specs), cards, wrong)


def condition(state: CardsState) -> NodeCondition | None:
    """What the Node object is to say; None on a node whose pools have no cards."""
    count = len(state.cards)
    if not count:
        return None
    if not state.wrong:
        return NodeCondition("True", "CardsHealthy", f"{count} of {count} cards can be used")
    head = f"{count - len(state.wrong)} of {count} cards can be used"
    sentences = sorted(f"{_label(name, state)}: {why}" for name, why in state.wrong.items())
    return NodeCondition("False", "CardsUnhealthy", ". ".join((head, *_fitting(head, sentences))))


def _fitting(head: str, sentences: Sequence[str]) -> Iterator[str]:
    """Yield as many of the sentences as there is room for, then how many there are besides."""
    more = f"{len(sentences)} more"
    room = LONGEST - len(f"{head}. {more}".encode())
    for number, sentence in enumerate(sentences):
        room -= len(f"{sentence}. ".encode())
        if room < 0:
            yield f"{len(sentences) - number} more"
            return
        yield sentence


def _pool_card(card: Card, before: PoolCard | None) -> PoolCard:
    """The card by the name of its RDMA devices, also while they are out of sight."""
    name = before.name if before and not card.devices else card.name
    return PoolCard(name, card.pci, card.seat.physical_function if card.seat else None)


def _why(card: Card) -> str:
    return "; ".join(card.reasons)


def _label(name: CardId, state: CardsState) -> str:
    card = state.cards[name]
    return card.name if card.name == name else f"{card.name} ({name})"
