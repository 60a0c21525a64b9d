"""Decides what programs in the pod see: interfaces, device nodes, the settings of NCCL and UCX.

The settings are those that late binding writes, by the same function (attach/rules/settings).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface

from kube_base.frozen import replace
from kube_rdma.attach.rules import settings as rules
from kube_rdma.attach.rules.placement import link_of
from kube_rdma.attach.rules.procedure import rdma_names
from kube_rdma.explain.rules.planning import PodPlan
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import AttachedInterface, GrantedShare, Plan, PodNic
from kube_rdma.model.device import CharKind, LinkLayer
from kube_rdma.model.doctor import ObservedContainer, ObservedLink
from kube_rdma.model.explain import (
    ExplainedPlan,
    PodEvidence,
    RdmaCmAddress,
    SeenFrom,
    SeenInterface,
)
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import UsedDevice
from kube_rdma.model.settings import FabricProfile

_FILES = {"nccl.conf": "/etc/nccl.conf", "ucx.conf": "/etc/ucx/ucx.conf"}
_FIRST_PORT = 1


# Interfaces: those of the pod's status annotation, else those that its Steps make.


def interfaces(
    evidence: PodEvidence, plan: PodPlan, shown: Sequence[ExplainedPlan]
) -> Iterator[SeenInterface]:
    """Yield the pod's interfaces, with MTU and addresses as seen inside the pod where possible."""
    links = {link.name: link for link in _links(evidence)}
    made = map(_of_status, evidence.attached) if evidence.attached else _made(evidence, plan, shown)
    for seen in made:
        if link := links.get(seen.name):
            addresses = (one for one in link.addresses if not ip_interface(one).is_link_local)
            yield replace(seen, addresses=tuple(addresses), mtu=link.mtu)
        else:
            yield seen


def interfaces_from(evidence: PodEvidence) -> SeenFrom:
    """Return where the facts about interfaces come from: the pod, its status or the rules."""
    if _links(evidence):
        return SeenFrom.POD
    return SeenFrom.STATUS if evidence.attached else SeenFrom.RULES


def missing(evidence: PodEvidence, seen: Sequence[SeenInterface]) -> tuple[str, ...]:
    """Return the names of expected interfaces that are not in the pod any more.

    It is empty where the pod was not looked into.
    """
    present = {one.name for one in _links(evidence)}
    return tuple(one.name for one in seen if present and one.name not in present)


def connections(
    evidence: PodEvidence, plan: PodPlan, seen: Sequence[SeenInterface]
) -> Iterator[RdmaCmAddress]:
    """Yield the addresses by which RDMA_CM takes each device: the pod's own, or the node's.

    Where a card is in a bond, the bond has the node's addresses.
    """
    own = [
        RdmaCmAddress(one.device, one.name, address.partition("/")[0])
        for one in seen
        if one.device
        for address in one.addresses
    ]
    yield from own
    if own or evidence.basis is None:
        return
    host, on_host = evidence.basis.host, evidence.template.host_network
    for card in dict.fromkeys(card for share in plan.granted for card in share.cards):
        link = link_of(card, host)
        if link is None:
            continue
        base = next((one for one in host.links if one.name == link.master), link)
        for device in card.devices:
            for address, _ in base.addresses:
                yield RdmaCmAddress(device.name, base.name, str(address), on_host)


def _links(evidence: PodEvidence) -> tuple[ObservedLink, ...]:
    return (evidence.seen.links or ()) if evidence.seen else ()


def _of_status(status: AttachedInterface) -> SeenInterface:
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


def _made(
    evidence: PodEvidence, plan: PodPlan, shown: Sequence[ExplainedPlan]
) -> Iterator[SeenInterface]:
    """Yield the interfaces that Steps make; words stand for values that are not decided yet."""
    nics = {one.entry.ask.interface: one for one in plan.nics}
    recorded = [one for attachment in evidence.recorded or () for one in attachment.plans]
    plans = {one.interface: one for one in (recorded or plan.plans)}
    exact = evidence.basis is not None and evidence.basis.exact
    for shown_plan in shown:
        whole = plans[shown_plan.interface]
        nic = nics.get(shown_plan.interface)
        words = {each.text: each.word for each in shown_plan.stand_ins}
        names = [words.get(name, name) for name in rdma_names((whole,), (nic,) if nic else ())]
        mtu = nic.mtu or (nic.link.mtu if exact else None) if nic else None
        yield SeenInterface(
            shown_plan.interface,
            shown_plan.network,
            tuple(
                f"{words.get(str(each.address), str(each.address))}/{each.prefix}"
                for each in whole.addresses
            ),
            mtu,
            listed(names),
        )


# Device nodes, and the use of them.


