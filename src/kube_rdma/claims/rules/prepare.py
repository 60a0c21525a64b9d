"""Books the devices of claims on this node, and says what is booked to all that ask.

    kubelet ─ NodePrepareResources ─► claim of the API ─► book ─► journal ─► CDI file ─► answer
                                                          └─► status of the claim, metadata files

Preparing changes no device: the kubelet calls one driver after the other and takes nothing back
when a later one fails (kubernetes#137819). Devices are changed with the pod's network (CNI ADD).
The scheduler's decision counts. What the node cannot give now is refused in one sentence, which the
kubelet shows as an Event of the pod.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.claims.rules.shape import PARTS, device_name, slot_count, slot_name, slot_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import AttachedInterface
from kube_rdma.model.card import Card
from kube_rdma.model.claims import claim as model
from kube_rdma.model.claims.devices import DRIVER, DeviceHealth
from kube_rdma.model.late_binding import HeldShare
from kube_rdma.model.pools import Attach, Bind, Pool, Serving, Share, ShareId
from kube_rdma.pools.rules.allocation import grant
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms

NO_PARAMETERS: Mapping[str, model.ClaimParameters] = MappingProxyType({})

_ANEW = "Delete the pod, so that the scheduler allocates again"
_WAIT = "Wait until their pods have ended; the kubelet tries again"


class DeviceInUse(Unavailable):
    """The error for a device of which others hold too much now."""


class PoolDevice(Frozen):
    """A device of kube-rdma's driver: a card of a pool, or a whole pool."""

    pool: Pool
    card: Card | None  # None: the whole pool
    room: int  # slots

    @property
    def is_shared(self) -> bool:
        """Return whether several claims may hold the device at a time."""
        return self.card is None or terms(self.pool.spec).most != 1

    @property
    def illness(self) -> tuple[str, ...]:
        """Return why the device cannot be used now; a whole pool needs one usable card."""
        if self.card:
            return self.card.reasons
        if any(card.usable for card in self.pool.cards):
            return ()
        return tuple(f"{card.name}: {why}" for card in self.pool.cards for why in card.reasons)


class BookingNode(Frozen):
    """The facts of this node for a booking: boot, devices, bookings and holders."""

    name: str
    boot: str
    devices: Mapping[str, PoolDevice]  # that it offers, by name
    prepared: tuple[model.PreparedClaim, ...] = ()
    # Pods that hold shares by the device plugin, in words; they may run on after their pool went
    # to claims.
    holders: Mapping[HeldShare, str] = MappingProxyType({})

    def device(self, name: str) -> PoolDevice | None:
        """Return the device of this name, or the one with a part of this name, else None."""
        return self.devices.get(self.whole(name))

    def whole(self, name: str) -> str:
        """Return the name of the device to which a part belongs; other names unchanged.

        Parts are defined in claims/rules/shape. Bookings are counted by device, as parts are cut
        anew when cards come or go.
        """
        if name in self.devices or (part := slot_of(name)) is None:
            return name
        own, slot = part
        if own in self.devices:
            return own
        return next((one for one in self.devices if slot_name(one, slot) == name), name)


def devices_of(pools: Iterable[Pool]) -> dict[str, PoolDevice]:
    """Return the devices of the pools by name; of two with one name the first counts."""
    devices: dict[str, PoolDevice] = {}
    for pool in pools:
        row = terms(pool.spec)
        cards: tuple[Card | None, ...] = pool.cards
        if cards and row.bind is Bind.POOL:
            cards = (None,)
        for card in cards:
            devices.setdefault(device_name(pool, card), PoolDevice(pool, card, row.shares))
    return devices


