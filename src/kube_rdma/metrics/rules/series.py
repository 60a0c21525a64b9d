"""Makes the series of devices, of addresses, and of what the agent offers.

Series of the node's ports name device and port, series of a container's own devices the container
too. This is between adapters/kernel/sysfs/counters, which has the files, and the families of the
table. Counters are only converted to the unit of their metric. A counter that wrapped stays so,
which rate() of Prometheus takes for a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, replace
from kube_rdma.metrics.rules import families
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.card import CardId
from kube_rdma.model.device import PcieLink
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import Usage
from kube_rdma.model.late_binding import HeldShare
from kube_rdma.model.metrics import (
    CounterReadings,
    DeviceCounters,
    Durations,
    HolderName,
    MetricFamily,
    MetricNames,
    MetricSeries,
    PodPlaceCounters,
    PortCounters,
)
from kube_rdma.model.pools import PodDeviceUse, Pool
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.absence import HealthChange
from kube_rdma.pools.rules.claimed_cards import ClaimedCard, rdma_devices
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.pools import offer

_BYTES = 125_000_000  # in a gigabit
_WRAP = 1 << 64
_MILLI = 1000
_GIGA = 1_000_000_000


def device_series(
    devices: Iterable[DeviceCounters], names: Collection[MetricNames]
) -> Iterator[MetricSeries]:
    """Yield the series of the node's RDMA devices; `names` chooses the names of port metrics.

    Metrics that only kube-rdma has are there in any case.
    """
    for device in devices:
        if MetricNames.NODE_EXPORTER in names:
            described = (device.name, device.board, device.firmware, device.adapter)
            yield MetricSeries(families.INFO, described, 1)
        if device.pcie:
            yield from _pcie(device.name, device.pcie)
        for port in device.ports:
            labels = (device.name, str(port.number))
            if MetricNames.NODE_EXPORTER in names:
                yield from _states(port, labels)
                yield from _counters(port, labels, families.OF_NODE)
            if MetricNames.VKE in names:
                yield from _counters(port, labels, families.OF_VKE)
            yield from _unnamed(port, labels, families.HW_COUNTER)
            if port.gids is not None:
                yield MetricSeries(families.GIDS, labels, port.gids)


def pod_device_series(holder: HolderName, device: DeviceCounters) -> Iterator[MetricSeries]:
    """Yield the series of an RDMA device that only one pod has."""
    for port in device.ports:
        labels = (holder.namespace, holder.pod, holder.container, device.name, str(port.number))
        if port.state is not None:
            yield MetricSeries(families.POD_STATE, labels, port.state)
        if port.rate_gbps is not None:
            yield MetricSeries(families.POD_RATE, labels, int(port.rate_gbps * _BYTES))
        yield from _counters(port, labels, families.OF_POD)
        yield from _unnamed(port, labels, families.POD_HW_COUNTER)


def _pcie(device: str, link: PcieLink) -> Iterator[MetricSeries]:
    yield MetricSeries(families.PCIE_LANES, (device,), link.width)
    yield MetricSeries(families.PCIE_MOST_LANES, (device,), link.most_width)
    yield MetricSeries(families.PCIE_SPEED, (device,), link.speed * _GIGA)
    yield MetricSeries(families.PCIE_MOST_SPEED, (device,), link.most_speed * _GIGA)


def _states(port: PortCounters, labels: tuple[str, ...]) -> Iterator[MetricSeries]:
    if port.state is not None:
        yield MetricSeries(families.STATE, labels, port.state)
    if port.physical_state is not None:
        yield MetricSeries(families.PHYSICAL_STATE, labels, port.physical_state)
    if port.rate_gbps is not None:
        yield MetricSeries(families.RATE, labels, int(port.rate_gbps * _BYTES))
    if families.LIFESPAN in port.hw_counters:
        seconds = port.hw_counters[families.LIFESPAN] // _MILLI  # node_exporter divides integers
        yield MetricSeries(families.LIFESPAN_SECONDS, labels, seconds)


def _counters(
    port: PortCounters, labels: tuple[str, ...], table: families.Table
) -> Iterator[MetricSeries]:
    for file, value in port.counters.items():
        if file in table and file not in families.HARDWARE:
            yield MetricSeries(table[file], labels, scaled(file, value))
    for file, value in port.hw_counters.items():
        if file in table and file in families.HARDWARE:
            yield MetricSeries(table[file], labels, value)


def _unnamed(
    port: PortCounters, labels: tuple[str, ...], family: MetricFamily
) -> Iterator[MetricSeries]:
    """Yield a series for each counter of a driver that no table of families knows.

    Among these are byte counters of EFA, bnxt_re and rxe.
    """
    for file, value in port.hw_counters.items():
        if file not in families.HARDWARE and file != families.LIFESPAN:
            yield MetricSeries(family, (*labels, file), value)


def scaled(file: str, value: int) -> int:
    """Return a counter's value in its metric's unit, wrapped at 64 bits as node_exporter's."""
    return value * families.FACTOR % _WRAP if file in families.DATA else value


