"""Gives what a node offers the form that the API server takes: devices, in slices.

Between claims/rules/shape and claims/rules/publication. The limits are those of
pkg/apis/resource/validation and k8s.io/api/resource/v1/types.go: 128 devices in a slice, 64 if one
has taints. Where a server drops a feature, the same is said without it: shares become devices of
their own, and devices that cannot be used are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from kube_base.frozen import Frozen, field, replace
from kube_rdma.claims.rules.names import device_name, slot_name
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import (
    DRIVER,
    Attributes,
    ClaimFeature,
    DeviceCapacity,
    DeviceTaint,
    OfferedCard,
    OfferedDevice,
    RequestPolicy,
    TaintEffect,
)
from kube_rdma.model.device import LinkLayer, Port, PortState
from kube_rdma.model.pools import Bind, Pool
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.rails import physical

# What the pools of a node offer to claims: one device for a card, or one for a whole pool.

RailOf = Callable[[CardId], int | None]
Facts = Mapping[str, str | int | None]

STANDARD = "resource.kubernetes.io/"
UNHEALTHY = DeviceTaint(f"{DRIVER}/unhealthy", TaintEffect.NO_SCHEDULE)
DEGRADED = DeviceTaint(f"{DRIVER}/degraded", TaintEffect.NONE)

_TEXT = 64  # bytes of an attribute (DeviceAttributeMaxValueLength, k8s.io/api/resource/v1)


class ClaimOffer(Frozen):
    """What a node offers to claims, and a sentence for what cannot be offered.

    `resources` are those of the devices whose pools claims alone serve, by the device's name.
    """

    cards: tuple[OfferedCard, ...] = ()
    refusals: tuple[str, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)


def claim_offer(pools: Iterable[Pool], rail: RailOf = lambda _: None) -> ClaimOffer:
    """What the pools come to; cards of several pools belong to the first of them.

    Nothing counts a card that claims could get as two devices but counters, and a pool with these
    needs several slices for one change.
    """
    offered: dict[str, OfferedCard] = {}
    owners: dict[CardId, Pool] = {}
    refusals: list[str] = []
    for pool in pools:
        twice = [card for card in pool.cards if card.id in owners]
        if twice:
            refusals.append(_twice(owners[twice[0].id], pool, twice))
        whole = terms(pool.spec).bind is Bind.POOL
        mine = [card for card in pool.cards if card.id not in owners]
        if whole and twice:
            continue
        owners |= {card.id: pool for card in mine}
        made = _whole(pool) if whole else (_single(pool, card, rail) for card in mine)
        for device in made:
            if device.name in offered:
                refusals.append(_namesakes(pool, device))
                continue
            offered[device.name] = device
    return ClaimOffer(tuple(offered.values()), tuple(refusals))


def _single(pool: Pool, card: Card, rail: RailOf) -> OfferedCard:
    """The device of one card."""
    facts: dict[str, str | int | None] = {
        **_facts(card),
        "rail": rail(card.id),
        "kind": _kind(card),
        **_names(pool),
    }
    taints = () if card.usable and not _partly(card) else (_ill(card.usable),)
    return OfferedCard(
        device_name(pool, card),
        physical(card),
        _attributes(facts),
        slots=terms(pool.spec).shares,
        shared=_is_shared(pool),
        taints=taints,
    )


def _whole(pool: Pool) -> Iterator[OfferedCard]:
    """The device of a pool whose shares stand for it, with what all of its cards have in common."""
    if not pool.cards:
        return
    alike = [_facts(card) for card in pool.cards]
    own = {f"{STANDARD}pciBusID", "rdmaDevice", "interface"} if len(alike) > 1 else set()
    common: dict[str, str | int | None] = {}
    for name in alike[0].keys() - own:
        values = {facts[name] for facts in alike} - {None}
        common[name] = values.pop() if len(values) == 1 else None
    usable = [card.usable for card in pool.cards]
    name = device_name(pool, None)
    yield OfferedCard(
        name,
        name,
        _attributes({**common, "kind": "pool", **_names(pool)}),
        slots=terms(pool.spec).shares,
        shared=True,
        taints=() if all(usable) else (_ill(any(usable)),),
    )


def _facts(card: Card) -> Facts:
    """What is known of a card; None for what is not, or not for sure while its link is down."""
    ports = [port for device in card.devices for port in device.ports]
    active = [port for port in ports if port.state is PortState.ACTIVE]
    seat, numa = card.seat, card.numa_node
    return {
        f"{STANDARD}pciBusID": seat.pci if seat else None,
        f"{STANDARD}pcieRoot": seat.root if seat else None,
        f"{STANDARD}numaNode": numa if numa is not None and numa >= 0 else None,
        "rdmaDevice": card.devices[0].name if card.devices else None,
        "interface": _interface(card, ports),
        "linkLayer": _link_layer(ports),
        "rateGbps": next((int(port.rate_gbps) for port in active if port.rate_gbps), None),
        "vendor": f"{card.function.vendor:04x}" if card.function else None,
        "driver": (card.function.driver if card.function else _driver(card)) or None,
    }


def _names(pool: Pool) -> Facts:
    """What a device has of its pool; classes select by the resource."""
    resource = pool.spec.resource
    return {
        "mode": pool.spec.mode.value,
        "resource": resource if len(resource.encode()) <= _TEXT else None,
    }


def _interface(card: Card, ports: Sequence[Port]) -> str | None:
    own = card.function.netdevs if card.function else ()
    if own:
        return own[0].name
    return next((port.netdev for port in ports if port.netdev), None)


def _link_layer(ports: Sequence[Port]) -> str | None:
    layers = [port.link_layer for port in ports if port.link_layer is not LinkLayer.UNKNOWN]
    return layers[0].value.lower() if layers else None


def _driver(card: Card) -> str | None:
    return card.devices[0].driver if card.devices else None


def _kind(card: Card) -> str:
    """Which part of the hardware a card is."""
    if any(device.subfunction is not None or device.auxiliary for device in card.devices):
        return "sf"
    if card.function is None and any(device.is_soft for device in card.devices):
        return "soft"
    return "vf" if card.seat and card.seat.physical_function else "pf"


def _is_shared(pool: Pool) -> bool:
    """Whether a card is for several claims at a time; one share of a shared mode is still one."""
    return MODES[pool.spec.mode].most != 1


def _partly(card: Card) -> bool:
    """Whether a port of a usable card carries no traffic while another does."""
    states = {port.state is PortState.ACTIVE for device in card.devices for port in device.ports}
    return len(states) > 1


def _ill(usable: bool) -> DeviceTaint:
    return DEGRADED if usable else UNHEALTHY


def _attributes(facts: Facts) -> Attributes:
    """Sorted, without what is not known; texts are cut at the API's limit."""
    values = ((name, value) for name, value in sorted(facts.items()) if value is not None)
    return tuple((name, value if isinstance(value, int) else _cut(value)) for name, value in values)


