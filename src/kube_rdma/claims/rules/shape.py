"""Turns what a node offers into the form that the API server takes: devices, in slices.

    pools ─► claim_offer: cards ─► slices: rows of shared cards, devices, groups ─► DRANET's names

It stands between claims/rules/serving and claims/rules/publication. The limits are those of
pkg/apis/resource/validation and k8s.io/api/resource/v1/types.go: 128 devices in a slice, 64 if one
has taints. Where a server drops a feature, the slices do without it: shares become devices, and
devices that cannot be used are left out.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from kube_base.frozen import Frozen, field, replace
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims import devices as model
from kube_rdma.model.claims.claim import SLOTS
from kube_rdma.model.device import LinkLayer, Port, PortState
from kube_rdma.model.pools import Bind, Pool
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.rails import physical

RailOf = Callable[[CardId], int | None]
Facts = Mapping[str, str | int | None]
Pools = list[list[model.OfferedCard]]
PublishedDevices = Mapping[str, model.ListedDevice]
"""The devices as they were published last, by name."""
Slices = tuple[tuple[model.ListedDevice, ...], ...]
"""The devices of each slice."""

STANDARD = "resource.kubernetes.io/"
UNHEALTHY = model.DeviceTaint(f"{model.DRIVER}/unhealthy", model.TaintEffect.NO_SCHEDULE)
DEGRADED = model.DeviceTaint(f"{model.DRIVER}/degraded", model.TaintEffect.NONE)

_TEXT = 64  # bytes of an attribute (DeviceAttributeMaxValueLength, k8s.io/api/resource/v1)


# The pools of a node as cards that claims can get: one for each card, or one for a whole pool.


class ClaimOffer(Frozen):
    """The cards that a node offers to claims, and why others are not offered."""

    cards: tuple[model.OfferedCard, ...] = ()
    refusals: tuple[str, ...] = ()  # sentences on cards that cannot be offered
    # By the card's name, the resources of pools that claims alone serve.
    resources: Mapping[str, str] = field(default_factory=dict)


def claim_offer(pools: Iterable[Pool], rail: RailOf = lambda _: None) -> ClaimOffer:
    """Return the pools' cards as offered to claims; a card of several pools belongs to the first.

    A pool that would be one device is left out if an earlier pool has one of its cards.
    """
    offered: dict[str, model.OfferedCard] = {}
    owners: dict[CardId, Pool] = {}
    refusals: list[str] = []
    for pool in pools:
        if len(pool.spec.resource.encode()) > _TEXT:
            refusals.append(
                f"{pool.spec.resource} ({pool.spec.source}) is longer than the {_TEXT} bytes that "
                "a device has for it, so claims get none of its cards: give it a shorter name"
            )
            continue
        twice = [card for card in pool.cards if card.id in owners]
        if twice:
            refusals.append(_twice(owners[twice[0].id], pool, twice))
        whole = terms(pool.spec).bind is Bind.POOL
        mine = [card for card in pool.cards if card.id not in owners]
        if whole and twice:
            continue
        owners |= {card.id: pool for card in mine}
        made = _whole(pool) if whole else (_single(pool, card, rail) for card in mine)
        for card in made:
            if card.name in offered:
                refusals.append(
                    f"{pool.spec.resource} ({pool.spec.source}) has a second device {card.name}, "
                    "which claims cannot tell from the first: give the soft device or the "
                    "resource another name"
                )
                continue
            offered[card.name] = card
    return ClaimOffer(tuple(offered.values()), tuple(refusals))


def _single(pool: Pool, card: Card, rail: RailOf) -> model.OfferedCard:
    """Return one card as offered, tainted if unusable or if only some of its ports are active."""
    facts = {**_facts(card), "rail": rail(card.id), "kind": _kind(card), **_pool_facts(pool)}
    states = {port.state is PortState.ACTIVE for device in card.devices for port in device.ports}
    taints: tuple[model.DeviceTaint, ...] = ()
    if not card.usable or len(states) > 1:
        taints = (DEGRADED if card.usable else UNHEALTHY,)
    return model.OfferedCard(
        device_name(pool, card),
        physical(card),
        _attributes(facts),
        slots=terms(pool.spec).shares,
        shared=MODES[pool.spec.mode].most != 1,  # one share of a shared mode is still one
        taints=taints,
    )


def _whole(pool: Pool) -> Iterator[model.OfferedCard]:
    """Yield a pool as one device, if it has cards, with attributes in which no two cards differ."""
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
    yield model.OfferedCard(
        name,
        name,
        _attributes({**common, "kind": "pool", **_pool_facts(pool)}),
        slots=terms(pool.spec).shares,
        shared=True,
        taints=() if all(usable) else (DEGRADED if any(usable) else UNHEALTHY,),
    )


def _facts(card: Card) -> Facts:
    """Return a card's attributes; None for unknown ones, and for the rate without a link."""
    ports = [port for device in card.devices for port in device.ports]
    active = [port for port in ports if port.state is PortState.ACTIVE]
    layers = [port.link_layer for port in ports if port.link_layer is not LinkLayer.UNKNOWN]
    position, numa, device = (
        card.position,
        card.numa_node,
        card.devices[0] if card.devices else None,
    )
    driver = card.function.driver if card.function else device.driver if device else None
    return {
        f"{STANDARD}pciBusID": position.pci if position else None,
        f"{STANDARD}pcieRoot": position.root if position else None,
        f"{STANDARD}numaNode": numa if numa is not None and numa >= 0 else None,
        "rdmaDevice": device.name if device else None,
        "interface": _interface(card, ports),
        "linkLayer": layers[0].value.lower() if layers else None,
        "rateGbps": next((int(port.rate_gbps) for port in active if port.rate_gbps), None),
        "vendor": f"{card.function.vendor:04x}" if card.function else None,
        "driver": driver or None,
    }