# Devices of pods: the series that have the names of pods and containers.


class HeldDevice(Frozen):
    """An RDMA device that a container holds."""

    holder: HolderName
    resource: str  # the driver's name for a device by a claim of another driver
    card: str  # "" where nothing was held for it
    device: str
    own: bool  # no other pod opens it
    inside: int | None = None  # inode of the namespace that shows it; None: the node's


class SeenDevices:
    """The counters of devices on the node and inside pods, looked up by device."""

    def __init__(self, node: CounterReadings, inside: Iterable[PodPlaceCounters]) -> None:
        self._node = {device.name: device for device in node.devices}
        self._inside = {place.inode: place.readings.devices for place in inside}

    def of(self, held: HeldDevice) -> DeviceCounters | None:
        """Return the current counters of a held device; None where it was not read.

        In a pod, where a device may have a new name, it is also found by its PCI function.
        """
        if held.inside is None:
            return self._node.get(held.device)
        devices = self._inside.get(held.inside, ())
        named = (device for device in devices if device.name == held.device)
        return next(named, None) or next((one for one in devices if one.pci == held.card), None)


def away(attachments: Iterable[Attachment], mode: NamespaceMode) -> tuple[Sandbox, ...]:
    """Return the sandboxes with RDMA devices that are out of the node's sight."""
    if mode is not NamespaceMode.EXCLUSIVE:
        return ()
    sandboxes = {
        attachment.sandbox.netns_inode: attachment.sandbox
        for attachment in attachments
        if any(_rdma_names(plan) for plan in attachment.plans)
    }
    return tuple(sandboxes.values())


def held_devices(
    holdings: Sequence[Holding],
    pools: Mapping[str, Pool],
    attachments: Iterable[Attachment],
    mode: NamespaceMode,
) -> tuple[HeldDevice, ...]:
    """Return each RDMA device that each container holds.

    Shares that stand for a whole pool hold no device of their own.
    """
    attached = list(_attached(holdings, attachments, mode))
    known_by_attachment = {(one.holder, one.card) for one in attached}
    granted = (
        one
        for one in _granted(holdings, pools)
        if not (one.own and (one.holder, one.card) in known_by_attachment)
    )
    devices = {(one.holder, one.device, one.inside): one for one in (*granted, *attached)}
    return tuple(devices.values())


def with_claims(
    held: Sequence[HeldDevice], cards: Iterable[ClaimedCard], node: Iterable[DeviceCounters]
) -> tuple[HeldDevice, ...]:
    """Return the held devices, with those in the node's sight that other drivers' claims hold.

    A device that one pod has by a share and another one by a claim is no pod's own. One that
    several containers of a pod hold by claims is the pod's, and its container is "".
    """
    seen = tuple(node)
    claimed: dict[str, list[ClaimedCard]] = {}
    for card in cards:
        for device in () if card.is_own else rdma_devices(card.card, seen):
            claimed.setdefault(device.name, []).append(card)
    pods = {
        name: {(one.held.namespace, one.held.pod) for one in of} for name, of in claimed.items()
    }
    shared = tuple(
        replace(part, own=part.own and not _others(pods, part)) if part.inside is None else part
        for part in held
    )
    return (*shared, *_claimed(shared, claimed))


