"""The rules of InfiniBand: GUIDs of virtual functions, partitions, and who may have them.

attach/rules/placement refuses by them, and attach/rules/plan plans by them.

A function takes new GUIDs only when its driver is bound again (mlx5 asks for them when it probes).
The binding makes its RDMA device and interface again. So both GUIDs are set through the physical
function first, then the driver is bound, then device and interface are found by their PCI address.
The node and the port of a function have one GUID, for it has one port.

A partition is an IPoIB interface of its own, a child of the card's. That of a card that moves comes
into the pod too, under another name (docs/decisions/0011-infiniband.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from types import MappingProxyType

from kube_base.frozen import replace
from kube_rdma.attach.rules.requests import asked_guid, refused
from kube_rdma.model import device
from kube_rdma.model.attach import kinds, steps
from kube_rdma.model.attach.attachment import (
    Attachment,
    GrantedShare,
    HostLink,
    HostNetwork,
    MatchedEntry,
    PodNic,
    Way,
)
from kube_rdma.model.card import Card
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import FunctionSettings, LinkState, RebindFunction, SetFunction

_INFINIBAND = "infiniband"


def function_settings(nic: PodNic, wanted: FunctionSettings) -> FunctionSettings:
    """Return a function's settings with the pod's GUID; a link that is down becomes auto.

    mlx5 makes InfiniBand functions whose link is down (mlx5_ib_get_vf_config reports it).
    """
    if request := asked_guid(nic.entry):
        wanted = replace(wanted, node_guid=request[1], port_guid=request[1])
    reported = nic.link.settings
    if wanted.link_state is None and reported and reported.link_state is LinkState.DISABLE:
        wanted = replace(wanted, link_state=LinkState.AUTO)
    return wanted


def awaits_port(nic: PodNic) -> bool:
    """Return whether the pod has to wait for the port of its function.

    A card's own port was judged with the card; that of a virtual function comes up only when the
    subnet manager knows of it.
    """
    place = nic.card.position if nic.card else None
    virtual = nic.link.virtual or (place and place.physical_function)
    network = nic.network
    asked = network.function if isinstance(network, kinds.DeviceNetwork) else None
    down = asked is not None and asked.link_state is LinkState.DISABLE
    return nic.link.link_type == _INFINIBAND and bool(virtual) and not down


def with_own_guids(nic: PodNic, reported: FunctionSettings) -> FunctionSettings:
    """Return the settings to restore: the reported ones, with the function's own GUIDs.

    A GUID that was set counts (zeros are reported for none), else the one that the function has.
    Without either it is NO_GUID.
    """
    node, port = _own(nic.card), device.guid_of_address(nic.link.mac)
    return replace(
        reported,
        node_guid=next(filter(device.is_usable_guid, (reported.node_guid, node)), device.NO_GUID),
        port_guid=next(filter(device.is_usable_guid, (reported.port_guid, port)), device.NO_GUID),
    )


def rebinding(nic: PodNic) -> Iterator[RebindFunction]:
    """Yield the Step that rebinds the function's driver, if the function gets GUIDs."""
    request, place, card = asked_guid(nic.entry), nic.link.virtual, nic.card
    if request and place and card and card.pci and card.function and card.function.driver:
        previous_guid = with_own_guids(nic, nic.link.settings or FunctionSettings()).node_guid
        assert previous_guid
        yield RebindFunction(card.pci, place.pci, card.function.driver, request[1], previous_guid)


def partition(nic: PodNic) -> Iterator[steps.AwaitPartition]:
    """Yield the Step that waits for the partition of a network, if it names one."""
    pkey = kinds.partition_of(nic.network)
    if pkey is not None and nic.link.pci is not None:
        yield steps.AwaitPartition(nic.link.pci, pkey)


def taken_as(nic: PodNic) -> InterfaceName:
    """Return the name of a card's own link in the pod.

    It is that of the interface, or ib<number> if the interface is a partition on this link.
    """
    if kinds.partition_of(nic.network) is None:
        return nic.interface
    return InterfaceName(f"ib{nic.number}")


def child(nic: PodNic, mark: steps.Mark) -> Iterator[steps.Step]:
    """Yield the Steps that make a partition's interface on the card's link in the pod."""
    pkey, parent = kinds.partition_of(nic.network), taken_as(nic)
    if pkey is not None:
        if not nic.network.accept_ra:  # a router could give the pod its default route
            yield steps.SetSysctl(f"net/ipv6/conf/{parent}/accept_ra", "0", optional=True)
        yield steps.SetLink(parent)
        yield steps.MakeLink(
            kind=steps.VirtualKind.IPOIB,
            parent=device.PlannedHostLink(nic.link.index, parent),
            name=nic.interface,
            mark=mark,
            mtu=nic.network.mtu,
            pkey=pkey,
            inside=True,
        )


