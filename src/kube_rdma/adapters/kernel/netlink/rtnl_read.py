"""Reads a namespace's links, addresses, routes and rules: routing netlink, the reading half.

Among others, pod/links.py reads with it where it has to look before it acts. pod/steps.py answers
look() with it, and hardware/survey asks which network functions the node itself is reached through.
Numbers come from include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h and fib_rules.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from socket import AF_INET, AF_INET6, NETLINK_ROUTE

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.kernel.netlink import codec
from kube_rdma.adapters.kernel.netlink.rtnl_write import GROUP, by_name
from kube_rdma.adapters.kernel.pod.errors import errno_of
from kube_rdma.model.attach.attachment import LinkWays, SeenLink
from kube_rdma.model.attach.steps import AddRoute, AddRule
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import Address, InterfaceName, Subnet

_GETLINK, _GETADDR, _GETROUTE, _GETRULE, _GETNEXTHOP = 18, 22, 26, 34, 106
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
_ROUTE = struct.Struct("=8BI")  # struct rtmsg, and struct fib_rule_hdr
_NEXTHOP = struct.Struct("=BBBxI")  # struct nhmsg
_PATH = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, interface
_MEMBER = struct.Struct("=IBBH")  # struct nexthop_grp: id, weight, its upper byte, reserved
_U8, _U32 = struct.Struct("=B"), struct.Struct("=I")

_MAC, _IFNAME, _MTU, _PARENT, _LINKINFO, _ALIAS, _GROUP, _EXT_MASK = 1, 3, 4, 5, 18, 20, 27, 29
_CARRIER = 33
_PROPERTIES, _ALTERNATIVE_NAME = 52, 53  # IFLA_PROP_LIST, IFLA_ALT_IFNAME
_PERMANENT, _DEVICE, _BUS = 54, 56, 57  # IFLA_PERM_ADDRESS, IFLA_PARENT_DEV_NAME, …_BUS_NAME
_INFO_KIND = 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_PERMANENT = 0x80
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFSRC, _RTA_TABLE = 1, 4, 5, 6, 7, 15
_RTA_MULTIPATH, _RTA_NH_ID = 9, 30
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5
_AUTOMATIC = frozenset({2, 9})  # RTPROT_KERNEL, RTPROT_RA
_ONLINK = 4  # RTNH_F_ONLINK
_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE = 2, 6, 15
_UP, _CLONED, _UNICAST, _TO_TABLE = 0x1, 0x200, 1, 1
MAIN_TABLE, _LOCAL = 254, 255  # RT_TABLE_*
_FAMILIES: Mapping[int, int] = {AF_INET: 4, AF_INET6: 16}  # octets of an address
_SKIP_STATS = codec.encode_attributes([codec.Attribute(_EXT_MASK, _U32.pack(1 << 3))])

_Attributes = Mapping[int, bytes]


class Interface(Frozen):
    """A link with attributes that a SeenLink lacks, such as its permanent MAC.

    `alternative_names` are further names (``ip link property``), which systemd gives to cards. No
    link of the namespace can get such a name, not even this one.
    """

    seen: SeenLink
    hardware: int  # ARPHRD_*
    group: int
    permanent_mac: str
    alternative_names: frozenset[str] = frozenset()
    carrier: bool | None = None  # as Netdev.carrier: None while the interface is down

    def is_called(self, name: str) -> bool:
        """Return whether `name` is the link's name, or one of its alternative names."""
        return name == self.seen.name or name in self.alternative_names

    def ours(self, mark: str) -> bool:
        """Return whether the link has kube-rdma's `mark`, or is just being made by kube-rdma."""
        return self.seen.alias == mark or (not self.seen.alias and self.group == GROUP)


def open_rtnl() -> codec.Netlink:
    """Open a socket of the routing family in this thread's network namespace.

    Raise Unavailable when the kernel offers none.
    """
    try:
        return codec.Netlink(NETLINK_ROUTE)
    except OSError as error:
        raise Unavailable(f"the kernel offers no routing netlink ({error.strerror})") from error


def interfaces(netlink: codec.Netlink) -> tuple[Interface, ...]:
    """Return every link of the namespace that `netlink` was opened in."""
    every = _LINK.pack(0, 0, 0, 0, 0) + _SKIP_STATS
    return tuple(map(decode_interface, netlink.ask(_GETLINK, every, dump=True)))


def interface_named(netlink: codec.Netlink, name: str) -> Interface | None:
    """Return the link of this name, None if there is none."""
    payload = ask_link(netlink, by_name(name) + _SKIP_STATS)
    return decode_interface(payload) if payload else None