def _pool_facts(pool: Pool) -> Facts:
    """Return the attributes that a device has from its pool: mode and resource."""
    return {"mode": pool.spec.mode.value, "resource": pool.spec.resource}


def _interface(card: Card, ports: Sequence[Port]) -> str | None:
    if card.function and card.function.netdevs:
        return card.function.netdevs[0].name
    return next((port.netdev for port in ports if port.netdev), None)


def _kind(card: Card) -> str:
    """Return a card's kind: pf, vf, sf (sub-function) or soft."""
    if any(device.subfunction is not None or device.auxiliary for device in card.devices):
        return "sf"
    if any(device.is_soft for device in card.devices):
        return "soft"
    return "vf" if card.position and card.position.physical_function else "pf"


def _attributes(facts: Facts) -> model.Attributes:
    """Return attributes for a slice, without unknown ones; texts are cut to 64 bytes."""
    return {
        name: model.DeviceAttribute.of(
            str(value).encode()[:_TEXT].decode(errors="ignore") if isinstance(value, str) else value
        )
        for name, value in facts.items()
        if value is not None
    }


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


# Rows: the shares of cards are laid into devices so that pods spread over the cards by themselves.

ROWS = 8
"""The most rows of a pool, each with a device of each card, before the first rows are split."""

_SINGLE = 8
"""The most shares of a card that have a row each, beside its last row."""

PARTS = _SINGLE + ROWS
"""No card has as many rows as this."""

_FINE = 1024  # the pace of growth is a multiple of 1/1024


@lru_cache  # the same few numbers at each look
def row_sizes(slots: int, most: int) -> tuple[int, ...]:
    """Return how many shares each of the devices has into which a card is split, fewest first.

    The scheduler passes over a taken device of one share without evaluating selectors. It evaluates
    them for each shared device, even a full one.
    """
    if slots <= most:
        return (1,) * slots
    if most == 1:
        return (slots,)
    pace = bisect_left(range(_FINE * slots), slots, key=lambda pace: sum(_grown(most, pace)))
    *head, _ = _grown(most, pace)
    sizes = sorted((*head, slots - sum(head)))
    cut = sum(total <= _SINGLE for total in accumulate(sizes[:-1]))
    return (*[1] * sum(sizes[:cut]), *sizes[cut:])


def _grown(rows: int, pace: int) -> list[int]:
    sizes: list[int] = []
    for _ in range(rows):
        sizes.append(max(1, round(sum(sizes) * pace / _FINE)))
    return sizes


