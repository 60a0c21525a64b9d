"""Whose devices are whose: the series that have the names of pods and containers.

A container has a device alone where its share is a whole card, or where a device was moved or made
for it; then the device's counters are the container's. Of a device that others open too nobody can
say whose traffic it counts, so there the series only say who holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, replace
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.node import pod_device_series
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.card import CardId
from kube_rdma.model.late_binding.binding import HeldShare
from kube_rdma.model.metrics.families import (
    CounterReadings,
    DeviceCounters,
    Durations,
    HolderName,
    MetricSeries,
    PodPlaceCounters,
)
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Pool
from kube_rdma.model.pools.rdma_limits import PodDeviceUse
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.claimed_cards import ClaimedCard, rdma_devices
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms


class HeldDevice(Frozen):
    """A device of a container; `own`: no other one opens it.

    `resource` is the driver's name of a device that came by a claim of another driver. `inside` is
    the inode of the namespace that shows it, None where the node's does. `card` is "" where nothing
    was held for it.
    """

    holder: HolderName
    resource: str
    card: str
    device: str
    own: bool
    inside: int | None = None


class SeenDevices:
    """The devices that were read, to be asked for by name."""

    def __init__(self, node: CounterReadings, inside: Iterable[PodPlaceCounters]) -> None:
        self._node = {device.name: device for device in node.devices}
        self._inside = {place.inode: place.readings.devices for place in inside}

    def of(self, held: HeldDevice) -> DeviceCounters | None:
        """The device as it is now; in a pod, where it may have a new name, also by its function."""
        if held.inside is None:
            return self._node.get(held.device)
        devices = self._inside.get(held.inside, ())
        named = (device for device in devices if device.name == held.device)
        return next(named, None) or next((one for one in devices if one.pci == held.card), None)


def away(attachments: Iterable[Attachment], mode: NamespaceMode) -> tuple[Sandbox, ...]:
    """The sandboxes that have RDMA devices which the node does not see."""
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
    """Every device of every container, but for shares that stand for a whole pool."""
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
    """The same with what containers hold by claims of other drivers, as far as the node sees it.

    A device that pods have both by a share and by a claim is no pod's own. One that several
    containers of a pod hold by claims is the pod's, and its container is "".
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
    """Whether another pod has the device by a claim."""
    return bool(pods.get(part.device, set()) - {(part.holder.namespace, part.holder.pod)})


def _claimed(
    shared: Sequence[HeldDevice], claimed: Mapping[str, Sequence[ClaimedCard]]
) -> Iterator[HeldDevice]:
    """What is held by claims alone; the shares of the same pod have said the rest."""
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
    """What containers hold of these resources, and the counters of devices that are their own."""
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
    """What pods have of devices on which the kernel limits their objects."""
    for pod in uses:
        labels = (pod.namespace, pod.pod, pod.use.device)
        if pod.limits.objects is not None:
            yield MetricSeries(families.POD_OBJECTS, labels, pod.use.objects)
            yield MetricSeries(families.POD_MOST_OBJECTS, labels, pod.limits.objects)


def without_pods(values: Iterable[MetricSeries | Durations]) -> Iterator[MetricSeries | Durations]:
    """Those that anybody may read: none has a pod, a container or their namespace in a label."""
    return (value for value in values if not {*families.HOLDER} & {*value.family.labels})


def _held_series(held: HeldDevice, device: DeviceCounters) -> Iterator[MetricSeries]:
    holder, access = held.holder, "own" if held.own else "shared"
    container = (holder.namespace, holder.pod, holder.container)
    labels = (*container, held.resource, held.card, device.name, access)
    yield MetricSeries(families.POD_DEVICE, labels, 1)
    if held.own:
        yield from pod_device_series(holder, device)


def _granted(holdings: Sequence[Holding], pools: Mapping[str, Pool]) -> Iterator[HeldDevice]:
    """The devices of the cards that shares stand for."""
    devices = {
        (resource, card.id): [device.name for device in card.devices]
        for resource, pool in pools.items()
        for card in pool.cards
    }
    for holding in holdings:
        pool = pools.get(holding.resource)
        for share in holding.shares if pool else ():
            assert pool
            card = card_of(pool.spec, share)
            for name in devices.get((holding.resource, card), ()) if card else ():
                own = terms(pool.spec).owns
                yield HeldDevice(_holder(holding), holding.resource, str(card), name, own)


def _attached(
    holdings: Sequence[Holding], attachments: Iterable[Attachment], mode: NamespaceMode
) -> Iterator[HeldDevice]:
    """The devices that were moved into pods, or made for them."""
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
