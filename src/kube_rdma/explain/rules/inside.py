"""What programs in the pod see: interfaces, device nodes, and the settings of NCCL and UCX.

Part of the rules of `kube-rdma explain`. The settings are those that late binding writes
(attach/rules/settings), by the same function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface

from kube_base.frozen import replace
from kube_rdma.attach.rules.result import rdma_names
from kube_rdma.attach.rules.seats import link_of
from kube_rdma.attach.rules.settings import (
    ANNOTATION,
    NONE,
    TOPOLOGY,
    known_devices,
    settings_files,
)
from kube_rdma.explain.rules.planning import Planned
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import (
    Attached,
    GrantedShare,
    HostLink,
    HostNetwork,
    NetworkSeat,
    Plan,
)
from kube_rdma.model.card import Card
from kube_rdma.model.device import CharKind, LinkLayer
from kube_rdma.model.doctor import ObservedContainer, ObservedLink
from kube_rdma.model.explain import (
    ExplainedPlan,
    PodEvidence,
    RdmaCmAddress,
    SeenFrom,
    SeenInterface,
)
from kube_rdma.model.ipam import Address, InterfaceName
from kube_rdma.model.late_binding import UsedDevice
from kube_rdma.model.settings import FabricProfile

_PLACES = {"nccl.conf": "/etc/nccl.conf", "ucx.conf": "/etc/ucx/ucx.conf"}
_FIRST_PORT = 1


def interfaces(
    evidence: PodEvidence, plan: Planned, shown: Sequence[ExplainedPlan]
) -> Iterator[SeenInterface]:
    """As the pod was told, else as its Steps make them; MTU and addresses as they are in it now."""
    links = {link.name: link for link in _links(evidence)}
    for seen in _interfaces(evidence, plan, shown):
        link = links.get(seen.name)
        yield replace(seen, addresses=_routable(link), mtu=link.mtu) if link else seen


def interfaces_from(evidence: PodEvidence) -> SeenFrom:
    """How it is known which interfaces the pod has."""
    if _links(evidence):
        return SeenFrom.POD
    return SeenFrom.STATUS if evidence.attached else SeenFrom.RULES


def missing(evidence: PodEvidence, seen: Sequence[SeenInterface]) -> tuple[str, ...]:
    """The interfaces that a pod was told of, or that are recorded, and that are not in it."""
    present = {one.name for one in _links(evidence)}
    return tuple(one.name for one in seen if present and one.name not in present)


def connections(
    evidence: PodEvidence, plan: Planned, seen: Sequence[SeenInterface]
) -> Iterator[RdmaCmAddress]:
    """Which address RDMA_CM has to take for a device: the pod's own, else one of the node."""
    own = [
        RdmaCmAddress(one.device, one.name, address.partition("/")[0])
        for one in seen
        if one.device
        for address in one.addresses
    ]
    yield from own
    if own or evidence.basis is None:
        return
    host = evidence.basis.host
    for card in dict.fromkeys(card for share in plan.granted for card in share.cards):
        for device in card.devices:
            for link, address in _of_node(card, host):
                yield RdmaCmAddress(
                    device.name, link.name, str(address), evidence.template.host_network
                )


def _of_node(card: Card, host: HostNetwork) -> Iterator[tuple[HostLink, Address]]:
    """The node's addresses on a card; where it is in a bond, the bond has them."""
    link = link_of(card, host)
    if link is not None:
        base = next((one for one in host.links if one.name == link.master), link)
        yield from ((base, address) for address, _ in base.addresses)


def _routable(link: ObservedLink) -> tuple[str, ...]:
    """Its addresses without those that the kernel gives every link."""
    return tuple(one for one in link.addresses if not ip_interface(one).is_link_local)


def _links(evidence: PodEvidence) -> tuple[ObservedLink, ...]:
    return (evidence.seen.links or ()) if evidence.seen else ()


def _interfaces(
    evidence: PodEvidence, plan: Planned, shown: Sequence[ExplainedPlan]
) -> Iterator[SeenInterface]:
    if evidence.attached:
        yield from map(_as_told, evidence.attached)
        return
    planned = {one.interface: one for one in plan.plans}
    seats = {one.wish.ask.interface: one for one in plan.seats}
    recorded = [one for attachment in evidence.recorded or () for one in attachment.plans]
    by_name = {one.interface: one for one in recorded} or planned
    for shown_plan in shown:
        whole = by_name[shown_plan.interface]
        seat = seats.get(shown_plan.interface)
        words = {each.text: each.word for each in shown_plan.stand_ins}
        names = [words.get(name, name) for name in rdma_names((whole,), (seat,) if seat else ())]
        yield SeenInterface(
            shown_plan.interface,
            shown_plan.network,
            tuple(
                f"{words.get(str(each.address), str(each.address))}/{each.prefix}"
                for each in whole.addresses
            ),
            _mtu(seat, evidence),
            listed(names),
        )


