"""What a claim gets on this node: from what the scheduler allocated to what is booked.

    kubelet ─ NodePrepareResources ─► claim of the API ─► book ─► journal ─► CDI file ─► answer

Preparing books and does nothing else: the kubelet calls one driver after the other and takes
nothing back when a later one fails (kubernetes#137819). Acts of the kernel come with the pod's
network (CNI ADD), without which no pod starts. The scheduler's word counts; what is refused here
is what cannot be true any more, in one sentence that the kubelet shows as an Event of the pod.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.claims.rules.names import device_name, slot_name, slot_of
from kube_rdma.claims.rules.shape import slot_count
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.card import Card
from kube_rdma.model.claims.claim import (
    CLAIM_KIND,
    AllocatedClaim,
    AllocatedDevice,
    ClaimName,
    ClaimParameters,
    ClaimShare,
    DeviceCondition,
    DeviceStatus,
    PodClaims,
    PreparedClaim,
    PreparedDevice,
)
from kube_rdma.model.claims.devices import DRIVER, DeviceHealth
from kube_rdma.model.late_binding import HeldShare
from kube_rdma.model.pools import Attach, Bind, Pool, Serving, Share, ShareId
from kube_rdma.pools.rules.allocation import grant
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms

NO_PARAMETERS: Mapping[str, ClaimParameters] = MappingProxyType({})

_ANEW = "Delete the pod, so that the scheduler allocates again"
_WAIT = "Wait until their pods have ended; the kubelet tries again"


class Taken(Unavailable):
    """Other claims or shares have the device now."""


class PoolDevice(Frozen):
    """A device of the driver: a card of a pool, or (None) the whole pool; `room` in slots."""

    pool: Pool
    card: Card | None
    room: int

    @property
    def is_shared(self) -> bool:
        """Whether several claims may hold it at a time."""
        return self.card is None or terms(self.pool.spec).most != 1

    @property
    def illness(self) -> tuple[str, ...]:
        """Why it cannot be used now; a whole pool can as long as one of its cards can."""
        if self.card:
            return self.card.reasons
        if any(card.usable for card in self.pool.cards):
            return ()
        return tuple(f"{card.name}: {why}" for card in self.pool.cards for why in card.reasons)


class BookingNode(Frozen):
    """What a booking stands on: this node, its boot, what it offers, what is booked on it.

    `holders` are pods that hold shares by the device plugin, in words: they may run on after their
    pool went to claims.
    """

    name: str
    boot: str
    devices: Mapping[str, PoolDevice]
    prepared: tuple[PreparedClaim, ...] = ()
    holders: Mapping[HeldShare, str] = MappingProxyType({})

    def device(self, name: str) -> PoolDevice | None:
        """The device of this name, or the one of whose shares this is a part."""
        return self.devices.get(self.whole(name))

    def whole(self, name: str) -> str:
        """The device itself, of a name that may be that of a part of it (claims/rules/shape).

        What is booked is counted by it: parts are cut anew when cards come or go.
        """
        if name in self.devices or (part := slot_of(name)) is None:
            return name
        own, slot = part
        if own in self.devices:
            return own
        return next((one for one in self.devices if slot_name(one, slot) == name), name)


def devices_of(pools: Iterable[Pool]) -> dict[str, PoolDevice]:
    """The devices of the pools by name; a card of two pools is the first one's."""
    devices: dict[str, PoolDevice] = {}
    for pool in pools:
        row = terms(pool.spec)
        if row.bind is Bind.POOL:
            listed_cards: tuple[Card | None, ...] = (None,) if pool.cards else ()
        else:
            listed_cards = pool.cards
        for card in listed_cards:
            devices.setdefault(device_name(pool, card), PoolDevice(pool, card, row.shares))
    return devices


def book(
    asked: ClaimName,
    claim: AllocatedClaim | None,
    node: BookingNode,
    when: float,
    parameters: Mapping[str, ClaimParameters] = NO_PARAMETERS,
) -> PreparedClaim:
    """The booking of a claim; what else is booked for it already does not count.

    `claim` is what has the name now, None for nothing; `parameters` are those of its requests.
    Raise Refused with why it cannot be had.
    """
    where = f"claim {asked}"
    if claim is None:
        raise Refused("it is not there any more", remedy=_ANEW, where=where)
    if claim.claim.uid != asked.uid:
        problem = f"it was deleted and made again: its uid is {claim.claim.uid}, not {asked.uid}"
        raise Refused(problem, remedy="Delete the pod that was made for the old one", where=where)
    mine = [one for one in claim.devices if one.driver == DRIVER]
    if not mine:
        problem = f"no device of {DRIVER} is allocated to it"
        raise Refused(problem, remedy="Wait until the scheduler has allocated it", where=where)
    others = [one for one in node.prepared if one.claim.uid != asked.uid]
    shares: list[ClaimShare] = []
    for number, wanted in enumerate(mine):
        device = _device(wanted, node, where)
        _refuse_plugins(device.pool, where)
        share = _share(asked, number, wanted, device)
        whole = node.whole(share.device)
        held = [
            *_of_others(whole, node, others),
            *_of_plugin(device, node),
            *_own(whole, node, shares),
        ]
        _refuse_excess(share, device, held, where)
        if wanted.request in parameters:
            share = replace(share, parameters=parameters[wanted.request])
        shares.append(share)
    return PreparedClaim(asked, tuple(shares), claim.users, node.boot, when, claim.pod_claim)