def refuse_infiniband(
    entry: MatchedEntry, way: Way, link: HostLink, card: Card | None, share: GrantedShare | None
) -> None:
    """Raise Refused for GUIDs, partitions and MACs on links that cannot have them.

    Raise it too for a virtual function that has no GUID and gets none.
    """
    wide, own = link.link_type == _INFINIBAND, way is Way.TAKE
    if kinds.partition_of(entry.network) is not None and not wide:
        problem = f"partitions exist on InfiniBand only, which {link.name} is not"
        raise refused(entry, "pkey", problem, "Remove pkey, or use an InfiniBand card")
    if wide and own and (mac := entry.mac):
        problem = f"{link.name} is InfiniBand, its address is made from a GUID, not {mac}"
        raise refused(entry, "mac", problem, 'Remove mac, or write an "infiniband-guid"')
    request = asked_guid(entry)
    if request:
        _refuse_guid(entry, request[0], link, card if own else None)
        _refuse_early(entry, request[0], link, share)
    elif wide and own and link.virtual and (node := _own(card)) is not None:
        if device.is_usable_guid(node):
            return
        problem = f"{link.name} has no GUID ({node}), so its fabric gives it no address"
        place = link.virtual
        remedy = (
            'Write an "infiniband-guid" into the entry, or set one: ip link set '
            f"{quote(place.physical.name)} vf {place.number} node_guid …, port_guid too, and "
            "rebind its driver; those that a NodePolicy asks for as virtualFunctions have one"
        )
        raise refused(entry, "infiniband-guid", problem, remedy)


def refuse_taken(
    placed: Sequence[PodNic],
    attachments: Sequence[Attachment],
    node: HostNetwork,
    claimed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise Refused for a GUID that this pod, another pod or a device has already.

    `attachments` are all others of this node, `claimed` says by GUID who is about to get it.
    """
    owners = dict(claimed) | {
        guid: f"{one.sandbox.pod} has it, on {plan.interface}"
        for one in attachments
        for plan in one.plans
        for step in plan.steps
        if isinstance(step, SetFunction) and (guid := step.wanted.port_guid)
    }
    for nic in placed:
        if not (request := asked_guid(nic.entry)):
            continue
        field, guid = request
        devices = [name for name, pci, has in node.guids if has == guid and pci != nic.link.pci]
        by = owners.get(guid) or (f"{devices[0]} of this node has it" if devices else None)
        if by:
            remedy = "Write another one: no two ports of a fabric may have the same"
            raise refused(nic.entry, field, f"the GUID {guid} is taken, {by}", remedy)
        owners[guid] = f"{nic.entry.ask.source} has it"


def _refuse_guid(entry: MatchedEntry, field: str, link: HostLink, card: Card | None) -> None:
    if link.link_type != _INFINIBAND:
        problem = f"{link.name} is not InfiniBand and has no GUID of its own"
        raise refused(entry, field, problem, f"Remove {field}, or use an InfiniBand card")
    if link.virtual is None or card is None or card.function is None or not card.function.driver:
        problem = (
            "only a virtual function whose physical one is on the node, and of which the pod holds "
            f"a share, can be given a GUID; {link.name} is not one"
        )
        remedy = f"Remove {field}, or use a pool of virtual functions"
        raise refused(entry, field, problem, remedy)


def _refuse_early(
    entry: MatchedEntry, field: str, link: HostLink, share: GrantedShare | None
) -> None:
    """Raise Refused for a new GUID of a device whose device node the container got already."""
    if share and share.early:
        problem = (
            f"a new GUID gives {link.name} another device node, and the container has got the "
            f"present one: {share.resource} is bound before the pod has a network"
        )
        remedy = (
            "Write attach: auto into its pool in a NodePolicy, on nodes whose runtime reads CDI "
            f"files, or remove {field}"
        )
        raise refused(entry, field, problem, remedy)


def _own(card: Card | None) -> str | None:
    """Return the node GUID of the card's first RDMA device, in the usual form.

    Return None if it has no RDMA device, or the GUID was not read.
    """
    return device.guid_of_sysfs(card.devices[0].node_guid) if card and card.devices else None