def row_count(cards: Sequence[model.OfferedCard], room: int) -> int:
    """Return into how many devices to split shared cards so that `room` suffices: 8, 4, 2, else 1.

    As a power of two, the number seldom changes when a card comes or goes. `row_sizes` may split
    the first rows further.
    """
    several = sum(map(len, spreading(cards)))
    others = len(cards) - several
    rows = ROWS
    while rows > 1 and others + rows * several > room:
        rows //= 2
    return rows if several else 1


def spreading(cards: Iterable[model.OfferedCard]) -> Pools:
    """Return the shared cards of each pool that has more than one such card."""
    return [pool for pool in _by_pool(card for card in cards if card.shared) if len(pool) > 1]


def in_rows(pool: Sequence[model.OfferedCard], most: int) -> Iterator[model.OfferedCard]:
    """Yield the cards' parts, row by row: c0-s0, c1-s0, c0-s1, c1-s1, …, c0, c1.

    A card's last part has the card's name, and no fewer shares than any other part. Another part of
    one share is for one claim: no amount of it has to be counted.
    """
    sizes = [row_sizes(card.slots, most) for card in pool]
    for row in range(max(map(len, sizes))):
        for card, own in zip(pool, sizes, strict=True):
            if row < len(own):
                last = row == len(own) - 1
                name = card.name if last else slot_name(card.name, row)
                yield replace(card, name=name, slots=own[row], shared=last or own[row] > 1)


def _by_pool(cards: Iterable[model.OfferedCard]) -> Pools:
    pools: dict[object, list[model.OfferedCard]] = {}
    for card in cards:
        key = card.attributes.get("resource"), card.attributes.get("mode")
        pools.setdefault(key, []).append(card)
    return list(pools.values())


# Slices: the cards as devices, in groups that are written together.

MOST, MOST_TAINTED = 128, 64  # devices in a slice
_SLOT_DEVICES = 128  # of a pool whose shares are devices
_GIGA = 10**9
# Attributes that a card inside of a pod, or without a link, has although it does not show them.
_HIDDEN = frozenset({"rdmaDevice", "interface", "linkLayer", "rateGbps"})
_IDENTITY = (f"{STANDARD}pciBusID", "kind", "vendor")  # else it is another card


def slices(
    cards: Sequence[model.OfferedCard],
    before: PublishedDevices,
    without: Collection[model.ClaimFeature] = (),
) -> Slices:
    """Return the devices of each ResourceSlice: at least one slice, which may be empty.

    One slice has all devices while they fit, so that each change is one write. Else devices in rows
    have slices of their own, and so has each physical card where the other devices are too many.
    """
    whole = [_carried(card, before) for card in cards]
    bare = model.ClaimFeature.DEVICE_TAINTS in without
    most = MOST if bare else MOST_TAINTED
    spread: Iterable[model.ListedDevice] = ()
    if model.ClaimFeature.CONSUMABLE_CAPACITY in without:
        alone = [card for card in whole if not card.shared]
        spread = _interleaved(card for card in whole if card.shared)
    else:
        rows = row_count(whole, MOST_TAINTED)
        pools = spreading(whole) if rows > 1 else []
        parted = {card.name for pool in pools for card in pool}
        alone = [card for card in whole if card.name not in parted]
        spread = (device for pool in pools for device in _rows(pool, rows))
    groups: dict[str, list[model.ListedDevice]] = {}
    for card in alone:
        groups.setdefault(card.group, []).append(_device(card))
    lists = [
        list(_untainted(group) if bare else (_timed(device, before) for device in group))
        for group in (*groups.values(), spread)
    ]
    devices = tuple(device for group in lists for device in group)
    if len(devices) <= most:
        return (devices,)
    if len(devices) - len(lists[-1]) <= most:
        lists = [[device for group in lists[:-1] for device in group], lists[-1]]
    parts = ((group, at) for group in lists for at in range(0, len(group), most))
    return tuple(tuple(group[at : at + most]) for group, at in parts)


def _rows(pool: Sequence[model.OfferedCard], most: int) -> Iterator[model.ListedDevice]:
    """Yield a pool's devices in rows; only a card's last part may have a capacity of bandwidth.

    A request for no bandwidth takes none, whichever share it gets.
    """
    names = {card.name for card in pool}
    for part in in_rows(pool, most):
        device = _device(part)
        if part.name not in names:
            device = replace(device, capacity={SLOTS: device.capacity[SLOTS]})
        yield device