def stands(prepared: PreparedClaim, node: BookingNode) -> bool:
    """Whether a booking is as it was answered: of this boot, and with what its CDI devices have."""
    return prepared.boot == node.boot and all(
        share.char_paths or not share.cdi or _is_late(node.device(share.device))
        for share in prepared.shares
    )


def rebooked(prepared: PreparedClaim, node: BookingNode) -> PreparedClaim:
    """The booking of an earlier boot in this one: the same shares, with the nodes of now.

    A device that is not there now has none; the kubelet prepares the claim again before a
    container starts, and is told then.
    """
    shares = tuple(replace(share, char_paths=_paths_now(share, node)) for share in prepared.shares)
    return replace(prepared, shares=shares, boot=node.boot)


def _paths_now(share: ClaimShare, node: BookingNode) -> tuple[str, ...]:
    device = node.device(share.device)
    return () if device is None or _is_late(device) else _char_paths(device, share.share)


def _is_late(device: PoolDevice | None) -> bool:
    """Whether a container may open it only when its pod has a network on it."""
    return device is not None and terms(device.pool.spec).attach is Attach.REQUIRED


def refuse_vanished(prepared: PreparedClaim, node: BookingNode) -> None:
    """Raise Refused for a booking of an earlier boot with a device that this one has not."""
    for share in prepared.shares:
        if node.device(share.device) is None:
            raise _vanished(share.device, node, f"claim {prepared.claim}")


def answer(prepared: PreparedClaim) -> tuple[PreparedDevice, ...]:
    """What the kubelet is told of a booking.

    The kubelet knows requests by their main name (kubeletplugin/draplugin.go of
    k8s.io/dynamic-resource-allocation@v0.36.3, stripSubrequestNames).
    """
    return tuple(
        PreparedDevice(
            pool=share.pool,
            device=share.device,
            requests=(share.request.partition("/")[0],),
            cdi=(share.cdi,) if share.cdi else (),
            share=share.share_id,
        )
        for share in prepared.shares
    )


def cdi_device(claim: ClaimName, wanted: AllocatedDevice) -> str:
    """The CDI device of a device of a claim: its name was never used before and never is again.

    Requests, devices and share ids have no ``_`` and requests no ``.``, so none is mistaken.
    """
    request = wanted.request.replace("/", ".")
    return f"{CLAIM_KIND}={claim.uid}_{request}_{wanted.share or wanted.device}"


def _device(wanted: AllocatedDevice, node: BookingNode, where: str) -> PoolDevice:
    if wanted.pool != node.name:
        problem = f"{wanted.device} is a device of pool {wanted.pool}, and this node is {node.name}"
        raise Refused(problem, remedy=_ANEW, where=where)
    device = node.device(wanted.device)
    if device is None:
        raise _vanished(wanted.device, node, where)
    if device.illness and not (wanted.tolerant or wanted.admin):
        problem = f"{wanted.device} cannot be used: {listed(device.illness)}"
        raise Refused(problem, remedy=f"Repair it or d{_ANEW[1:]}", where=where)
    return device


def _refuse_plugins(pool: Pool, where: str) -> None:
    """Raise Refused for a device whose shares the kubelet gives away by now."""
    if pool.spec.serve is Serving.PLUGIN:
        problem = f"the device plugin serves {pool.spec.resource} on this node now, not claims"
        raise Refused(problem, remedy=_ANEW, where=where)


def _vanished(name: str, node: BookingNode, where: str) -> Refused:
    has = listed(sorted(node.devices)) or "none"
    problem = f"device {name} has vanished from node {node.name}, whose devices are {has}"
    return Refused(problem, remedy=_ANEW, where=where)


def _share(
    claim: ClaimName, number: int, wanted: AllocatedDevice, device: PoolDevice
) -> ClaimShare:
    share = _share_name(claim, number, device)
    is_late = _is_late(device)
    paths = () if is_late else _char_paths(device, share)
    return ClaimShare(
        request=wanted.request,
        pool=wanted.pool,
        device=wanted.device,
        share_id=wanted.share,
        resource=device.pool.spec.resource,
        share=share,
        cards=tuple(card.id for card in ([device.card] if device.card else device.pool.cards)),
        slots=wanted.slots if wanted.slots is not None and device.is_shared else 1,
        char_paths=paths,
        cdi=cdi_device(claim, wanted) if paths or is_late else "",
        admin=wanted.admin,
    )


