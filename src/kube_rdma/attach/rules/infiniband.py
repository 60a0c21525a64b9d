"""What is particular to InfiniBand: GUIDs of virtual functions, partitions, and who may have them.

Part of attach/rules/seats, which refuses with it, and of attach/rules/plan, which plans with it.

A function takes new GUIDs only when its driver is bound again (mlx5 asks for them when it probes),
and the binding makes its RDMA device and interface again. So both are set through the physical
function first, then the driver is bound, then what there is by then is found by its PCI address.
The node and the port of a function have one GUID, for it has one port.

A GUID is an EUI-64: eight octets. sysfs prints four groups of four digits, and the address of an
IPoIB interface ends with the GUID of its port (RFC 4391, 9.1.1).

A partition is an IPoIB interface of its own, a child of the function's, which comes into the pod
too and has another name there (docs/decisions/0011-infiniband.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from types import MappingProxyType

from kube_base.frozen import replace
from kube_rdma.attach.rules.requests import NO_GUID, asked_guid, refused, wrong_guid
from kube_rdma.model.attach.attachment import (
    Attachment,
    GrantedShare,
    HostLink,
    HostNetwork,
    NetworkSeat,
    Way,
    Wish,
)
from kube_rdma.model.attach.steps import (
    AwaitPartition,
    MakeLink,
    Mark,
    SetLink,
    SetSysctl,
    Step,
    VirtualKind,
)
from kube_rdma.model.card import Card
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import FunctionSettings, LinkState, RebindFunction, SetFunction
from kube_rdma.model.survey import NamespaceMode

_INFINIBAND = "infiniband"
_GUID_LENGTH = len("00:00:00:00:00:00:00:00")
_ADDRESS_LENGTH = 59  # characters of an IPoIB interface's address


def is_usable_guid(guid: str | None) -> bool:
    """Whether a port can talk with this GUID."""
    return guid is not None and wrong_guid(guid) is None


def guid_of_sysfs(text: str | None) -> str | None:
    """``0200:0000:0000:0001`` in the usual form."""
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def guid_of_address(mac: str) -> str | None:
    """The GUID of the port in an IPoIB interface's address; None in any other."""
    return mac.lower()[-_GUID_LENGTH:] if len(mac) == _ADDRESS_LENGTH else None


def with_guids(wish: Wish, wanted: FunctionSettings) -> FunctionSettings:
    """The settings with the GUID that the pod asks for."""
    request = asked_guid(wish)
    return replace(wanted, node_guid=request[1], port_guid=request[1]) if request else wanted


def with_link(link: HostLink, wanted: FunctionSettings) -> FunctionSettings:
    """The settings with the link of the card, where nobody asks for another.

    mlx5 makes functions of InfiniBand whose link is down (mlx5_ib_get_vf_config tells it).
    """
    down = link.settings is not None and link.settings.link_state is LinkState.DISABLE
    if link.link_type == _INFINIBAND and wanted.link_state is None and down:
        return replace(wanted, link_state=LinkState.AUTO)
    return wanted


def awaits_port(seat: NetworkSeat) -> bool:
    """Whether the pod has to wait for the port of its function.

    A card's own port was judged with the card; that of a virtual function comes up only when the
    subnet manager knows of it.
    """
    place = seat.card.seat if seat.card else None
    virtual = seat.link.virtual or (place and place.physical_function)
    asked = seat.wish.network.function
    down = asked is not None and asked.link_state is LinkState.DISABLE
    return seat.link.link_type == _INFINIBAND and bool(virtual) and not down


def with_own_guids(seat: NetworkSeat, reported: FunctionSettings) -> FunctionSettings:
    """What the physical function reports, with the GUIDs to be set back.

    Those that it has set (it reports zeros where it has none), else those that the function has.
    """
    node, port = _own(seat.card), guid_of_address(seat.link.mac)
    return replace(
        reported,
        node_guid=next(filter(is_usable_guid, (reported.node_guid, node)), NO_GUID),
        port_guid=next(filter(is_usable_guid, (reported.port_guid, port)), NO_GUID),
    )


def rebinding(seat: NetworkSeat) -> Iterator[RebindFunction]:
    """The driver, where the function gets GUIDs."""
    request, place, card = asked_guid(seat.wish), seat.link.virtual, seat.card
    if request and place and card and card.pci and card.function and card.function.driver:
        previous_guid = with_own_guids(seat, seat.link.settings or FunctionSettings()).node_guid
        assert previous_guid
        yield RebindFunction(card.pci, place.pci, card.function.driver, request[1], previous_guid)


def partition(seat: NetworkSeat) -> Iterator[AwaitPartition]:
    """The partition that the pod's interface is in, if the network names one."""
    if seat.wish.network.pkey is not None and seat.link.pci is not None:
        yield AwaitPartition(seat.link.pci, seat.wish.network.pkey)


def taken_as(seat: NetworkSeat) -> InterfaceName:
    """What a card's own link is called in the pod: ib<number> where a child has the pod's name."""
    if seat.wish.network.pkey is None:
        return seat.wish.ask.interface
    return InterfaceName(f"ib{seat.number}")