def doors(evidence: PodEvidence, plan: Planned) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By container its device nodes: those that it has, else those that it gets."""
    if present := _present_doors(evidence):
        yield from present
        return
    for container in dict.fromkeys(one.container for one in plan.granted):
        shares = [one for one in plan.granted if one.container == container]
        if texts := tuple(_doors(shares, plan)):
            yield container, texts


def doors_from(evidence: PodEvidence) -> SeenFrom:
    """How it is known which device nodes the containers have."""
    return SeenFrom.POD if _present_doors(evidence) else SeenFrom.RULES


def _present_doors(evidence: PodEvidence) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, one.nodes) for one in _containers(evidence) if one.nodes]


def _containers(evidence: PodEvidence) -> Sequence[ObservedContainer]:
    """Those of the pod, where they were seen."""
    return evidence.seen.containers or () if evidence.seen else ()


def pinned(evidence: PodEvidence) -> Iterator[tuple[str, int]]:
    """By container with device nodes the bytes that its programs have pinned, where that was seen.

    Verbs pin what they register: this is what UCX or NCCL chose, settings are what they were told.
    """
    for container in _containers(evidence):
        if container.nodes and container.pinned is not None:
            yield container.name, container.pinned


def settings(evidence: PodEvidence, plan: Planned) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By file its lines without comments; nothing where late binding writes none."""
    asked = dict(evidence.template.annotations).get(ANNOTATION)
    if asked == NONE:
        return
    topology = TOPOLOGY if asked == TOPOLOGY else ""  # its text is not shown, only that it is named
    groups = list(_used_by_container(evidence, plan))
    for container, used, fabric in groups:
        where = f" in {container}" if len(groups) > 1 and container else ""
        for name, text in settings_files(used, fabric, topology).items():
            if name in _PLACES:
                yield f"{_PLACES[name]}{where}", tuple(text.splitlines()[1:])


def _as_told(status: Attached) -> SeenInterface:
    addresses = tuple(f"{each.address}/{each.prefix}" for each in status.addresses)
    return SeenInterface(
        status.interface,
        status.network,
        addresses,
        status.mtu or None,
        status.rdma_device or "",
        status.gid or "",
        status.gid_index,
    )


def _mtu(seat: NetworkSeat | None, evidence: PodEvidence) -> int | None:
    if seat is None:
        return None
    exact = evidence.basis is not None and evidence.basis.exact
    return seat.mtu or (seat.link.mtu if exact else None)


def _doors(shares: Sequence[GrantedShare], plan: Planned) -> Iterator[str]:
    """What shares open, in words: numbers of device nodes are given at the start."""
    kinds: dict[CharKind, list[str]] = {}
    for share in shares:
        for kind in share.device_files:
            kinds.setdefault(kind, []).extend(_devices(share, plan))
    for kind in CharKind:
        if names := list(dict.fromkeys(kinds.get(kind, ()))):
            yield str(kind) if kind is CharKind.RDMA_CM else f"{kind} of {listed(names)}"


def _devices(share: GrantedShare, plan: Planned) -> list[str]:
    """The RDMA devices of a share's interfaces, else of its cards."""
    words = {(name, each.text): each.word for name, each in plan.stand_ins}
    made = [
        words.get((one.interface, name), name)
        for one, seat in _pairs(plan)
        if one.held == share.held
        for name in rdma_names((one,), (seat,))
    ]
    return made or [device.name for card in share.cards for device in card.devices]


def _pairs(plan: Planned) -> Iterator[tuple[Plan, NetworkSeat]]:
    """The plans of kube-rdma's own interfaces with their seats."""
    seats = {one.wish.ask.interface: one for one in plan.seats}
    return ((one, seats[one.interface]) for one in plan.plans if one.interface in seats)


def _used_by_container(
    evidence: PodEvidence, plan: Planned
) -> Iterator[tuple[str, tuple[UsedDevice, ...], FabricProfile | None]]:
    """The devices that each container is told of, with the fabric of their pool."""
    attached = {one.interface: one for one in evidence.attached}
    fabrics = {
        p.spec.resource: p.spec.fabric for p in (evidence.basis.pools if evidence.basis else ())
    }
    pairs = list(_pairs(plan))
    if not pairs and attached:
        used = tuple(
            _used(one.interface, one, None) for one in attached.values() if one.rdma_device
        )
        if used:
            yield "", used, None
        return
    late = [one for one in plan.granted if not one.early]
    for container in dict.fromkeys(one.container for one in late):
        shares = [one for one in late if one.container == container]
        held = {one.held for one in shares}
        networked = {one.held[0] for one, _ in pairs if one.held in held}
        used = (
            *(
                _used(one.interface, attached.get(one.interface), seat, name)
                for one, seat in pairs
                if one.held in held
                for name in _names(one, seat, plan, attached.get(one.interface))
            ),
            *known_devices(
                card for one in shares if one.resource not in networked for card in one.cards
            ),
        )
        fabric = next((fabrics.get(resource) for resource, _ in sorted(held)), None)
        if used:
            yield container, used, fabric


def _names(
    made: Plan, seat: NetworkSeat, plan: Planned, attached: Attached | None
) -> Iterator[str]:
    words = {each.text: each.word for name, each in plan.stand_ins if name == made.interface}
    if attached and attached.rdma_device:
        yield attached.rdma_device
        return
    yield from (words.get(name, name) for name in rdma_names((made,), (seat,)))


def _used(
    interface: InterfaceName, attached: Attached | None, seat: NetworkSeat | None, name: str = ""
) -> UsedDevice:
    ports = [p for d in (seat.card.devices if seat and seat.card else ()) for p in d.ports]
    first = ports[0] if ports else None
    return UsedDevice(
        name or (attached.rdma_device if attached and attached.rdma_device else ""),
        first.number if first else _FIRST_PORT,
        interface,
        infiniband=first is not None and first.link_layer is LinkLayer.INFINIBAND,
        gid_index=attached.gid_index if attached else None,
    )