def book(
    asked: model.ClaimName,
    claim: model.ResourceClaim | None,
    node: BookingNode,
    when: float,
    parameters: Mapping[str, model.ClaimParameters] = NO_PARAMETERS,
) -> model.PreparedClaim:
    """Return the booking for a claim.

    Raise Refused if it cannot be made, DeviceInUse while others hold too much of a device. An older
    booking of the same claim does not count. `claim` is the object of that name now, None without
    one; `parameters` are by request.
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
    shares: list[model.ClaimShare] = []
    for number, wanted in enumerate(mine):
        device = _device(wanted, node, where)
        share = _share(asked, number, wanted, device)
        _refuse_excess(share, device, _held(share, device, node, others, shares), where)
        if wanted.request in parameters:
            share = replace(share, parameters=parameters[wanted.request])
        shares.append(share)
    return model.PreparedClaim(asked, tuple(shares), claim.users, node.boot, when, claim.pod_claim)


def stands(prepared: model.PreparedClaim, node: BookingNode) -> bool:
    """Return whether a booking is still valid: of this boot, with device nodes if they are due."""
    return prepared.boot == node.boot and all(
        share.char_paths or not share.cdi or _is_late(node.device(share.device))
        for share in prepared.shares
    )


def rebooked(prepared: model.PreparedClaim, node: BookingNode) -> model.PreparedClaim:
    """Return a booking that is not valid any more, renewed with the device nodes of this boot.

    A device that is missing now has none.
    """
    shares = []
    for share in prepared.shares:
        device = node.device(share.device)
        paths = () if device is None or _is_late(device) else _char_paths(device, share.share)
        shares.append(replace(share, char_paths=paths))
    return replace(prepared, shares=tuple(shares), boot=node.boot)


def _is_late(device: PoolDevice | None) -> bool:
    """Return whether containers may open the device only after their pod got a network on it."""
    return device is not None and terms(device.pool.spec).attach is Attach.REQUIRED


def refuse_vanished(prepared: model.PreparedClaim, node: BookingNode) -> None:
    """Raise Refused for a booking of which a device is missing now."""
    for share in prepared.shares:
        if node.device(share.device) is None:
            raise _vanished(share.device, node, f"claim {prepared.claim}")


def answer(prepared: model.PreparedClaim) -> tuple[model.PreparedDevice, ...]:
    """Return what the kubelet gets for a booking: devices by request, with CDI names.

    The kubelet knows requests by their main name (kubeletplugin/draplugin.go of
    k8s.io/dynamic-resource-allocation@v0.36.3, stripSubrequestNames).
    """
    return tuple(
        model.PreparedDevice(
            pool=share.pool,
            device=share.device,
            requests=(share.request.partition("/")[0],),
            cdi=(share.cdi,) if share.cdi else (),
            share=share.share_id,
        )
        for share in prepared.shares
    )


def cdi_device(claim: model.ClaimName, wanted: model.AllocationResult) -> str:
    """Return the CDI name of a claim's device, which is unique for all time.

    Requests, devices and share ids have no ``_`` and requests no ``.``, so no two names are equal.
    """
    request = wanted.request.replace("/", ".")
    return f"{model.CLAIM_KIND}={claim.uid}_{request}_{wanted.share or wanted.device}"


def _device(wanted: model.AllocationResult, node: BookingNode, where: str) -> PoolDevice:
    if wanted.pool != node.name:
        problem = f"{wanted.device} is a device of pool {wanted.pool}, and this node is {node.name}"
        raise Refused(problem, remedy=_ANEW, where=where)
    device = node.device(wanted.device)
    if device is None:
        raise _vanished(wanted.device, node, where)
    # A function for user space would have no device file, or that of another pod's group.
    function = device.card.function if device.card else None
    borne = wanted.tolerations and not (function and function.for_programs)
    if device.illness and not (borne or wanted.admin):
        problem = f"{wanted.device} cannot be used: {listed(device.illness)}"
        raise Refused(problem, remedy=f"Repair it or d{_ANEW[1:]}", where=where)
    if device.pool.spec.serve is Serving.PLUGIN:  # the kubelet gives its shares away by now
        resource = device.pool.spec.resource
        problem = f"the device plugin serves {resource} on this node now, not claims"
        raise Refused(problem, remedy=_ANEW, where=where)
    return device


def _vanished(name: str, node: BookingNode, where: str) -> Refused:
    has = listed(sorted(node.devices)) or "none"
    problem = f"device {name} has vanished from node {node.name}, whose devices are {has}"
    return Refused(problem, remedy=_ANEW, where=where)


def _share(
    claim: model.ClaimName, number: int, wanted: model.AllocationResult, device: PoolDevice
) -> model.ClaimShare:
    share = _share_name(claim, number, device)
    is_late = _is_late(device)
    paths = () if is_late else _char_paths(device, share)
    return model.ClaimShare(
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
        admin=bool(wanted.admin),
    )


def _share_name(claim: model.ClaimName, number: int, device: PoolDevice) -> ShareId:
    """Return ``<card>-<claim>.<number>``; pools/rules/holdings reads the card out of it.

    For a whole pool the mode stands in place of the card. Where shares are not numbered, it is
    ``<card>`` alone, for one claim has the card at a time.
    """
    token = f"{claim.uid.replace('-', '')}.{number}"
    if device.card is None:
        return ShareId(f"{device.pool.spec.mode}-{token}")
    if not terms(device.pool.spec).numbered:
        return ShareId(device.card.id)
    return ShareId(f"{device.card.id}-{token}")


def _char_paths(device: PoolDevice, share: ShareId) -> tuple[str, ...]:
    """Return the device nodes that a share of this device gives."""
    card = device.card.id if device.card else None
    return grant(device.pool, [Share(share, healthy=True, card=card)]).char_paths


def _held(
    share: model.ClaimShare,
    device: PoolDevice,
    node: BookingNode,
    others: Iterable[model.PreparedClaim],
    own: Iterable[model.ClaimShare],
) -> Counter[str]:
    """Return how many slots of a device each other holder has.

    Holders are other claims, pods by shares of the device plugin, and requests of the same claim.
    """
    booked = [(str(claim.claim), one) for claim in others for one in claim.shares]
    spec, card = device.pool.spec, device.card.id if device.card else None
    by_plugin = [
        f"{pod} (by a share of the device plugin)"
        for (resource, one), pod in sorted(node.holders.items())
        if resource == spec.resource and card_of(spec, one) == card
    ]
    whole = node.whole(share.device)
    held: Counter[str] = Counter()
    for holder, one in booked:
        if not one.admin and node.whole(one.device) == whole:
            held[holder] += one.slots
    held.update(by_plugin)
    for one in own:
        if not one.admin and node.whole(one.device) == whole:
            held[f"its request {one.request}"] += one.slots
    return held


def _refuse_excess(
    share: model.ClaimShare, device: PoolDevice, held: Mapping[str, int], where: str
) -> None:
    """Raise Refused if a share wants more than the device has, DeviceInUse if more than is left."""
    if share.admin:
        return
    room = device.room if device.is_shared else 1
    if share.slots > room:
        problem = f"it asks for {_slots(share.slots)} of {share.device}, which has {room}"
        remedy = f"Ask for at most {room}, or raise the shares of {share.resource}"
        raise Refused(problem, remedy=remedy, where=where)
    taken = sum(held.values())
    if taken + share.slots > room:
        names = listed(list(held))
        taken_by = f"of which {names} hold {taken}. {_WAIT}."
        raise DeviceInUse(f"{where}: {share.device} has {_slots(room)}, {taken_by}")


def _slots(count: int) -> str:
    return f"{count} slot" + ("" if count == 1 else "s")


# The status of devices in a claim: whether they are prepared, and what the network made.

READY, NETWORK_READY = "Ready", "NetworkReady"
MOST_ADDRESSES = 16  # of networkData.ips


def device_statuses_of(
    prepared: model.PreparedClaim, interfaces: Sequence[AttachedInterface] = ()
) -> tuple[model.DeviceStatus, ...]:
    """Return the status of each device of a booking whose pods have these interfaces."""
    return tuple(_status(share, _interfaces_on(share, interfaces)) for share in prepared.shares)


def addresses(interface: AttachedInterface) -> tuple[str, ...]:
    """Return an interface's addresses with length, at most as many as networkData may have."""
    texts = (f"{one.address}/{one.prefix}" for one in interface.addresses)
    return tuple(dict.fromkeys(texts))[:MOST_ADDRESSES]