def interface_at(netlink: codec.Netlink, index: int) -> Interface | None:
    """Return the link with this index, None if there is none."""
    payload = ask_link(netlink, _LINK.pack(0, 0, index, 0, 0) + _SKIP_STATS)
    return decode_interface(payload) if payload else None


def ask_link(netlink: codec.Netlink, which: bytes) -> bytes | None:
    """Return the answer to GETLINK for one link; None when there is no such link."""
    try:
        (payload,) = netlink.ask(_GETLINK, which)
    except Unavailable as error:
        if errno_of(error) == errno.ENODEV:
            return None
        raise
    return payload


def seen_links(netlink: codec.Netlink) -> tuple[SeenLink, ...]:
    """Return every link with its addresses."""
    addresses = _addresses(netlink)
    links = [interface.seen for interface in interfaces(netlink)]
    return tuple(replace(link, addresses=tuple(addresses.get(link.index, ()))) for link in links)


def seen_named(netlink: codec.Netlink, names: Iterable[str]) -> tuple[SeenLink, ...]:
    """Return the links of these names that exist, with their addresses.

    Only these links are asked for, so other links cost nothing (since Linux 4.20). `netlink` is
    made strict.
    """
    netlink.be_strict()
    links = [one.seen for name in names if (one := interface_named(netlink, name))]
    return tuple(
        replace(link, addresses=tuple(_addresses(netlink, link.index).get(link.index, ())))
        for link in links
    )


def _addresses(netlink: codec.Netlink, index: int = 0) -> dict[int, list[tuple[Address, int]]]:
    """Return addresses and prefix lengths by link index; with `index`, those of one link."""
    addresses: dict[int, list[tuple[Address, int]]] = {}
    for payload in netlink.ask(_GETADDR, _ADDRESS.pack(0, 0, 0, 0, index), dump=True):
        for at, address, length in decode_address(payload):
            addresses.setdefault(at, []).append((address, length))
    return addresses


def address_holders(
    netlink: codec.Netlink, addresses: Collection[Address]
) -> tuple[tuple[InterfaceName, Address], ...]:
    """Return link name and address for each of these addresses that a link has."""
    holders = []
    for index, pairs in _addresses(netlink).items():
        mine = [address for address, _ in pairs if address in addresses]
        if mine and (interface := interface_at(netlink, index)):
            holders += [(interface.seen.name, address) for address in mine]
    return tuple(holders)


def dynamic_addresses(netlink: codec.Netlink) -> frozenset[tuple[int, Address]]:
    """Return index and address of each address that expires (`dynamic` in `ip address`)."""
    payloads = netlink.ask(_GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0), dump=True)
    return frozenset(
        (index, address)
        for payload in payloads
        if not is_permanent(payload)
        for index, address, _ in decode_address(payload)
    )


def seen_routes(netlink: codec.Netlink, links: Iterable[SeenLink]) -> tuple[AddRoute, ...]:
    """Return the unicast routes over these links, of every table except the local one.

    A route of several next hops is left out.
    """
    names = {link.index: link.name for link in links}
    payloads = netlink.ask(_GETROUTE, _ROUTE.pack(*[0] * 9), dump=True)
    return tuple(route for payload in payloads for route in decode_route(payload, names))


def link_ways(netlink: codec.Netlink, links: Iterable[SeenLink]) -> tuple[LinkWays, ...]:
    """Return each link's routes, and the rules for its addresses; leave out links without any.

    Routes that the kernel or router advertisements make are left out. So is a route of several next
    hops, which names no single link.
    """
    links = tuple(links)
    names = {link.index: link.name for link in links}
    routes = [
        route
        for payload in netlink.ask(_GETROUTE, _ROUTE.pack(*[0] * 9), dump=True)
        for route in decode_route(payload, names, automatic=False)
    ]
    rules = seen_rules(netlink)
    ways = (
        LinkWays(
            link.name,
            tuple(sorted((r for r in routes if r.name == link.name), key=lambda r: bool(r.via))),
            tuple(r for r in rules if any(r.source == address for address, _ in link.addresses)),
        )
        for link in links
    )
    return tuple(way for way in ways if way.routes or way.rules)


def seen_rules(netlink: codec.Netlink) -> tuple[AddRule, ...]:
    """Return the routing rules that send packets from one address to a table."""
    payloads = netlink.ask(_GETRULE, _ROUTE.pack(*[0] * 9), dump=True)
    return tuple(rule for payload in payloads for rule in decode_rule(payload))


