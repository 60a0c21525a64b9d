"""What is told of a card's health: bad news at once, good news when it has lasted.

Between pools/rules/cards, which says how each card is now, and pools/rules/pools, which makes
shares of what is told. A link that comes and goes would otherwise lure a pod with every return. The
two functions at the end add what no survey of the node can see: device nodes that are gone, and
links inside pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, replace
from kube_rdma.lib.phrases import no_carrier
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.link import PodLink

HOLD = 1.0  # seconds that a card has to stay good after its first return; doubled by each further
LONGEST_HOLD = 30.0
WINDOW = 60.0  # seconds after which a return is forgotten, and a card that is gone

VANISHED = "it is gone: dmesg may say whether its driver or the machine has let it go"


class Health(Frozen):
    """What is known of one card; times are seconds of one clock that never goes back.

    `reported` is what was last said of it. `good_at` is when it may be called good if it stays so,
    None while it is bad or gone. `returns` are when it came back within the last WINDOW.
    """

    reported: bool
    good_at: float | None
    returns: tuple[float, ...] = ()
    gone_at: float | None = None


class HealthChange(Frozen):
    """What is new about a card: a line in the log, an Event, another list for the kubelet."""

    card: CardId
    healthy: bool
    reasons: tuple[str, ...]  # none exactly when it is healthy


class Assessment(Frozen):
    """How the cards are to be told, and what to hand in the next time.

    `again` is in how many seconds to look once more although nothing was announced, None: never.
    """

    health: Mapping[CardId, Health]
    cards: tuple[Card, ...]
    changes: tuple[HealthChange, ...]
    again: float | None


def assess(before: Mapping[CardId, Health], cards: Sequence[Card], now: float) -> Assessment:
    """Judge the cards as they are `now`, `before` being the health of the last assessment.

    The first sight of a card is believed, good or bad, and told. A card that was bad or gone has to
    be good for its hold without a break; until then it has a reason against it. The hold doubles
    with each return within WINDOW up to LONGEST_HOLD, so a link that flaps stays unhealthy. A card
    that is gone for WINDOW is forgotten.
    """
    remembered = {name: was for name, was in before.items() if not _forgotten(was, now)}
    present = {card.id: _seen(remembered.get(card.id), card, now) for card in cards}
    gone = {
        name: Health(False, None, was.returns, now if was.gone_at is None else was.gone_at)
        for name, was in remembered.items()
        if name not in present
    }
    changes = [
        HealthChange(card.id, present[card.id].reported, _reported_reasons(card, present[card.id]))
        for card in cards
        if card.id not in remembered
        or remembered[card.id].reported is not present[card.id].reported
    ]
    changes += [
        HealthChange(name, False, (VANISHED,)) for name in gone if remembered[name].reported
    ]
    held = (health.good_at for health in present.values() if not health.reported)
    waits = [good_at - now for good_at in held if good_at is not None]
    judged = tuple(replace(card, reasons=_reasons(card, present[card.id])) for card in cards)
    return Assessment(present | gone, judged, tuple(changes), min(waits, default=None))


def _forgotten(was: Health, now: float) -> bool:
    return was.gone_at is not None and now - was.gone_at >= WINDOW


def _seen(was: Health | None, card: Card, now: float) -> Health:
    """The health of a card that is there."""
    if was is None:
        return Health(card.usable, now if card.usable else None)
    returns = tuple(at for at in was.returns if now - at < WINDOW)
    if not card.usable:
        return Health(False, None, returns)
    if was.good_at is None:
        good_at = now + min(HOLD * 2 ** len(returns), LONGEST_HOLD)
        return Health(False, good_at, (*returns, now))
    return Health(now >= was.good_at, was.good_at, returns)


def _reasons(card: Card, health: Health) -> tuple[str, ...]:
    """What stands against the card now: its own reasons, or that it is held back."""
    if card.reasons or health.reported or health.good_at is None:
        return card.reasons
    hold = health.good_at - health.returns[-1]
    return _flapping(health) or (f"it has just come back and has to stay good for {hold:g} s",)


def _reported_reasons(card: Card, health: Health) -> tuple[str, ...]:
    """The reasons for a Change to the bad: also why it may be long until the next one."""
    return () if health.reported else (*card.reasons, *_flapping(health))


def _flapping(health: Health) -> tuple[str, ...]:
    count = len(health.returns)
    remedy = "check the cable, the transceiver and the switch port"
    return (f"flapping: came back {count} times in a minute; {remedy}",) if count > 1 else ()


def with_missing_nodes(cards: Sequence[Card], missing: Collection[str]) -> tuple[Card, ...]:
    """The cards with a reason for each of their device nodes that is among the `missing` paths."""
    return tuple(replace(card, reasons=(*card.reasons, *_missing(card, missing))) for card in cards)


def _missing(card: Card, missing: Collection[str]) -> Iterator[str]:
    for char in (char for device in card.devices for char in device.char_devices):
        if char.path in missing:
            folder, _, name = char.path.rpartition("/")
            remedy = f"mknod {char.path} c {char.major} {char.minor}"
            yield f"{name} is missing in {folder}: {remedy}, or load its module again"


def inside_pod(card: Card, pod: str, links: Sequence[PodLink]) -> Card:
    """The card with what its interfaces say in the namespace of `pod` (namespace/name).

    A card with an interface here is not there: what `links` show is then another one's. Of a card
    none of whose interfaces is among the links nothing is known, so nothing is said.
    """
    if card.function is None or card.function.netdevs:
        return card
    own = (link for link in links if link.pci == card.pci and link.up and link.carrier is False)
    reasons = (f"in pod {pod}: {no_carrier(link.name)}" for link in own)
    return replace(card, reasons=(*card.reasons, *reasons))