def _interfaces_on(
    share: model.ClaimShare, interfaces: Sequence[AttachedInterface]
) -> list[AttachedInterface]:
    """Return the interfaces on the share's cards; none for a share with adminAccess."""
    return [] if share.admin else [one for one in interfaces if one.card in share.cards]


def _status(share: model.ClaimShare, interfaces: Sequence[AttachedInterface]) -> model.DeviceStatus:
    conditions = (_prepared(share), _attached(share, interfaces))
    status = model.DeviceStatus(share.pool, share.device, share.share_id, conditions)
    if not interfaces:
        return status
    first = interfaces[0]
    return replace(status, interface=first.interface, addresses=addresses(first), mac=first.mac)


def _prepared(share: model.ClaimShare) -> model.DeviceCondition:
    if share.cdi and not share.char_paths:
        message = "Its containers get the device nodes when the pod's network is attached."
        return model.DeviceCondition(READY, holds=False, reason="WaitsForNetwork", message=message)
    nodes = ", ".join(share.char_paths) or "no device node"
    message = f"Containers get {nodes} of {', '.join(share.cards)}."
    return model.DeviceCondition(READY, holds=True, reason="Prepared", message=message)


def _attached(
    share: model.ClaimShare, interfaces: Sequence[AttachedInterface]
) -> model.DeviceCondition:
    if not interfaces:
        message = f"No network of its pod is attached to {', '.join(share.cards)}."
        return model.DeviceCondition(
            NETWORK_READY, holds=False, reason="NotAttached", message=message
        )
    message = "; ".join(
        f"{one.interface} of network {one.network} has {', '.join(addresses(one)) or 'no address'}"
        for one in interfaces
    )
    return model.DeviceCondition(
        NETWORK_READY, holds=True, reason="Attached", message=f"{message}."
    )