def decode_interface(payload: bytes) -> Interface:
    """Return the link in one answer to GETLINK; raise Unavailable if malformed or nameless."""
    (_, hardware, index, flags, _), attributes = codec.split(_LINK, payload)
    if _IFNAME not in attributes:
        raise Unavailable(f"routing netlink: interface {index} has no name")
    info = codec.values_by_type(attributes.get(_LINKINFO, b""))
    on_pci = codec.text(attributes, _BUS) == "pci"
    link = SeenLink(
        name=InterfaceName(codec.text(attributes, _IFNAME)),
        index=index,
        mtu=codec.number(attributes, _MTU) or 0,
        mac=attributes.get(_MAC, b"").hex(":"),
        up=bool(flags & _UP),
        kind=codec.text(info, _INFO_KIND),
        parent=codec.number(attributes, _PARENT) or None,
        alias=codec.text(attributes, _ALIAS),
        pci=_pci(codec.text(attributes, _DEVICE)) if on_pci else None,
    )
    permanent = attributes.get(_PERMANENT, b"").hex(":")
    properties = codec.decode_attributes(attributes.get(_PROPERTIES, b""))
    others = (one.value.rstrip(b"\0") for one in properties if one.type == _ALTERNATIVE_NAME)
    return Interface(
        link,
        hardware,
        codec.number(attributes, _GROUP) or 0,
        permanent,
        frozenset(name.decode(errors="replace") for name in others),
        bool(codec.number(attributes, _CARRIER, _U8)) if link.up else None,
    )


def _pci(address: str) -> PciAddress:
    try:
        return PciAddress(address)
    except ValueError as error:
        raise Unavailable(f"routing netlink: {error}") from error


def decode_address(payload: bytes) -> Iterator[tuple[int, Address, int]]:
    """Yield index, address and prefix length in one answer to GETADDR; none of other families."""
    (family, length, _, _, index), attributes = codec.split(_ADDRESS, payload)
    # IFA_ADDRESS is the other end's on a point-to-point link, IFA_LOCAL is never.
    value = attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS, b""))
    if len(value) == _FAMILIES.get(family):
        yield index, ip_address(value), length


def is_permanent(payload: bytes) -> bool:
    """Return whether the address in an answer to GETADDR never expires.

    What DHCP clients and router advertisements give has a lifetime (IFA_F_PERMANENT is not set).
    """
    (_, _, flags, _, _), attributes = codec.split(_ADDRESS, payload)
    # The octet in the head has room for the first eight flags only; the attribute has them all.
    return bool((codec.number(attributes, _IFA_FLAGS) or flags) & _IFA_F_PERMANENT)


class UnicastRoute(Frozen):
    """A route in an answer to GETROUTE; `out` is the index of its interface, 0 for none.

    `is_automatic` is true of a route that the kernel makes with an address or for a router's
    advertisement.
    """

    family: int
    length: int
    table: int
    out: int
    attributes: _Attributes
    is_automatic: bool = False
    is_onlink: bool = False


def decode_unicast(payload: bytes) -> UnicastRoute | None:
    """Return the IP route in one answer to GETROUTE; None if it is cloned or not unicast."""
    (family, length, _, _, small, by, _, kind, flags), attributes = codec.split(_ROUTE, payload)
    if family not in _FAMILIES or kind != _UNICAST or flags & _CLONED:
        return None
    # Tables above 255 have room in the attribute alone.
    table = codec.number(attributes, _RTA_TABLE) or small
    out = codec.number(attributes, _RTA_OIF) or 0
    is_automatic, is_onlink = by in _AUTOMATIC, bool(flags & _ONLINK)
    return UnicastRoute(family, length, table, out, attributes, is_automatic, is_onlink)


def decode_route(
    payload: bytes, names: Mapping[int, InterfaceName], *, automatic: bool = True
) -> Iterator[AddRoute]:
    """Yield the route of one answer to GETROUTE, if it is over one of these interfaces.

    A route of the local table is left out. Without `automatic`, routes that the kernel or router
    advertisements make are left out.
    """
    route = decode_unicast(payload)
    if route is None or route.out not in names or route.table == _LOCAL:
        return
    if route.is_automatic and not automatic:
        return
    via, source = route.attributes.get(_RTA_GATEWAY), route.attributes.get(_RTA_PREFSRC)
    yield AddRoute(
        names[route.out],
        _subnet(route.attributes.get(_RTA_DST, bytes(_FAMILIES[route.family])), route.length),
        _address(via) if via else None,
        _address(source) if source else None,
        None if route.table == MAIN_TABLE else route.table,
        route.is_onlink,
        codec.number(route.attributes, _RTA_PRIORITY) or 0,
    )


