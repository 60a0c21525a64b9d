"""Gives what a node offers the form that the API server takes: devices, in slices.

Between claims/rules/cards and claims/rules/publication. The limits are those of
pkg/apis/resource/validation and k8s.io/api/resource/v1/types.go: 128 devices in a slice, 64 if one
has taints. Where a server drops a feature, the same is said without it: shares become devices of
their own, and devices that cannot be used are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.claims.rules.names import slot_name
from kube_rdma.claims.rules.rows import by_pool, in_rows, row_count, spreading
from kube_rdma.model.claims.offered import (
    Attributes,
    ClaimFeature,
    DeviceCapacity,
    DeviceTaint,
    OfferedCard,
    OfferedDevice,
    RequestPolicy,
    TaintEffect,
)

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