def _others(pods: Mapping[str, set[tuple[str, str]]], part: HeldDevice) -> bool:
    """Return whether a pod other than this part's has the device by a claim."""
    return bool(pods.get(part.device, set()) - {(part.holder.namespace, part.holder.pod)})


def _claimed(
    shared: Sequence[HeldDevice], claimed: Mapping[str, Sequence[ClaimedCard]]
) -> Iterator[HeldDevice]:
    """Yield the devices that pods hold by claims alone, not also by a share."""
    for name, of in claimed.items():
        by_share = {
            (one.holder.namespace, one.holder.pod)
            for one in shared
            if one.device == name and one.inside is None
        }
        by_claim = {(one.held.namespace, one.held.pod) for one in of}
        own = len(by_share | by_claim) == 1
        containers = {
            HolderName(one.held.namespace, one.held.pod, one.held.container): one
            for one in of
            if (one.held.namespace, one.held.pod) not in by_share
        }
        if own and len(containers) > 1:
            holder, card = next(iter(containers.items()))
            containers = {replace(holder, container=""): card}
        for holder, card in containers.items():
            yield HeldDevice(holder, card.driver, card.card.pci, name, own)


def pod_series(
    holdings: Sequence[Holding],
    resources: Iterable[str],
    held: Iterable[HeldDevice],
    now: SeenDevices,
) -> Iterator[MetricSeries]:
    """Yield each container's number of shares, its devices, and the counters of its own devices.

    A device that other pods may open too has no counters here.
    """
    names = frozenset(resources)
    for holding in holdings:
        if holding.resource in names and holding.shares:
            labels = (holding.namespace, holding.pod, holding.container, holding.resource)
            yield MetricSeries(families.POD_SHARES, labels, len(set(holding.shares)))
    shown: set[tuple[HolderName, str]] = set()
    for part in held:
        device = now.of(part)
        # Under new names two may turn out to be the same device.
        if device is None or (part.holder, device.name) in shown:
            continue
        shown.add((part.holder, device.name))
        yield from _held_series(part, device)


def limit_series(uses: Iterable[PodDeviceUse]) -> Iterator[MetricSeries]:
    """Yield what pods use of RDMA devices whose objects the kernel limits, with the limits."""
    for pod in uses:
        labels = (pod.namespace, pod.pod, pod.use.device)
        if pod.limits.objects is not None:
            yield MetricSeries(families.POD_OBJECTS, labels, pod.use.objects)
            yield MetricSeries(families.POD_MOST_OBJECTS, labels, pod.limits.objects)


def without_pods(values: Iterable[MetricSeries | Durations]) -> Iterator[MetricSeries | Durations]:
    """Return the series without those that name a pod, container or namespace.

    Anybody may read what is left.
    """
    return (value for value in values if not {*families.HOLDER} & {*value.family.labels})


def _held_series(held: HeldDevice, device: DeviceCounters) -> Iterator[MetricSeries]:
    holder, access = held.holder, "own" if held.own else "shared"
    container = (holder.namespace, holder.pod, holder.container)
    labels = (*container, held.resource, held.card, device.name, access)
    yield MetricSeries(families.POD_DEVICE, labels, 1)
    if held.own:
        yield from pod_device_series(holder, device)


def _granted(holdings: Sequence[Holding], pools: Mapping[str, Pool]) -> Iterator[HeldDevice]:
    """Yield the RDMA devices of the cards that containers hold by shares.

    A card with one share in one pool is given to nobody else, whatever the mode.
    """
    pools_of = Counter(card.id for pool in pools.values() for card in pool.cards)
    devices = {
        (resource, card.id): [device.name for device in card.devices]
        for resource, pool in pools.items()
        for card in pool.cards
    }
    for holding in holdings:
        pool = pools.get(holding.resource)
        for share in holding.shares if pool else ():
            assert pool
            row, card = terms(pool.spec), card_of(pool.spec, share)
            if card is None:
                continue
            own = row.owns or (row.shares == 1 and pools_of[card] == 1)
            for name in devices.get((holding.resource, card), ()):
                yield HeldDevice(_holder(holding), holding.resource, str(card), name, own)