def decode_rule(payload: bytes) -> Iterator[AddRule]:
    """Yield the rule in one answer to GETRULE, if it sends packets from one address to a table."""
    (family, _, length, _, small, _, _, action, _), attributes = codec.split(_ROUTE, payload)
    source = attributes.get(_FRA_SRC, b"")
    if action != _TO_TABLE or len(source) != _FAMILIES.get(family) or length != 8 * len(source):
        return
    table = codec.number(attributes, _FRA_TABLE) or small
    yield AddRule(_address(source), table, codec.number(attributes, _FRA_PRIORITY) or 0)


def _subnet(value: bytes, length: int) -> Subnet:
    try:
        return ip_network((value, length))
    except ValueError as error:
        raise Unavailable(f"routing netlink: a route to {value.hex()}/{length}") from error


def _address(value: bytes) -> Address:
    try:
        return ip_address(value)
    except ValueError as error:
        raise Unavailable(f"routing netlink: an address of {len(value)} bytes") from error


# Default routes.


def default_interfaces(netlink: codec.Netlink) -> tuple[str, ...]:
    """Return the sorted interfaces of default routes in the main table, IPv4 and IPv6.

    Raise Unavailable when the kernel does not answer.
    """
    indexes: set[int] = set()
    nexthops: set[int] = set()
    for family in (AF_INET, AF_INET6):
        request = _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
        for payload in netlink.ask(_GETROUTE, request, dump=True):
            route_indexes, through = decode_default_route(payload)
            indexes |= route_indexes
            nexthops |= through
    if nexthops:
        objects = netlink.ask(_GETNEXTHOP, _NEXTHOP.pack(0, 0, 0, 0), dump=True)
        indexes |= resolve_nexthops(nexthops, objects)
    # One that is gone again has no name, nor a route.
    found = (interface_at(netlink, index) for index in indexes)
    return tuple(sorted({one.seen.name for one in found if one}))


def decode_default_route(payload: bytes) -> tuple[set[int], set[int]]:
    """Return the interface indexes of a default route, or its nexthop object if it names none.

    Both are empty for other routes.
    """
    route = decode_unicast(payload)
    if route is None or route.length or route.table != MAIN_TABLE:
        return set(), set()
    through = codec.number(route.attributes, _RTA_NH_ID)
    indexes = {route.out} if route.out else set()
    indexes |= set(_paths(route.attributes.get(_RTA_MULTIPATH, b"")))
    # The object's interfaces are in the answer too unless net.ipv4.nexthop_compat_mode is 0.
    return indexes, {through} if through and not indexes else set()


def resolve_nexthops(wanted: set[int], payloads: tuple[bytes, ...]) -> set[int]:
    """Return the interface indexes of these nexthop objects, with those of a group's members."""
    outs: dict[int, int] = {}
    groups: dict[int, set[int]] = {}
    for payload in payloads:
        _, attributes = codec.split(_NEXTHOP, payload)
        me = codec.number(attributes, _NHA_ID) or 0
        group = attributes.get(_NHA_GROUP, b"")
        whole = len(group) - len(group) % _MEMBER.size
        groups[me] = {member for member, *_ in _MEMBER.iter_unpack(group[:whole])}
        if out := codec.number(attributes, _NHA_OIF):
            outs[me] = out
    members = set(wanted).union(*(groups.get(me, set()) for me in wanted))
    return {outs[me] for me in members if me in outs}


def _paths(multipath: bytes) -> Iterator[int]:
    """Yield the interface index of each hop of a multipath route.

    Raise Unavailable if the route is malformed.
    """
    at = 0
    while len(multipath) - at >= _PATH.size:
        length, _, _, index = _PATH.unpack_from(multipath, at)
        if length < _PATH.size:
            raise Unavailable("routing netlink: a hop of a route is cut short")
        yield index
        at += (length + 3) & ~3


# What the node itself is reached through, in its Survey: default routes, its own addresses.


def read_default_routes() -> tuple[str, ...]:
    """Return the interfaces with a default route in this thread's network namespace, sorted.

    Raise Unavailable when the kernel does not say.
    """
    with open_rtnl() as netlink:
        return default_interfaces(netlink)


def read_holders(own: Mapping[str, str]) -> dict[str, str]:
    """Return the interfaces that have an address of the node, with the address's description.

    `own` has the descriptions by address. Raise Unavailable when the kernel does not answer.
    """
    if not own:
        return {}
    words = {ip_address(text): word for text, word in own.items()}
    with open_rtnl() as netlink:
        return {name: words[address] for name, address in address_holders(netlink, words)}
