"""Pods that ask for networks and nodes that have cards for them, by hand or drawn by hypothesis."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    AssignedAddresses,
    GrantedShare,
    HostLink,
    HostNetwork,
    InterfaceAddress,
    MatchedEntry,
    NetworkAsk,
    NetworkKind,
    Sandbox,
)
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import LinkLayer, PlannedHostLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import (
    Bind,
    FunctionPlace,
    FunctionSettings,
    LinkState,
    Mode,
    ShareId,
    VlanProtocol,
)
from kube_rdma.model.survey import NamespaceMode

from .nodes import device, position

SANDBOX = Sandbox(ContainerId("5a0e" * 16), PodName("default", "train-0"), "uid-1", "/run/n", 42)
RESOURCE = "rdma/hca_shared_devices_a"
NO_MAC = "00:00:00:00:00:00"
AS_MADE = FunctionSettings(
    NO_MAC, 0, 0, VlanProtocol.CUSTOMER, True, False, LinkState.AUTO, 0, 0
)  # as many a driver makes a virtual function
WIDE_MADE = FunctionSettings(
    None, 0, 0, VlanProtocol.CUSTOMER, False, False, LinkState.AUTO, 0, 0
)  # as mlx5 makes one of InfiniBand


def card(number, *, soft=False, rdma=True, link_type="ether", virtual=False):
    """The card whose interface is ens<number>f0: a ConnectX with its device, or with an rxe.

    Or a virtual function of one.
    """
    where, netdev = position(0x10 + number), f"ens{number}f0"
    if virtual:
        where = position(0x10 + number, 1, physical=where.pci)
    layer = LinkLayer.INFINIBAND if link_type == "infiniband" else LinkLayer.ETHERNET
    found = device(number, None if soft else where, netdev)
    found = replace(found, ports=tuple(replace(p, link_layer=layer) for p in found.ports))
    if link_type == "infiniband":
        found = replace(found, node_guid=_groups(where))
    if soft:
        found = replace(found, identity=f"{found.name}@{netdev}", position=where)
    function = Function(
        where, 0x15B3, 0x1021, "mlx5_core", (Netdev(netdev, link_type, True, True),)
    )
    return Card(CardId(where.pci), (found,) if rdma else (), function)


def link(of, *, mtu=9000, up=True, default_route=False, settings=AS_MADE):
    """The interface of a card on the node; its index is the card's bus number."""
    (netdev,) = of.function.netdevs
    bus = int(of.pci[5:7], 16)
    wide = netdev.link_type == "infiniband"
    mac = ":".join(["02", *["00"] * 4, f"{bus:02x}"])
    if wide:
        mac = f"80:00:00:{bus:02x}:fe:80:00:00:00:00:00:00:{guid(of.function.position)}"
        settings = settings and wide_settings(of)
    found = HostLink(bus, netdev.name, mtu, mac, up, of.pci, netdev.link_type, default_route)
    if not of.function.position.physical_function:
        return found
    return replace(found, virtual=place(of), settings=settings)


def guid(where):
    """That of a function, of its node and of its port."""
    return f"02:00:00:00:00:00:{where.pci[5:7]}:0{where.pci[-1]}"


def _groups(where):
    """The same as sysfs prints it."""
    digits = guid(where).replace(":", "")
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def wide_settings(of):
    """What the physical function tells of an InfiniBand one, to which it has given GUIDs."""
    own = guid(of.function.position)
    return replace(WIDE_MADE, node_guid=own, port_guid=own)


def place(of):
    """Of a virtual function."""
    bus = int(of.pci[5:7], 16)
    return FunctionPlace(
        PlannedHostLink(100 + bus, f"ens{bus}pf"), of.function.position.physical_function, 0
    )


def node(*cards, mode=NamespaceMode.SHARED, soft=None, **facts):
    """The node's network with the interfaces of these cards."""
    return HostNetwork(tuple(link(each, **facts) for each in cards), mode, soft)


def share(*cards, mode=Mode.SHARED_MULTI, resource=RESOURCE, container="main"):
    """A share of one card, or of the pool in mode hca."""
    bind = Bind.POOL if mode is Mode.HCA else Bind.PER_CARD
    return GrantedShare(container, resource, ShareId(f"{cards[0].id}-0"), cards, mode, bind)


def network(name="rdma-net", kind=NetworkKind.CARD, **facts):
    """A network of namespace default."""
    facts = {"resource": RESOURCE, **facts}
    of = kinds.NETWORKS[kind]
    is_wide = facts.pop("infiniband", False) or facts.keys() & {"guid", "isolated", "configured"}
    if kind is NetworkKind.DEVICE and (is_wide or "pkey" in facts):
        of = kinds.IbSriovNetwork
    return of(f"default/{name}", f"NetworkAttachmentDefinition default/{name}", **facts)


def wish(number=0, of=None, **facts):
    """The entry networks[number] with its network."""
    of = of or network()
    name = InterfaceName(facts.pop("interface", f"net{number + 1}"))
    space, _, title = of.name.partition("/")
    return MatchedEntry(NetworkAsk(space, title, name, f"networks[{number}]", **facts), of)