def _share_name(claim: ClaimName, number: int, device: PoolDevice) -> ShareId:
    """``<card>-<claim>.<number>``: pools/rules/holdings reads the card out of it as of any share.

    Where a share is not numbered it is the card itself, which one claim has at a time.
    """
    token = f"{claim.uid.replace('-', '')}.{number}"
    if device.card is None:
        return ShareId(f"{device.pool.spec.mode}-{token}")
    if not terms(device.pool.spec).numbered:
        return ShareId(device.card.id)
    return ShareId(f"{device.card.id}-{token}")


def _char_paths(device: PoolDevice, share: ShareId) -> tuple[str, ...]:
    """The nodes that a share of this device opens."""
    card = device.card.id if device.card else None
    return grant(device.pool, [Share(share, healthy=True, card=card)]).char_paths


def _of_others(
    whole: str, node: BookingNode, others: Sequence[PreparedClaim]
) -> list[tuple[str, int]]:
    """What other claims hold of a device, each with its slots."""
    return [
        (str(one.claim), held.slots)
        for one in others
        for held in one.shares
        if not held.admin and node.whole(held.device) == whole
    ]


def _of_plugin(device: PoolDevice, node: BookingNode) -> list[tuple[str, int]]:
    """What pods hold of a device by shares of the device plugin."""
    spec = device.pool.spec
    card = device.card.id if device.card else None
    slots = Counter(
        f"{who} (by a share of the device plugin)"
        for (resource, share), who in sorted(node.holders.items())
        if resource == spec.resource and card_of(spec, share) == card
    )
    return list(slots.items())


def _own(whole: str, node: BookingNode, shares: Sequence[ClaimShare]) -> list[tuple[str, int]]:
    """What earlier requests of the same claim hold of the device."""
    same = (one for one in shares if not one.admin and node.whole(one.device) == whole)
    return [(f"its request {one.request}", one.slots) for one in same]


def _refuse_excess(
    share: ClaimShare, device: PoolDevice, held: Sequence[tuple[str, int]], where: str
) -> None:
    """Raise Refused for more than the device has, and Taken while others hold too much."""
    if share.admin:
        return
    room = device.room if device.is_shared else 1
    if share.slots > room:
        problem = f"it asks for {_slots(share.slots)} of {share.device}, which has {room}"
        remedy = f"Ask for at most {room}, or raise the shares of {share.resource}"
        raise Refused(problem, remedy=remedy, where=where)
    taken = sum(slots for _, slots in held)
    if taken + share.slots > room:
        names = listed([name for name, _ in held])
        raise Taken(
            f"{where}: {share.device} has {_slots(room)}, of which {names} hold {taken}. {_WAIT}."
        )


def _slots(count: int) -> str:
    return f"{count} slot" + ("" if count == 1 else "s")


# What people read in a claim: whether its devices are prepared, and what the network made.

READY, NETWORK_READY = "Ready", "NetworkReady"
MOST_ADDRESSES = 16  # of networkData.ips


def device_statuses_of(
    prepared: PreparedClaim, interfaces: Sequence[Attached] = ()
) -> tuple[DeviceStatus, ...]:
    """The status of every device of a booking whose pod has these interfaces."""
    return tuple(_status(share, _of(share, interfaces)) for share in prepared.shares)


def addresses(interface: Attached) -> tuple[str, ...]:
    """The addresses of an interface, as networkData has them."""
    texts = (f"{one.address}/{one.prefix}" for one in interface.addresses)
    return tuple(dict.fromkeys(texts))[:MOST_ADDRESSES]


def _of(share: ClaimShare, interfaces: Sequence[Attached]) -> list[Attached]:
    """The interfaces on cards of the share; of a look at a device (adminAccess) there is none."""
    return [] if share.admin else [one for one in interfaces if one.card in share.cards]


def _status(share: ClaimShare, interfaces: Sequence[Attached]) -> DeviceStatus:
    conditions = (_prepared(share), _attached(share, interfaces))
    status = DeviceStatus(share.pool, share.device, share.share_id, conditions)
    if not interfaces:
        return status
    first = interfaces[0]
    return DeviceStatus(
        share.pool,
        share.device,
        share.share_id,
        conditions,
        first.interface,
        addresses(first),
        first.mac,
    )