def _interleaved(cards: Iterable[model.OfferedCard]) -> Iterator[model.ListedDevice]:
    """Yield shares as devices, alternating between cards: c0-s0, c1-s0, c0-s1, c1-s1.

    The scheduler takes the first device that fits, so pods spread over the cards. A pool of many
    shares may have fewer devices than shares.
    """
    for pool in _by_pool(cards):
        counts = [slot_count(card.slots, len(pool)) for card in pool]
        for slot in range(max(counts)):
            for card, count in zip(pool, counts, strict=True):
                if slot < count:
                    name = slot_name(card.name, slot)
                    capacity = {SLOTS: model.DeviceCapacity(Fraction(1))}
                    yield model.ListedDevice(name, card.attributes, capacity, taints=card.taints)


def fewer(cards: Iterable[model.OfferedCard]) -> str | None:
    """Return a sentence if claims get fewer shares than pools have, each as a device; else None."""
    pools = _by_pool(card for card in cards if card.shared)
    wanted = sum(card.slots for pool in pools for card in pool)
    offered = sum(slot_count(card.slots, len(pool)) for pool in pools for card in pool)
    if offered == wanted:
        return None
    return (
        f"{offered} of {wanted} shares can be had by claims: without the feature gate "
        f"{model.ClaimFeature.CONSUMABLE_CAPACITY} each is a device, and a pool has "
        f"{_SLOT_DEVICES} at most"
    )