def _attached(
    holdings: Sequence[Holding], attachments: Iterable[Attachment], mode: NamespaceMode
) -> Iterator[HeldDevice]:
    """Yield the devices that were moved into pods, or made for pods, with their containers."""
    holders: dict[HeldShare, HolderName] = {
        (holding.resource, share): _holder(holding)
        for holding in holdings
        for share in holding.shares
    }
    for attachment in attachments:
        pod = attachment.sandbox.pod
        inside = attachment.sandbox.netns_inode if mode is NamespaceMode.EXCLUSIVE else None
        for plan in attachment.plans:
            holder = holders.get(plan.held) if plan.held else None
            # A share is the next pod's as soon as this one has ended.
            if holder is None or (holder.namespace, holder.pod) != (pod.namespace, pod.name):
                holder = HolderName(pod.namespace, pod.name, "")
            resource = plan.held[0] if plan.held else ""
            card = plan.card or CardId("")
            for name in _rdma_names(plan):
                yield HeldDevice(holder, resource, card, name, own=True, inside=inside)


def _rdma_names(plan: Plan) -> tuple[str, ...]:
    moved = [step.device for step in plan.steps if isinstance(step, MoveRdma)]
    made = [step.name for step in plan.steps if isinstance(step, MakeRdma)]
    return (*moved, *made)


def _holder(holding: Holding) -> HolderName:
    return HolderName(holding.namespace, holding.pod, holding.container)


# Series of pools of addresses: the number of addresses, and of those that nodes hold.


def address_series(usages: Mapping[str, Sequence[Usage]]) -> Iterator[MetricSeries]:
    """Yield the number of addresses, and of held ones, for each IP version and rail of a pool.

    `usages` are by the pool's name.
    """
    for pool, parts in usages.items():
        for usage in parts:
            rail = "" if usage.rail is None else str(usage.rail)
            labels = (pool, usage.family.removeprefix("IPv"), rail)
            yield MetricSeries(families.POOL_ADDRESSES, labels, usage.size)
            yield MetricSeries(families.POOL_HELD, labels, usage.held)


# Series of what the agent offers: resources with their shares, and cards with their health.

HealthCounts = Mapping[tuple[CardId, bool], int]
"""How often each card became healthy or unhealthy, by the card and whether it is healthy then."""


def resource_series(
    pools: Mapping[str, Pool], holdings: Sequence[Holding] | None
) -> Iterator[MetricSeries]:
    """Yield the numbers of shares of each resource, the health of its cards, and their devices.

    Without `holdings` it is not known how many are in use.
    """
    for resource, pool in pools.items():
        shares = offer(pool).shares
        healthy = sum(share.healthy for share in shares)
        yield MetricSeries(families.SHARES, (resource,), len(shares))
        yield MetricSeries(families.HEALTHY_SHARES, (resource,), healthy)
        if holdings is not None:
            held = (one.shares for one in holdings if one.resource == resource)
            yield MetricSeries(families.USED_SHARES, (resource,), len(set().union(*held)))
        for card in pool.cards:
            yield MetricSeries(families.CARD_HEALTHY, (card.id, card.name, resource), card.usable)
            for device in card.devices:
                yield MetricSeries(families.POOL_DEVICE, (resource, card.id, device.name), 1)


def health_counts(
    counts: HealthCounts,
    changes: Sequence[HealthChange],
    before: Collection[CardId],
    cards: Collection[CardId],
) -> HealthCounts:
    """Return the counts after changes of the cards' health.

    `before` are the cards that were known before: the first sight of a card is no change. A series
    ends when its card is none of `cards` any more.
    """
    after = dict(counts)
    for change in changes:
        if change.card in before:
            after.setdefault((change.card, not change.healthy), 0)
            after[change.card, change.healthy] = after.get((change.card, change.healthy), 0) + 1
    return {key: count for key, count in after.items() if key[0] in cards}


def health_series(counts: HealthCounts) -> Iterator[MetricSeries]:
    """Yield how often each card became healthy, and unhealthy."""
    for (card, healthy), count in counts.items():
        yield MetricSeries(families.HEALTH_CHANGES, (card, str(healthy).lower()), count)
