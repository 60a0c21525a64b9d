"""Damps the health of cards, and finds those that another program took: DRANET, another plugin.

It stands between what the agent's records say and pools/rules/node_health, which gives a card that
is taken a reason. An interface that is not in the node's network namespace is in a pod's, and whose
pod that is nobody can see from here. The kubelet or a record of the agent knows each pod of
kube-rdma that has it. While any other pod has it, the card cannot be given away.

The same goes for a card whose RDMA device left while its function is there. Its module was removed,
its driver was unbound, or its firmware recovers and has only the function back yet. In a pool
whose mode moves no cards only trouble takes an RDMA device, so it is believed at once.

One look proves nothing, for what was seen and what was recorded are of different moments, and a
driver that starts has no interface yet. So an absence that no record explains has to last. And a
pod that has ended is forgotten by the kubelet before the last plugin gave the interface back.

A card does not become unhealthy because a pod of kube-rdma has it. Else the kubelet would refuse
the pod when it admits it again, as after a reboot: "previously allocated devices are no longer
healthy" (devicesToAllocate, pkg/kubelet/cm/devicemanager/manager.go). Where a share stands for all
cards of its pool, nobody holds one; a share stays healthy while one card is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, field, replace
from kube_rdma.lib.phrases import no_carrier
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.attach.steps import TakeLink
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import LinkLayer, PodLink

# Damping: bad news of a card is reported at once, good news when it has lasted.

HOLD = 1.0  # seconds that a card has to stay good after its first return; doubled by each further
LONGEST_HOLD = 30.0
WINDOW = 60.0  # seconds after which a return is forgotten, and a card that is gone

VANISHED = "it is gone: dmesg may say whether its driver or the machine has let it go"


class Health(Frozen):
    """The reported health of one card; times are seconds of a clock that never goes back."""

    reported: bool  # what was last said of it
    good_at: float | None  # from then on it may be called good; None while it is bad or gone
    returns: tuple[float, ...] = ()  # when it came back within the last WINDOW
    gone_at: float | None = None


class HealthChange(Frozen):
    """A change of one card's health, for the log, an Event and a new list for the kubelet."""

    card: CardId
    healthy: bool
    reasons: tuple[str, ...]  # none exactly when it is healthy


class Assessment(Frozen):
    """The judged cards, their changes, and the health to pass to the next assessment."""

    health: Mapping[CardId, Health]
    cards: tuple[Card, ...]
    changes: tuple[HealthChange, ...]
    again: float | None  # seconds until the next look though nothing was announced; None: never


def assess(before: Mapping[CardId, Health], cards: Sequence[Card], now: float) -> Assessment:
    """Judge the health of `cards` at `now`; `before` is the health of the last assessment.

    The first sight of a card is believed and reported, good or bad. A card that was bad or gone has
    to be good for its hold without a break; until then it has a reason against it. The hold doubles
    with each return within WINDOW up to LONGEST_HOLD, so a link that flaps stays unhealthy. A card
    that is gone for WINDOW is forgotten.
    """
    remembered = {
        name: was
        for name, was in before.items()
        if was.gone_at is None or now - was.gone_at < WINDOW
    }
    present = {card.id: _seen(remembered.get(card.id), card, now) for card in cards}
    gone = {
        name: Health(False, None, was.returns, now if was.gone_at is None else was.gone_at)
        for name, was in remembered.items()
        if name not in present
    }
    changes = []
    for card in cards:
        health, was = present[card.id], remembered.get(card.id)
        if was is None or was.reported is not health.reported:
            # Flapping is a reason too: it says why the hold may be long.
            reasons = () if health.reported else (*card.reasons, *_flapping(health))
            changes.append(HealthChange(card.id, health.reported, reasons))
    changes += [
        HealthChange(name, False, (VANISHED,)) for name in gone if remembered[name].reported
    ]
    held = (health.good_at for health in present.values() if not health.reported)
    waits = [good_at - now for good_at in held if good_at is not None]
    judged = tuple(replace(card, reasons=_reasons(card, present[card.id])) for card in cards)
    return Assessment(present | gone, judged, tuple(changes), min(waits, default=None))


def _seen(was: Health | None, card: Card, now: float) -> Health:
    """Return the new health of a card that is on the node; `was` is None at its first sight."""
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
    """Return why the card is unusable now: its own reasons, else the hold after its return."""
    if card.reasons or health.reported or health.good_at is None:
        return card.reasons
    hold = health.good_at - health.returns[-1]
    return _flapping(health) or (f"it has just come back and has to stay good for {hold:g} s",)


def _flapping(health: Health) -> tuple[str, ...]:
    count = len(health.returns)
    remedy = "check the cable, the transceiver and the switch port"
    return (f"flapping: came back {count} times in a minute; {remedy}",) if count > 1 else ()


def with_missing_nodes(cards: Sequence[Card], missing: Collection[str]) -> tuple[Card, ...]:
    """Return the cards with a reason for each of their device nodes in `missing`."""
    return tuple(replace(card, reasons=(*card.reasons, *_missing(card, missing))) for card in cards)