def slot_count(slots: int, cards: int) -> int:
    """Return how many devices a card becomes if shares are devices, in a pool of `cards` cards."""
    return min(slots, max(1, _SLOT_DEVICES // cards))


def _carried(card: model.OfferedCard, before: PublishedDevices) -> model.OfferedCard:
    """Return the card, with attributes of its last slice that a pod or a lost link hides now.

    A pool as one device gets none of them: it lacks attributes in which its cards differ.
    """
    last = before.get(card.name) or before.get(slot_name(card.name, 0))
    if last is None:
        return card
    now, then = card.attributes, last.attributes
    whole = now.get("kind") == model.DeviceAttribute("pool")
    if whole or any(now.get(name) != then.get(name) for name in _IDENTITY):
        return card
    hidden = {name: value for name, value in then.items() if name in _HIDDEN and name not in now}
    return replace(card, attributes={**now, **hidden})


def _untainted(devices: Iterable[model.ListedDevice]) -> Iterator[model.ListedDevice]:
    """Yield the devices that have no taint against scheduling, without their other taints."""
    for device in devices:
        if all(taint.effect != model.TaintEffect.NO_SCHEDULE for taint in device.taints):
            yield replace(device, taints=())


def _device(card: model.OfferedCard) -> model.ListedDevice:
    """Return a card as a device of a ResourceSlice, with its capacities.

    One slot is the default of a shared card. Without a default, a request that names no amount
    takes all of a capacity (fillEmptyRequest of k8s.io/dynamic-resource-allocation/structured).
    """
    rate = card.attributes.get("rateGbps")
    gbps = rate.number if rate else None
    capacity: dict[str, model.DeviceCapacity] = {}
    if gbps:
        policy = _policy(0, 0, gbps * _GIGA, _GIGA) if card.shared else None
        capacity["bandwidth"] = model.DeviceCapacity(Fraction(gbps * _GIGA), policy)
    if card.shared:
        policy = _policy(1, 1, card.slots, 1 if card.slots > 1 else None)
        capacity[SLOTS] = model.DeviceCapacity(Fraction(card.slots), policy)
    else:
        capacity[SLOTS] = model.DeviceCapacity(Fraction(1))
    return model.ListedDevice(
        card.name, card.attributes, capacity, shared=card.shared or None, taints=card.taints
    )


def _policy(default: int, least: int, most: int, step: int | None) -> model.CapacityPolicy:
    span = model.CapacityRange(
        Fraction(least), Fraction(most), None if step is None else Fraction(step)
    )
    return model.CapacityPolicy(Fraction(default), valid_range=span)


def _timed(device: model.ListedDevice, before: PublishedDevices) -> model.ListedDevice:
    """Return the device with the old times of its taints: new times would restart tolerations.

    Pods that tolerate a taint for some seconds count from that time (KEP-5055).
    """
    last = before.get(device.name)
    if last is None or not device.taints:
        return device
    old = {(one.key, one.effect): one.time_added for one in last.taints}
    taints = (replace(one, time_added=old.get((one.key, one.effect), "")) for one in device.taints)
    return replace(device, taints=tuple(taints))


# DRANET's names of attributes, beside kube-rdma's own, for claims and programs that know those.

DOMAIN = "dra.net/"

_NAMES = {
    "interface": "ifName",
    "rdmaDevice": "rdmaDevice",
    f"{STANDARD}pciBusID": "pciAddress",
    f"{STANDARD}numaNode": "numaNode",
}


def with_dranet_names(parts: Slices) -> Slices:
    """Return the devices of slices, with attributes under DRANET's names added."""
    return tuple(tuple(map(_with_dranet_names, devices)) for devices in parts)


def without_dranet_names(devices: PublishedDevices) -> dict[str, model.ListedDevice]:
    """Return the devices of slices by name, without the attributes under DRANET's names."""
    own = {
        name: {key: one for key, one in device.attributes.items() if not key.startswith(DOMAIN)}
        for name, device in devices.items()
    }
    return {name: replace(device, attributes=own[name]) for name, device in devices.items()}


def _with_dranet_names(device: model.ListedDevice) -> model.ListedDevice:
    attributes = device.attributes
    layer, kind = attributes.get("linkLayer"), attributes.get("kind")
    values = {f"{DOMAIN}{new}": attributes[own] for own, new in _NAMES.items() if own in attributes}
    if layer:  # as netlink calls it (rtnl_link, ARPHRD_ETHER)
        is_ethernet = layer.string == "ethernet"
        values[f"{DOMAIN}encapsulation"] = model.DeviceAttribute("ether") if is_ethernet else layer
    values[f"{DOMAIN}isSriovVf"] = model.DeviceAttribute.of(kind == model.DeviceAttribute("vf"))
    values[f"{DOMAIN}rdma"] = model.DeviceAttribute.of("rdmaDevice" in attributes)
    return replace(device, attributes={**attributes, **values})


# Names of cards and pools as devices, and of slices. claims/rules/prepare looks them up: a name has
# to lead back to the card, on this node and after a restart. It is a DNS label
# (pkg/apis/resource/validation: validateDeviceName).

_LABEL, _SUBDOMAIN = 63, 253  # characters
_DIGEST = 8
_SLOT = re.compile(r"(.+)-s([0-9]+)")
_OTHER = re.compile(r"[^a-z0-9]+")


def device_name(pool: Pool, card: Card | None) -> str:
    """Return the device name of a card of a pool; without a card, that of the whole pool.

    Names are ``0000-1a-00-0`` for a PCI address, ``rxe0-eth0`` for a soft device, ``rdma-hca`` for
    a pool.
    """
    return device_label(card.id if card else pool.spec.resource)


def device_label(text: str) -> str:
    """Return the device name of a card's id, or of a resource."""
    plain = _OTHER.sub("-", text.lower()).strip("-") or "device"
    if len(plain) <= _LABEL:
        return plain
    return f"{plain[: _LABEL - _DIGEST - 1].rstrip('-')}-{_digest(text)}"  # of all of it


def slot_name(name: str, slot: int) -> str:
    """Return the device name of one share or part of a card: ``0000-1a-00-0-s3``."""
    end = f"-s{slot}"
    return _short(name, _LABEL - len(end)) + end


def slot_of(name: str) -> tuple[str, int] | None:
    """Return NAME and number of a device name ``NAME-s3``; None for a name without a number."""
    match = _SLOT.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def slice_name(number: int, node: str) -> str:
    """Return the name of a ResourceSlice in a node's pool.

    The scheduler takes slices in the order of their names (sortSlicesByName of k8s.io/dynamic-
    resource-allocation/structured), so the number comes first.
    """
    return object_name(f"{number:03}-{model.DRIVER}-{node}")


def object_name(text: str) -> str:
    """Return a text as the name of an object; a digest ends one that would be too long."""
    return _short(text, _SUBDOMAIN)


def _short(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    return f"{name[: most - _DIGEST - 1].rstrip('-.')}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