def _cut(text: str) -> str:
    return str(text).encode()[:_TEXT].decode(errors="ignore")


def _twice(first: Pool, second: Pool, cards: Sequence[Card]) -> str:
    names = listed([card.name for card in cards])
    lost = (
        f"so that claims get no {second.spec.resource}"
        if terms(second.spec).bind is Bind.POOL
        else f"which claims get by {first.spec.resource} alone"
    )
    return (
        f"{first.spec.resource} ({first.spec.source}) and {second.spec.resource} "
        f"({second.spec.source}) both have {names}, {lost}: select each card in one pool"
    )


def _namesakes(pool: Pool, device: OfferedCard) -> str:
    return (
        f"{pool.spec.resource} ({pool.spec.source}) has a second device {device.name}, which "
        "claims cannot tell from the first: give the soft device or the resource another name"
    )


# How the shares of cards are laid into devices, so that pods spread over the cards by themselves.

Pools = list[list[OfferedCard]]

ROWS = 8
"""Of a pool at most; with 8 cards a slice is full (64 devices)."""

_FINE = 1024  # the pace of growth is a multiple of 1/1024


@lru_cache  # the same few numbers at each look
def row_sizes(slots: int, most: int) -> tuple[int, ...]:
    """How many of a card's shares each row has: 1 each while the rows are enough for that."""
    if slots <= most:
        return (1,) * slots
    if most == 1:
        return (slots,)
    paces = range(_FINE * slots)
    pace = bisect_left(paces, slots, key=lambda pace: sum(_grown(most, pace)))
    *head, _ = _grown(most, pace)
    return tuple(sorted((*head, slots - sum(head))))