def _prepared(share: ClaimShare) -> DeviceCondition:
    if share.cdi and not share.char_paths:
        message = "Its containers get the device nodes when the pod's network is attached."
        return DeviceCondition(READY, holds=False, reason="WaitsForNetwork", message=message)
    nodes = ", ".join(share.char_paths) or "no device node"
    message = f"Containers get {nodes} of {', '.join(share.cards)}."
    return DeviceCondition(READY, holds=True, reason="Prepared", message=message)


def _attached(share: ClaimShare, interfaces: Sequence[Attached]) -> DeviceCondition:
    if not interfaces:
        message = f"No network of its pod is attached to {', '.join(share.cards)}."
        return DeviceCondition(NETWORK_READY, holds=False, reason="NotAttached", message=message)
    message = "; ".join(
        f"{one.interface} of network {one.network} has {', '.join(addresses(one)) or 'no address'}"
        for one in interfaces
    )
    return DeviceCondition(NETWORK_READY, holds=True, reason="Attached", message=f"{message}.")


# The files by which programs in a container learn of the devices of its claims (KEP-5304).

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
API_VERSION = "metadata.resource.k8s.io/v1alpha1"

Attributes = Mapping[str, Mapping[str, object]]
"""By device what the ResourceSlice says of it, each value as {string: …}, {int: …}, {bool: …}."""


def own_pod(prepared: PreparedClaim) -> PodClaims:
    """The pod of a claim, as far as the paths of its files need it: the claim tells so much."""
    name = prepared.pod_claim or prepared.claim.name
    templates = (name,) if prepared.pod_claim else ()
    return PodClaims(
        prepared.claim.namespace, "", "", ((name, prepared.claim.name),), (), templates
    )


def request_of(path: str) -> str:
    """The request that a file is about."""
    return path.rsplit("/", 2)[1]


def files(
    prepared: PreparedClaim,
    pod: PodClaims,
    attributes: Attributes,
    interfaces: Sequence[Attached] = (),
) -> dict[str, str]:
    """By path in the container, the files of one claim of a pod."""
    by_request: dict[str, list[ClaimShare]] = {}
    for share in prepared.shares:
        by_request.setdefault(share.request.partition("/")[0], []).append(share)
    own_names = [name for name, claim in pod.claims if claim == prepared.claim.name]
    texts: dict[str, str] = {}
    for name in own_names:
        is_made = name in pod.templates
        folder = f"resourceclaimtemplates/{name}" if is_made else _direct(prepared)
        for request, shares in by_request.items():
            document = _document(prepared, name if is_made else None)
            document["requests"] = [
                {
                    "name": full,
                    "devices": [_metadata_device(s, attributes, interfaces) for s in mine],
                }
                for full, mine in _by_full_name(shares).items()
            ]
            path = f"{FOLDER}/{folder}/{request}/{DRIVER}-metadata.json"
            texts[path] = json.dumps(document, separators=(",", ":")) + "\n"
    return texts


def _direct(prepared: PreparedClaim) -> str:
    return f"resourceclaims/{prepared.claim.name}"


def _by_full_name(shares: Sequence[ClaimShare]) -> dict[str, list[ClaimShare]]:
    """By main/sub: of alternatives the one that the scheduler chose."""
    named: dict[str, list[ClaimShare]] = {}
    for share in shares:
        named.setdefault(share.request, []).append(share)
    return named


def _document(prepared: PreparedClaim, pod_claim: str | None) -> dict[str, object]:
    claim = prepared.claim
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "DeviceMetadata",
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
    }
    return document | ({"podClaimName": pod_claim} if pod_claim else {})


def _metadata_device(
    share: ClaimShare, attributes: Attributes, interfaces: Sequence[Attached]
) -> dict[str, object]:
    device: dict[str, object] = {"driver": DRIVER, "pool": share.pool, "name": share.device}
    if published := attributes.get(share.device):
        device["attributes"] = dict(published)
    mine = [one for one in interfaces if one.card in share.cards and not share.admin]
    if mine:
        device["networkData"] = {
            "interfaceName": mine[0].interface,
            "ips": list(addresses(mine[0])),
            "hardwareAddress": mine[0].mac,
        }
    return device


# How the devices of the driver are, as the kubelet writes it into the status of their pods.


def health(pools: Iterable[Pool], node: str) -> tuple[DeviceHealth, ...]:
    """Every device of these pools, sorted by name; one that cannot be used says why.

    With all names that parts of a card may have in its slices: claims that were allocated before a
    change of these still have the old ones.
    """
    return tuple(
        DeviceHealth(node, name, not device.illness, "; ".join(device.illness))
        for own, device in sorted(devices_of(pools).items())
        for name in (own, *_parts(own, device))
    )


def _parts(name: str, device: PoolDevice) -> Iterator[str]:
    if device.is_shared:
        cards = len(device.pool.cards) if device.card else 1
        yield from (slot_name(name, slot) for slot in range(slot_count(device.room, cards)))
