"""Says in one condition of the Node object how all cards of this node's pools are.

The agent's loop hands in each verdict of pools/rules/node_health, and agent/node/marks writes the
condition when it differs from what the Node object has. Its type and the three fields follow the
API conventions for conditions, so whoever heals nodes by conditions can read it.
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
from kube_rdma.pools.rules.node_health import LEAVING, NodeVerdict

LONGEST = 1024  # bytes of a message, as of an Event's note


class PoolCard(Frozen):
    """A card that a pool has or had; `physical` is its physical function if it is a virtual one."""

    name: str
    pci: PciAddress | None
    physical: PciAddress | None = None


class CardsState(Frozen):
    """The cards of all pools after one survey, and the faults of cards that cannot be used."""

    specs: tuple[PoolSpec, ...] = ()
    cards: Mapping[CardId, PoolCard] = field(default_factory=dict)
    wrong: Mapping[CardId, str] = field(default_factory=dict)


def next_state(
    before: CardsState, verdict: NodeVerdict, specs: Sequence[PoolSpec], survey: Survey
) -> CardsState:
    """Return the state after one more survey.

    A card that vanished counts as long as `specs` stay the same. Exceptions are a soft device, and
    a virtual function whose physical one is there. A card that is held back after its return keeps
    its earlier reason, so a link that flaps changes nothing. A function that is to be removed does
    not count.
    """
    now = {card.id: card for card in verdict.cards if LEAVING not in card.reasons}
    pooled = {card.id for pool in verdict.pools for card in pool.cards}
    cards = {
        name: PoolCard(
            # The name of its RDMA devices stays while they are out of sight.
            before.cards[name].name if name in before.cards and not card.devices else card.name,
            card.pci,
            card.position.physical_function if card.position else None,
        )
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
        functions = {function.position.pci for function in survey.functions}
        missed = {
            name: card
            for name, card in before.cards.items()
            if name not in present and card.pci and card.physical not in functions
        }
        cards |= missed
        wrong |= dict.fromkeys(missed, VANISHED)
    return CardsState(tuple(specs), cards, wrong)


def condition(state: CardsState) -> NodeCondition | None:
    """Return the node condition about cards' health; None on a node whose pools have no cards."""
    count = len(state.cards)
    if not count:
        return None
    if not state.wrong:
        return NodeCondition("True", "CardsHealthy", f"{count} of {count} cards can be used")
    head = f"{count - len(state.wrong)} of {count} cards can be used"
    names = {
        name: card.name if card.name == name else f"{card.name} ({name})"
        for name, card in state.cards.items()
    }
    sentences = sorted(f"{names[name]}: {why}" for name, why in state.wrong.items())
    return NodeCondition("False", "CardsUnhealthy", ". ".join((head, *_fitting(head, sentences))))


def _fitting(head: str, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the sentences that fit into a condition's message, then the number left out."""
    more = f"{len(sentences)} more"
    room = LONGEST - len(f"{head}. {more}".encode())
    for number, sentence in enumerate(sentences):
        room -= len(f"{sentence}. ".encode())
        if room < 0:
            yield f"{len(sentences) - number} more"
            return
        yield sentence


def _why(card: Card) -> str:
    return "; ".join(card.reasons)