def row_count(cards: Sequence[OfferedCard], room: int) -> int:
    """How many rows fit into `room` devices; 1 where each card is one device.

    A power of two: a card that comes or goes seldom changes the rows of the others, whose devices
    claims hold.
    """
    several = [card for pool in spreading(cards) for card in pool]
    others = len(cards) - len(several)
    rows = ROWS
    while rows > 1 and others + rows * len(several) > room:
        rows //= 2
    return rows if several else 1


def spreading(cards: Iterable[OfferedCard]) -> Pools:
    """The shared cards of each pool that has more than one."""
    pools = by_pool(card for card in cards if card.shared)
    return [pool for pool in pools if len(pool) > 1]


def in_rows(pool: Sequence[OfferedCard], most: int) -> Iterator[OfferedCard]:
    """Parts of the cards, row by row: a card's last part has its own name, and most of its shares.

    c0-s0, c1-s0, c0-s1, c1-s1, …, c0, c1.
    """
    sizes = [row_sizes(card.slots, most) for card in pool]
    for row in range(max(map(len, sizes))):
        for card, own in zip(pool, sizes, strict=True):
            if row < len(own):
                name = card.name if row == len(own) - 1 else slot_name(card.name, row)
                yield replace(card, name=name, slots=own[row])


def by_pool(cards: Iterable[OfferedCard]) -> Pools:
    """The cards of each pool."""
    pools: dict[object, list[OfferedCard]] = {}
    for card in cards:
        attributes = dict(card.attributes)
        pools.setdefault((attributes.get("resource"), attributes.get("mode")), []).append(card)
    return list(pools.values())


def _grown(rows: int, pace: int) -> list[int]:
    sizes: list[int] = []
    for _ in range(rows):
        sizes.append(max(1, round(sum(sizes) * pace / _FINE)))
    return sizes


Before = Mapping[str, OfferedDevice]
"""What was published last of each device, by name."""
Slices = tuple[tuple[OfferedDevice, ...], ...]

MOST, MOST_TAINTED = 128, 64  # devices in a slice
_SLOT_DEVICES = 128  # of a pool whose shares are devices
_GIGA = 10**9
# What a card that is inside of a pod, or without a link, does not show, and still is.
_HIDDEN = frozenset({"rdmaDevice", "interface", "linkLayer", "rateGbps"})
_IDENTITY = ("resource.kubernetes.io/pciBusID", "kind", "vendor")  # else it is another card


