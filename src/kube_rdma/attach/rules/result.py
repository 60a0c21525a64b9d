"""Says what became of an attachment, for status and late binding: the plan and a fresh look at it.

Last of the rules of an attachment: the steps were run. Which GID index an address has is known only
now, and differs from pod to pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import AttachedInterface, GrantedShare, Plan, PodNic, PodView
from kube_rdma.model.attach.steps import MakeRdma
from kube_rdma.model.card import Card
from kube_rdma.model.device import CharKind, Device, Gid, GidType, LinkLayer
from kube_rdma.model.ipam import gid_of
from kube_rdma.model.late_binding import Edits, HeldShare, UsedDevice
from kube_rdma.model.settings import PlacedNet


def as_named(placed: Sequence[PodNic], view: PodView) -> tuple[PodNic, ...]:
    """Return the NICs with the names that their RDMA devices have now.

    A driver that was bound again has made them again, and the old name may be another device's.
    """
    return tuple(replace(nic, devices=tuple(_names(nic, view))) for nic in placed)


def rdma_names(plans: Sequence[Plan], nics: Sequence[PodNic]) -> tuple[str, ...]:
    """Return the RDMA devices that the pod uses: made for it, or those of its cards."""
    made = [step.name for plan in plans for step in plan.steps if isinstance(step, MakeRdma)]
    return tuple(dict.fromkeys((*made, *(name for nic in nics for name in nic.devices))))


def attached(
    plans: Sequence[Plan], nics: Sequence[PodNic], view: PodView, devices: Sequence[Device]
) -> tuple[AttachedInterface, ...]:
    """Return each interface as it is in the pod, in the order of the annotation."""
    links = {link.name: link for link in view.links}
    by_name = {device.name: device for device in devices}
    interfaces = []
    for plan, nic in zip(plans, nics, strict=True):
        link = links[plan.interface]
        names = [name for name in rdma_names((plan,), (nic,)) if name in by_name]
        device = by_name[names[0]] if names else None
        gid = _gid(device, plan) if device else None
        place = nic.card.seat if nic.card else None
        interfaces.append(
            AttachedInterface(
                network=plan.network,
                interface=plan.interface,
                mac=link.mac,
                mtu=link.mtu,
                addresses=plan.addresses,
                rdma_device=device.name if device else None,
                gid=gid.value if gid else None,
                gid_index=gid.index if gid else None,
                card=plan.card,
                pci=place.pci if place else None,
                physical=place.physical_function if place else None,
                default_routes=nic.entry.ask.default_routes,
            )
        )
    return tuple(interfaces)


def char_paths(
    devices: Sequence[Device], rdma_cm: str | None, gives: Collection[CharKind]
) -> tuple[str, ...]:
    """Return the device nodes that a pool opens, sorted; rdma_cm only beside others."""
    nodes = (char for device in devices for char in device.char_devices)
    paths = {char.path for char in nodes if char.kind in gives}
    if rdma_cm and paths and CharKind.RDMA_CM in gives:
        paths.add(rdma_cm)
    return tuple(sorted(paths))


def edits(
    interfaces: Iterable[tuple[Plan, Sequence[str]]],
    granted: Sequence[GrantedShare],
    devices: Sequence[Device],
    rdma_cm: str | None,
) -> dict[HeldShare, Edits]:
    """Return by share the device nodes of its interfaces, and how their RDMA devices are used.

    So each container gets its own. `granted` and `devices` are all of the pod's, as they are now.
    """
    gives = {share.held: share.device_files for share in granted}
    cards = [card for share in granted for card in share.cards]
    by_share: dict[HeldShare, Edits] = {}
    for plan, names in interfaces:
        own = [device for device in devices if device.name in names]
        if plan.held in gives and own:
            before = by_share.get(plan.held, Edits())
            paths = {*before.char_paths, *char_paths(own, rdma_cm, gives[plan.held])}
            place = next((card for card in cards if card.id == plan.card), None)
            used = (*before.used, *(_used(device, plan, place) for device in own if device.ports))
            by_share[plan.held] = Edits(tuple(sorted(paths)), used=used)
    return by_share


def _used(device: Device, plan: Plan, card: Card | None) -> UsedDevice:
    """Return how the pod uses a device.

    One that was made on an interface of the pod sits where the card does.
    """
    gid = _gid(device, plan)
    ports = [port for port in device.ports if gid in port.gids] or list(device.ports)
    return UsedDevice(
        device.name,
        ports[0].number,
        plan.interface,
        infiniband=ports[0].link_layer is LinkLayer.INFINIBAND,
        gid_index=gid.index if gid else None,
        place=PlacedNet(
            device.name,
            device.seat or (card.seat if card else None),
            card.numa_node if card else device.numa_node,
        ),
    )


def _names(nic: PodNic, view: PodView) -> Iterator[str]:
    pci = {device.name: device.pci for device in nic.card.devices} if nic.card else {}
    for name in nic.devices:
        current = [one.name for one in view.rdma if one.pci and one.pci == pci.get(name)]
        yield name if name in current or not current else current[0]


def _gid(device: Device, plan: Plan) -> Gid | None:
    """Return the RoCE v2 entry of the interface's first address, which is the pod's own."""
    for address in plan.addresses:
        for port in device.ports:
            for gid in port.gids:
                if gid.type is GidType.ROCE_V2 and gid.value == gid_of(address.address):
                    return gid
    return None