def device_nodes(evidence: PodEvidence, plan: PodPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each container with its device nodes: those it has, else those it would get."""
    if present := [(one.name, one.nodes) for one in _containers(evidence) if one.nodes]:
        yield from present
        return
    for container in dict.fromkeys(one.container for one in plan.granted):
        shares = [one for one in plan.granted if one.container == container]
        if texts := tuple(_opened(shares, plan)):
            yield container, texts


def device_nodes_from(evidence: PodEvidence) -> SeenFrom:
    """Return where the facts about device nodes come from: the pod or the rules."""
    return SeenFrom.POD if any(one.nodes for one in _containers(evidence)) else SeenFrom.RULES


def pinned(evidence: PodEvidence) -> Iterator[tuple[str, int]]:
    """Yield containers with device nodes, and the bytes of memory that their programs pinned.

    Containers where that was not seen are left out. Verbs pin memory that a program registers, so
    pinned memory shows whether UCX or NCCL chose RDMA; settings only advise them.
    """
    for container in _containers(evidence):
        if container.nodes and container.pinned is not None:
            yield container.name, container.pinned


def _containers(evidence: PodEvidence) -> Sequence[ObservedContainer]:
    return (evidence.seen.containers or ()) if evidence.seen else ()


def _opened(shares: Sequence[GrantedShare], plan: PodPlan) -> Iterator[str]:
    """Yield the kinds of device files that shares open; all but rdma_cm with their RDMA devices.

    Device nodes get their numbers only when the pod starts.
    """
    kinds: dict[CharKind, list[str]] = {}
    for share in shares:
        for kind in share.device_files:
            kinds.setdefault(kind, []).extend(_devices(share, plan))
    for kind in CharKind:
        if names := list(dict.fromkeys(kinds.get(kind, ()))):
            yield str(kind) if kind is CharKind.RDMA_CM else f"{kind} of {listed(names)}"


def _devices(share: GrantedShare, plan: PodPlan) -> list[str]:
    """Return the RDMA devices of the interfaces made from a share, else those of its cards."""
    names = [
        name
        for one, nic in _own_plans(plan)
        if one.held == share.held
        for name in _names(one, nic, plan)
    ]
    return names or [device.name for card in share.cards for device in card.devices]


def _own_plans(plan: PodPlan) -> Iterator[tuple[Plan, PodNic]]:
    """Yield the plan of each interface that kube-rdma makes itself, with its PodNic."""
    nics = {one.entry.ask.interface: one for one in plan.nics}
    return ((one, nics[one.interface]) for one in plan.plans if one.interface in nics)


def _names(made: Plan, nic: PodNic, plan: PodPlan) -> list[str]:
    """Return the names of an interface's RDMA devices; words stand for names not decided yet."""
    words = {each.text: each.word for name, each in plan.stand_ins if name == made.interface}
    return [words.get(name, name) for name in rdma_names((made,), (nic,))]


# Settings: the files of late binding.


def settings(evidence: PodEvidence, plan: PodPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the settings files of NCCL and UCX with their lines but the first.

    Yield nothing where the pod's annotation switches them off, or late binding writes none.
    """
    asked = dict(evidence.template.annotations).get(rules.ANNOTATION)
    if asked == rules.NONE:
        return
    # The text of the topology file is not shown; the settings only name the file.
    topology = rules.TOPOLOGY if asked == rules.TOPOLOGY else ""
    groups = list(_used_by_container(evidence, plan))
    for container, used, fabric in groups:
        where = f" in {container}" if len(groups) > 1 and container else ""
        for name, text in rules.settings_files(used, fabric, topology).items():
            if name in _FILES:
                yield f"{_FILES[name]}{where}", tuple(text.splitlines()[1:])


def _used_by_container(
    evidence: PodEvidence, plan: PodPlan
) -> Iterator[tuple[str, tuple[UsedDevice, ...], FabricProfile | None]]:
    """Yield each container with the RDMA devices that its settings name, and the pool's fabric."""
    attached = {one.interface: one for one in evidence.attached}
    pools = evidence.basis.pools if evidence.basis else ()
    fabrics = {pool.spec.resource: pool.spec.fabric for pool in pools}
    pairs = list(_own_plans(plan))
    if not pairs and attached:
        used = tuple(
            _used(one.interface, one, None, one.rdma_device)
            for one in attached.values()
            if one.rdma_device
        )
        if used:
            yield "", used, None
        return
    late = [one for one in plan.granted if not one.early]
    for container in dict.fromkeys(one.container for one in late):
        shares = [one for one in late if one.container == container]
        held = {one.held for one in shares}
        made: list[UsedDevice] = []
        networked = set()
        for one, nic in pairs:
            if one.held in held:
                networked.add(one.held[0])
                status = attached.get(one.interface)
                known = status.rdma_device if status else None
                names = [known] if known else _names(one, nic, plan)
                made += (_used(one.interface, status, nic, name) for name in names)
        others = [card for one in shares if one.resource not in networked for card in one.cards]
        fabric = next((fabrics.get(resource) for resource, _ in sorted(held)), None)
        if used := rules.known_devices(others, made):
            yield container, used, fabric


def _used(
    interface: InterfaceName, attached: AttachedInterface | None, nic: PodNic | None, name: str
) -> UsedDevice:
    ports = [p for d in (nic.card.devices if nic and nic.card else ()) for p in d.ports]
    first = ports[0] if ports else None
    return UsedDevice(
        name,
        first.number if first else _FIRST_PORT,
        interface,
        infiniband=first is not None and first.link_layer is LinkLayer.INFINIBAND,
        gid_index=attached.gid_index if attached else None,
    )