def slices(
    cards: Sequence[OfferedCard], before: Before, without: Collection[ClaimFeature] = ()
) -> Slices:
    """The devices of each slice: at least one slice, which is empty where there are no devices.

    One slice has all devices while it can, so that each change is one write and the pool is whole
    at any moment. Beyond that each physical card has its own: a change of it is one write too.
    """
    whole = [carried(card, before) for card in cards]
    apart = ClaimFeature.CONSUMABLE_CAPACITY in without
    bare = ClaimFeature.DEVICE_TAINTS in without
    most = MOST if bare else MOST_TAINTED
    spread: Iterable[OfferedDevice] = ()
    if apart:
        alone = [card for card in whole if not card.shared]
        spread = interleaved(card for card in whole if card.shared)
    else:
        rows = row_count(whole, MOST_TAINTED)
        pools = spreading(whole) if rows > 1 else []
        parted = {card.name for pool in pools for card in pool}
        alone = [card for card in whole if card.name not in parted]
        spread = (device for pool in pools for device in _rows(pool, rows))
    groups: dict[str, list[OfferedDevice]] = {}
    for card in alone:
        groups.setdefault(card.group, []).append(_device(card))
    lists = [
        list(_untainted(group) if bare else (_timed(device, before) for device in group))
        for group in (*groups.values(), spread)
    ]
    devices = tuple(device for group in lists for device in group)
    if len(devices) <= most:
        return (devices,)
    return tuple(part for group in lists for part in _parts(group, most))


def _rows(pool: Sequence[OfferedCard], most: int) -> Iterator[OfferedDevice]:
    """The devices of a pool in rows: bandwidth is counted at the last part of each card alone.

    Whoever asks for none of it takes none, wherever its share is.
    """
    names = {card.name for card in pool}
    for part in in_rows(pool, most):
        device = _device(part)
        if part.name not in names:
            capacities = tuple(pair for pair in device.capacities if pair[0] == "slots")
            device = replace(device, capacities=capacities)
        yield device


def interleaved(cards: Iterable[OfferedCard]) -> Iterator[OfferedDevice]:
    """The shares of cards as devices, card by card: c0-s0, c1-s0, c0-s1, c1-s1.

    The scheduler takes the first device that fits (KEP-4381 has no scores), so pods spread over the
    cards. A pool of many shares has fewer devices than it wishes for.
    """
    for pool in by_pool(cards):
        counts = [slot_count(card.slots, len(pool)) for card in pool]
        for slot in range(max(counts)):
            for card, count in zip(pool, counts, strict=True):
                if slot < count:
                    name = slot_name(card.name, slot)
                    capacities = (("slots", DeviceCapacity(1)),)
                    yield OfferedDevice(name, card.attributes, capacities, taints=card.taints)


def fewer(cards: Iterable[OfferedCard]) -> str | None:
    """Why claims get fewer shares than the pools have, where shares are devices."""
    pools = by_pool(card for card in cards if card.shared)
    wished = sum(card.slots for pool in pools for card in pool)
    offered = sum(slot_count(card.slots, len(pool)) for pool in pools for card in pool)
    if offered == wished:
        return None
    return (
        f"{offered} of {wished} shares can be had by claims: without the feature gate "
        f"{ClaimFeature.CONSUMABLE_CAPACITY} each is a device, and a pool has {_SLOT_DEVICES} "
        "at most"
    )


def carried(card: OfferedCard, before: Before) -> OfferedCard:
    """The card with what it was last seen to be, as far as it does not show it now.

    A pool of all cards goes into no pod, and what it does not say its cards differ in.
    """
    last = before.get(card.name) or before.get(slot_name(card.name, 0))
    if last is None:
        return card
    now, then = dict(card.attributes), dict(last.attributes)
    if now.get("kind") == "pool" or any(now.get(name) != then.get(name) for name in _IDENTITY):
        return card
    hidden: Attributes = tuple(
        (name, value) for name, value in then.items() if name in _HIDDEN and name not in now
    )
    return replace(card, attributes=tuple(sorted((*card.attributes, *hidden))))