# The files by which programs in a container learn of the devices of its claims (KEP-5304).

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
API_VERSION = "metadata.resource.k8s.io/v1alpha1"

MetadataAttributes = Mapping[str, Mapping[str, object]]
"""The attributes of each device in its ResourceSlice, each as {string: …}, {int: …}, {bool: …}."""


def metadata_files(
    prepared: model.PreparedClaim,
    attributes: MetadataAttributes,
    interfaces: Sequence[AttachedInterface] = (),
) -> dict[str, tuple[str, str]]:
    """Return a claim's metadata files by request: path in the container, and text."""
    by_request: dict[str, dict[str, list[model.ClaimShare]]] = {}  # main, then main/sub
    for share in prepared.shares:
        chosen = by_request.setdefault(share.request.partition("/")[0], {})
        chosen.setdefault(share.request, []).append(share)
    claim, name = prepared.claim, prepared.pod_claim
    folder = f"resourceclaimtemplates/{name}" if name else f"resourceclaims/{claim.name}"
    files: dict[str, tuple[str, str]] = {}
    for request, chosen in by_request.items():
        document: dict[str, object] = {
            "apiVersion": API_VERSION,
            "kind": "DeviceMetadata",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            **({"podClaimName": name} if name else {}),
            "requests": [
                {
                    "name": full,
                    "devices": [_metadata_device(s, attributes, interfaces) for s in shares],
                }
                for full, shares in chosen.items()
            ],
        }
        path = f"{FOLDER}/{folder}/{request}/{DRIVER}-metadata.json"
        files[request] = path, json.dumps(document, separators=(",", ":")) + "\n"
    return files


def _metadata_device(
    share: model.ClaimShare, attributes: MetadataAttributes, interfaces: Sequence[AttachedInterface]
) -> dict[str, object]:
    device: dict[str, object] = {"driver": DRIVER, "pool": share.pool, "name": share.device}
    if published := attributes.get(share.device):
        device["attributes"] = dict(published)
    if mine := _interfaces_on(share, interfaces):
        name, ips, mac = mine[0].interface, list(addresses(mine[0])), mine[0].mac
        device["networkData"] = {"interfaceName": name, "ips": ips, "hardwareAddress": mac}
    return device


# The health of devices, which the kubelet writes into the status of their pods.


def health(pools: Iterable[Pool], node: str) -> tuple[DeviceHealth, ...]:
    """Return the health of every device of these pools.

    It has all names that parts of a card may have in slices, as claims keep the name that they were
    allocated.
    """
    healths: list[DeviceHealth] = []
    for own, device in sorted(devices_of(pools).items()):
        names = [own]
        if device.is_shared:
            cards = len(device.pool.cards) if device.card else 1
            count = max(slot_count(device.room, cards), min(device.room, PARTS))
            names += (slot_name(own, slot) for slot in range(count))
        why = "; ".join(device.illness)
        healths += (DeviceHealth(node, name, not device.illness, why) for name in names)
    return tuple(healths)