def _missing(card: Card, missing: Collection[str]) -> Iterator[str]:
    for char in (char for device in card.devices for char in device.char_devices):
        if char.path in missing:
            folder, _, name = char.path.rpartition("/")
            remedy = f"mknod {char.path} c {char.major} {char.minor}"
            yield f"{name} is missing in {folder}: {remedy}, or load its module again"
    for path in card.vfio_paths:
        if path in missing:
            yield f"{path} is missing: modprobe vfio_pci, and bind the card to its driver again"


def inside_pod(card: Card, pod: str, links: Sequence[PodLink]) -> Card:
    """Return the card with link troubles that its interfaces show inside `pod` (namespace/name).

    A card that has an interface on the node is returned unchanged: `links` then belong to another
    card. So is a card without a PCI function, or without an interface among `links`.
    """
    if card.function is None or card.function.netdevs:
        return card
    own = (link for link in links if link.pci == card.pci and link.up and link.carrier is False)
    reasons = (f"in pod {pod}: {no_carrier(link.name)}" for link in own)
    return replace(card, reasons=(*card.reasons, *reasons))


# Absence: cards whose interface or RDMA device is not on the node.

MOVED = (
    "its interface is not on the node, and no pod of kube-rdma has it: another program moved it, "
    "or its driver made none"
)

DEVICE_GONE = (
    "its RDMA device is gone and its function is there: dmesg may say whether a module or another "
    "program took it"
)

CONFIRM = HOLD
"""Seconds for which an absence without an explaining record has to last before the card counts as
moved. A card whose port was DOWN while it moved is held back as long, so it is not called good in
between."""

ENDING = 30.0
"""CONFIRM for a card that a pod of kube-rdma had: whoever moved its interface gives it back."""

ASK = 10.0
"""Seconds until the next look while the records cannot be read."""


class Absences(Frozen):
    """The cards that are away from the node, and when each will count as moved."""

    away: frozenset[CardId] = frozenset()  # all of the card, or a part of it
    ours: frozenset[CardId] = frozenset()  # a pod of kube-rdma has or had them since they went
    due: Mapping[CardId, float] = field(default_factory=dict)  # of the unexplained: moved from then
    moved: frozenset[CardId] = frozenset()
    again: float | None = None  # seconds until the next look though nothing was announced


def absent(
    before: Absences,
    node: Sequence[Card],
    explained: Collection[CardId] | None,
    now: float,
    bare: Collection[CardId] = (),
) -> Absences:
    """Return the absences at `now`; `before` is the result of the last look.

    `bare` are the cards that lost their RDMA device (see `is_bare`); they are away too. `explained`
    are the cards that pods of kube-rdma have, or are getting; None if unknown. While it is None, no
    further card counts as moved, and a card that does stays so until its return.
    """
    away = frozenset(card.id for card in node if is_away(card) or card.id in bare)
    if explained is None:
        due = {name: before.due[name] for name in away & before.moved}
        return Absences(away, before.ours & away, due, frozenset(due), ASK if away else None)
    held = away.intersection(explained)
    ours = held | (before.ours & away)
    patience = {name: ENDING if name in ours else CONFIRM for name in away - held}
    due = {name: before.due.get(name, now + seconds) for name, seconds in patience.items()}
    moved = frozenset(name for name, when in due.items() if when <= now)
    waits = (due[name] - now for name in due.keys() - moved)
    return Absences(away, ours, due, moved, min(waits, default=None))


def is_away(card: Card) -> bool:
    """Decide whether a card lacks the interface that it should have on the node.

    A function that has a driver not for user space, but no RDMA device, should have an interface.
    A card with RDMA ports should have one if all are of link layer Ethernet: RoCE and iWARP stand
    on an interface (ib_device_get_netdev). InfiniBand does without, and so does EFA.
    """
    ports = [port for device in card.devices for port in device.ports]
    if any(port.netdev for port in ports):  # of eRDMA it is another function's
        return False
    if card.function:
        if card.function.netdevs or not card.function.driver or card.function.for_programs:
            return False
        if not card.devices:
            return True
    elif not any(device.auxiliary for device in card.devices):
        return False  # a soft device goes with its interface; of the others too little is known
    return bool(ports) and all(port.link_layer is LinkLayer.ETHERNET for port in ports)


def is_bare(card: Card) -> bool:
    """Decide whether a function shows no RDMA device and has no driver for user space.

    That is a fault of a card that had an RDMA device. A driver for user space takes it on purpose.
    """
    return card.function is not None and not card.devices and not card.function.for_programs


def attached_cards(attachments: Iterable[Attachment]) -> Iterator[CardId]:
    """Yield the cards in these attachment records: given to pods, or with links that move."""
    for plan in (plan for attachment in attachments for plan in attachment.plans):
        if plan.card:
            yield plan.card
        yield from (
            CardId(step.pci) for step in plan.steps if isinstance(step, TakeLink) and step.pci
        )