def slot_count(slots: int, cards: int) -> int:
    """How many devices a card is where shares are devices, in a pool of so many cards."""
    return min(slots, max(1, _SLOT_DEVICES // cards))


def _untainted(devices: Iterable[OfferedDevice]) -> Iterator[OfferedDevice]:
    """Those that can be given away, without what taints tell besides."""
    for device in devices:
        if all(taint.effect is not TaintEffect.NO_SCHEDULE for taint in device.taints):
            yield replace(device, taints=())


def _device(card: OfferedCard) -> OfferedDevice:
    capacities = {"slots": _slots(card)}
    rate = dict(card.attributes).get("rateGbps")
    if isinstance(rate, int) and rate > 0:
        capacities["bandwidth"] = _bandwidth(rate, shared=card.shared)
    return OfferedDevice(
        card.name, card.attributes, tuple(sorted(capacities.items())), card.shared, card.taints
    )


def _slots(card: OfferedCard) -> DeviceCapacity:
    """One of them by default, or the first request would take the card.

    A request that names no amount takes all of a capacity that has no default (fillEmptyRequest of
    k8s.io/dynamic-resource-allocation/structured). A step has to fit into the capacity.
    """
    if not card.shared:
        return DeviceCapacity(1)
    step = 1 if card.slots > 1 else None
    return DeviceCapacity(card.slots, RequestPolicy(1, 1, card.slots, step))


def _bandwidth(gbps: int, *, shared: bool) -> DeviceCapacity:
    """Bits per second, counted and not enforced; a request that names none takes none."""
    rate = gbps * _GIGA
    return DeviceCapacity(rate, RequestPolicy(0, 0, rate, _GIGA) if shared else None)


def _timed(device: OfferedDevice, before: Before) -> OfferedDevice:
    """With the times of taints that were there: the server would set new ones.

    Whoever tolerates a taint for some seconds would count them anew (KEP-5055).
    """
    last = before.get(device.name)
    if last is None or not device.taints:
        return device
    times = {(taint.key, taint.effect): taint.added for taint in last.taints}
    taints = (
        DeviceTaint(taint.key, taint.effect, times.get((taint.key, taint.effect), ""))
        for taint in device.taints
    )
    return replace(device, taints=tuple(taints))


def _parts(devices: Sequence[OfferedDevice], most: int) -> Iterator[tuple[OfferedDevice, ...]]:
    for start in range(0, len(devices), most):
        yield tuple(devices[start : start + most])


# The attributes of a device under DRANET's names too, for claims and programs that know those.

DOMAIN = "dra.net/"

_NAMES = {
    "interface": "ifName",
    "rdmaDevice": "rdmaDevice",
    f"{STANDARD}pciBusID": "pciAddress",
    f"{STANDARD}numaNode": "numaNode",
}


def with_dranet_names(parts: Slices) -> Slices:
    """The devices of slices, each with both names of what it says."""
    return tuple(tuple(map(_named, devices)) for devices in parts)


def without_dranet_names(devices: Mapping[str, OfferedDevice]) -> dict[str, OfferedDevice]:
    """Devices of slices by name, with their own attributes alone."""
    return {
        name: replace(device, attributes=_own(device.attributes))
        for name, device in devices.items()
    }


def _own(attributes: Attributes) -> Attributes:
    return tuple((name, value) for name, value in attributes if not name.startswith(DOMAIN))


def _named(device: OfferedDevice) -> OfferedDevice:
    return replace(
        device, attributes=tuple(sorted((*device.attributes, *_dranet(device.attributes))))
    )


def _dranet(attributes: Sequence[tuple[str, str | int]]) -> Iterator[tuple[str, str | int]]:
    values = dict(attributes)
    for name, theirs in _NAMES.items():
        if name in values:
            yield f"{DOMAIN}{theirs}", values[name]
    if "linkLayer" in values:  # as netlink calls it (rtnl_link, ARPHRD_ETHER)
        is_ethernet = values["linkLayer"] == "ethernet"
        yield f"{DOMAIN}encapsulation", "ether" if is_ethernet else values["linkLayer"]
    yield f"{DOMAIN}isSriovVf", values.get("kind") == "vf"
    yield f"{DOMAIN}rdma", "rdmaDevice" in values