def child(seat: NetworkSeat, mark: Mark) -> Iterator[Step]:
    """The interface of a partition on the link that was taken."""
    pkey, parent = seat.wish.network.pkey, taken_as(seat)
    if pkey is not None:
        if not seat.wish.network.accept_ra:  # a router could give the pod its default route
            yield SetSysctl(f"net/ipv6/conf/{parent}/accept_ra", "0", optional=True)
        yield SetLink(parent)
        yield MakeLink(
            kind=VirtualKind.IPOIB,
            parent=PlannedHostLink(seat.link.index, parent),
            name=seat.wish.ask.interface,
            mark=mark,
            mtu=seat.wish.network.mtu,
            pkey=pkey,
            inside=True,
        )


def refuse_infiniband(
    wish: Wish, way: Way, link: HostLink, card: Card | None, share: GrantedShare | None
) -> None:
    """Raise Refused for GUIDs and partitions where they cannot be, and for a MAC of its own."""
    wide, own = link.link_type == _INFINIBAND, way is Way.TAKE
    if wish.network.pkey is not None and not wide:
        problem = f"partitions exist on InfiniBand only, which {link.name} is not"
        raise refused(wish, "pkey", problem, "Remove pkey, or use an InfiniBand card")
    mac = wish.ask.mac or wish.network.mac
    if wide and own and mac:
        problem = f"{link.name} is InfiniBand, its address is made from a GUID, not {mac}"
        raise refused(wish, "mac", problem, 'Remove mac, or write an "infiniband-guid"')
    request = asked_guid(wish)
    if request:
        _refuse_guid(wish, request[0], link, card if own else None)
        _refuse_early(wish, request[0], link, share)
    elif wide and own and link.virtual and not _talks(card):
        node = _own(card)
        problem = f"{link.name} has no GUID ({node}), so its fabric gives it no address"
        place = link.virtual
        remedy = (
            'Write an "infiniband-guid" into the entry, or set one: ip link set '
            f"{quote(place.physical.name)} vf {place.number} node_guid …, port_guid too, and "
            "rebind its driver; those that a NodePolicy asks for as virtualFunctions have one"
        )
        raise refused(wish, "infiniband-guid", problem, remedy)


def refuse_isolation(wish: Wish, mode: NamespaceMode) -> None:
    """Raise Refused where a network wants RDMA devices of one namespace, and all namespaces share

    those of the node.
    """
    if wish.network.isolated and mode is not NamespaceMode.EXCLUSIVE:
        problem = f"the node is in RDMA namespace mode {mode}, so every pod sees the RDMA device"
        remedy = "Boot it with ib_core.netns_mode=0, or remove rdmaIsolation"
        raise refused(wish, "rdmaIsolation", problem, remedy)


def refuse_taken(
    placed: Sequence[NetworkSeat],
    attachments: Sequence[Attachment],
    node: HostNetwork,
    claimed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise Refused when a GUID is another's: of this pod, of one that lives, of a device here.

    `attachments` are those of other sandboxes, `claimed` says by GUID who is about to get it.
    """
    owners = dict(claimed) | {
        guid: f"{one.sandbox.pod} has it, on {plan.interface}"
        for one in attachments
        for plan in one.plans
        for guid in _given(plan.steps)
    }
    for seat in placed:
        if not (request := asked_guid(seat.wish)):
            continue
        field, guid = request
        devices = [name for name, pci, has in node.guids if has == guid and pci != seat.link.pci]
        by = owners.get(guid) or (f"{devices[0]} of this node has it" if devices else None)
        if by:
            remedy = "Write another one: no two ports of a fabric may have the same"
            raise refused(seat.wish, field, f"the GUID {guid} is taken, {by}", remedy)
        owners[guid] = f"{seat.wish.ask.source} has it"


def _refuse_guid(wish: Wish, field: str, link: HostLink, card: Card | None) -> None:
    if link.link_type != _INFINIBAND:
        problem = f"{link.name} is not InfiniBand and has no GUID of its own"
        raise refused(wish, field, problem, f"Remove {field}, or use an InfiniBand card")
    if link.virtual is None or card is None or card.function is None or not card.function.driver:
        problem = (
            "only a virtual function whose physical one is on the node, and of which the pod holds "
            f"a share, can be given a GUID; {link.name} is not one"
        )
        remedy = f"Remove {field}, or use a pool of virtual functions"
        raise refused(wish, field, problem, remedy)


def _refuse_early(wish: Wish, field: str, link: HostLink, share: GrantedShare | None) -> None:
    """The container would keep the device node that was there before, now maybe another's."""
    if share and share.early:
        problem = (
            f"a new GUID gives {link.name} another device node, and the container has got the "
            f"present one: {share.resource} is bound before the pod has a network"
        )
        remedy = (
            "Write attach: auto into its pool in a NodePolicy, on nodes whose runtime reads CDI "
            f"files, or remove {field}"
        )
        raise refused(wish, field, problem, remedy)


def _talks(card: Card | None) -> bool:
    """Whether its GUID is one, as far as that is known."""
    own = _own(card)
    return own is None or is_usable_guid(own)


def _own(card: Card | None) -> str | None:
    """The GUID of the function's node, as its RDMA device shows it."""
    return guid_of_sysfs(card.devices[0].node_guid) if card and card.devices else None


def _given(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, SetFunction) and step.wanted.port_guid:
            yield step.wanted.port_guid