def given(number, *texts, gateway=None, routes=(), probe=False):
    """What IPAM gave to net<number>: addresses like 10.0.0.7/24."""
    found = []
    for text in texts:
        address, _, prefix = text.partition("/")
        first = ip_address(address)
        via = ip_address(gateway) if gateway else None
        same = via is not None and via.version == first.version
        found.append(InterfaceAddress(first, int(prefix), via if same else None))
    return AssignedAddresses(InterfaceName(f"net{number}"), tuple(found), tuple(routes), probe)


def planned(wishes, granted, on, leased=()):
    """All rules in their order."""
    return plans(SANDBOX, pod_nics(wishes, granted, on), leased, on)


KINDS = (NetworkKind.CARD, NetworkKind.MACVLAN, NetworkKind.IPVLAN, NetworkKind.DEVICE)


@st.composite
def pods(draw):
    """Wishes, shares, node and leases that fit: up to four cards, each with its own mode.

    The addresses lie in one subnet or in one for each interface, of one family or of both.
    """
    namespace_mode = draw(st.sampled_from(list(NamespaceMode)))
    exclusive = namespace_mode is NamespaceMode.EXCLUSIVE
    wishes, shares, cards, leases = [], [], [], []
    one_subnet = draw(st.booleans())
    for number in range(draw(st.integers(1, 4))):
        wide = draw(st.booleans())
        soft = not wide and not exclusive and draw(st.booleans())
        owned = exclusive or draw(st.booleans())
        virtual = owned and draw(st.booleans())
        link_type = "infiniband" if wide else "ether"
        each = card(number, soft=soft, link_type=link_type, virtual=virtual)
        mode = draw(st.sampled_from(OWNED if owned else SHARED))
        kinds = [NetworkKind.CARD]
        if owned:
            kinds.append(NetworkKind.DEVICE)
        elif wide:
            kinds.append(NetworkKind.IPOIB)
        else:
            kinds += [NetworkKind.MACVLAN, NetworkKind.IPVLAN]
        kind = draw(st.sampled_from(kinds))
        mac = None
        if kind not in (NetworkKind.IPVLAN, NetworkKind.IPOIB) and not wide:
            mac = draw(st.sampled_from([None, f"02:00:00:00:01:{number:02x}"]))
        resource = f"rdma/r{draw(st.integers(0, number))}"
        largest = 2044 if wide else 9000  # of an IPoIB interface that was made anew
        facts = {"mtu": draw(st.sampled_from([None, 1500, largest])), "resource": resource}
        if virtual and kind is NetworkKind.DEVICE:
            facts["function"] = draw(st.sampled_from(WIDE_SETTINGS if wide else SETTINGS))
            facts["infiniband"] = wide
        if wide and (kind is not NetworkKind.DEVICE or virtual):
            facts["pkey"] = draw(st.sampled_from([None, 0x12]))
        asked = draw(st.sampled_from([None, GUIDS[number]])) if wide and virtual else None
        wishes.append(wish(number, network(f"n{number}", kind, **facts), mac=mac, guid=asked))
        shares.append(share(each, mode=mode, resource=resource))
        cards.append(each)
        subnet = 0 if one_subnet else number
        texts = draw(st.sampled_from([[], [4], [6], [4, 6]]))
        forms = {4: f"10.0.{subnet}.{number + 7}/24", 6: f"fd00:{subnet}::{number + 7}/64"}
        gateway = draw(st.sampled_from([None, f"10.0.{subnet}.1", f"fd00:{subnet}::1"]))
        probe = draw(st.booleans())
        leases.append(given(number + 1, *map(forms.get, texts), gateway=gateway, probe=probe))
    up = draw(st.booleans()) if all(one.mode in OWNED for one in shares) else True
    on = node(*cards, mode=namespace_mode, up=up)
    if draw(st.booleans()):
        on = replace(on, links=tuple(map(_with_own_mac, on.links)))
    return wishes, shares, cards, on, leases


def _with_own_mac(of):
    """Many a driver tells a function's own MAC where nobody has set one."""
    plain = of.virtual and of.link_type == "ether"
    return replace(of, settings=replace(AS_MADE, mac=of.mac)) if plain else of


SETTINGS = (
    None,
    FunctionSettings(),
    FunctionSettings(vlan=100, qos=3, protocol=VlanProtocol.PROVIDER),
    FunctionSettings(
        None, 7, 1, VlanProtocol.PROVIDER, False, True, LinkState.ENABLE, min_rate=1, max_rate=9
    ),
)
GUIDS = tuple(f"02:00:00:00:00:00:99:{number:02x}" for number in range(4))  # asked for
WIDE_SETTINGS = (None, FunctionSettings(), FunctionSettings(link_state=LinkState.ENABLE))
OWNED = (Mode.EXCLUSIVE, Mode.SRIOV)
SHARED = (Mode.SHARED, Mode.SHARED_MULTI, Mode.HCA)
