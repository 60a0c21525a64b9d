"""Asking the kernel's routing netlink: interfaces and default routes of one network namespace.

default_routes.py asks in the host's namespace, pod/namespaces.py in a pod's; rtnl_events.py listens
to the same family. Numbers: include/uapi/linux/rtnetlink.h, if_link.h, nexthop.h; what fills them:
net/core/rtnetlink.c, net/ipv4/fib_semantics.c, net/ipv6/route.c, net/ipv4/nexthop.c.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, NETLINK_ROUTE

from kube_rdma.adapters.kernel.netlink.codec import Netlink, values_by_type
from kube_rdma.adapters.kernel.sysfs.functions import LINK_TYPES
from kube_rdma.model.device import PciAddress
from kube_rdma.model.errors import Unavailable

_GETLINK, _GETROUTE, _GETNEXTHOP = 18, 26, 106
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_ROUTE = struct.Struct("=8BI")  # struct rtmsg
_NEXTHOP = struct.Struct("=BBBxI")  # struct nhmsg
_PATH = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, interface
_MEMBER = struct.Struct("=IBBH")  # struct nexthop_grp: id, weight, its upper byte, reserved
_U8, _U32 = struct.Struct("=B"), struct.Struct("=I")

_IFNAME, _OPERSTATE, _CARRIER, _PARENT, _PARENT_BUS = 3, 16, 33, 56, 57  # IFLA_*
_OIF, _MULTIPATH, _TABLE, _NH_ID = 4, 9, 15, 30  # RTA_*
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5
_UP, _CLONED = 0x1, 0x200  # IFF_UP, RTM_F_CLONED
_MAIN, _UNICAST = 254, 1  # RT_TABLE_MAIN, RTN_UNICAST

# IF_OPER_*, RFC 2863; sysfs has the same words (net/core/net-sysfs.c, operstates).
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")

_Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class RtnlLink:
    """An interface as its namespace has it.

    `parent` and `bus` name the device that it sits on (``0000:81:00.0`` on ``pci``, ``virtio2`` on
    ``virtio``), which the kernel tells since Linux 5.14; None for virtual interfaces.
    """

    name: str
    index: int
    link_type: str  # as Netdev.link_type
    up: bool  # administratively
    carrier: bool | None  # as Netdev.carrier: None while the interface is down
    operstate: str
    parent: str | None = None
    bus: str | None = None

    @property
    def pci(self) -> PciAddress | None:
        """The PCI function that it sits on directly."""
        return PciAddress(self.parent) if self.parent and self.bus == "pci" else None


def open_rtnl() -> Netlink:
    """A conversation with the routing family of this thread's network namespace."""
    return Netlink(NETLINK_ROUTE)


def links(netlink: Netlink) -> tuple[RtnlLink, ...]:
    """Every interface of the namespace that `netlink` was opened in, in the kernel's order."""
    return tuple(map(decode_link, netlink.ask(_GETLINK, _LINK.pack(0, 0, 0, 0, 0), dump=True)))


def default_interfaces(netlink: Netlink) -> tuple[str, ...]:
    """The interfaces of the main table's default routes, IPv4 and IPv6, each once, sorted.

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
    return tuple(sorted(set(names(netlink, indexes))))


def names(netlink: Netlink, indexes: Iterable[int]) -> Iterator[str]:
    """The interfaces with these indexes; one that is gone again has no name, nor a route."""
    for index in indexes:
        try:
            answer = netlink.ask(_GETLINK, _LINK.pack(0, 0, index, 0, 0))
        except Unavailable as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENODEV:
                continue
            raise
        yield from (decode_link(payload).name for payload in answer)


def decode_link(payload: bytes) -> RtnlLink:
    """An interface out of one answer to GETLINK; Unavailable when malformed or without a name."""
    _need(payload, _LINK)
    _, kind, index, flags, _ = _LINK.unpack_from(payload)
    attributes = _attributes(payload[_LINK.size :])
    name = _text(attributes, _IFNAME)
    if name is None:
        raise Unavailable(f"routing netlink: interface {index} has no name")
    state = _number(attributes, _OPERSTATE, _U8) or 0
    return RtnlLink(
        name=name,
        index=index,
        link_type=LINK_TYPES.get(str(kind), ""),
        up=bool(flags & _UP),
        carrier=bool(_number(attributes, _CARRIER, _U8)) if flags & _UP else None,
        operstate=_OPERSTATES[state] if state < len(_OPERSTATES) else _OPERSTATES[0],
        parent=_text(attributes, _PARENT),
        bus=_text(attributes, _PARENT_BUS),
    )


def decode_default_route(payload: bytes) -> tuple[set[int], set[int]]:
    """The interfaces and nexthop objects of one route; none when it is no default route."""
    _need(payload, _ROUTE)
    _, bits, _, _, table, _, _, kind, flags = _ROUTE.unpack_from(payload)
    attributes = _attributes(payload[_ROUTE.size :])
    # Tables above 255 have room in the attribute alone.
    table = _number(attributes, _TABLE) or table
    if bits or kind != _UNICAST or table != _MAIN or flags & _CLONED:
        return set(), set()
    through = _number(attributes, _NH_ID)
    out = _number(attributes, _OIF)
    indexes = {out} if out else set()
    indexes |= set(_paths(attributes.get(_MULTIPATH, b"")))
    # The object's interfaces are told beside it unless net.ipv4.nexthop_compat_mode is 0.
    return indexes, {through} if through and not indexes else set()


def resolve_nexthops(wanted: set[int], payloads: tuple[bytes, ...]) -> set[int]:
    """The interfaces of nexthop objects, groups of them included."""
    outs: dict[int, int] = {}
    groups: dict[int, set[int]] = {}
    for payload in payloads:
        _need(payload, _NEXTHOP)
        attributes = _attributes(payload[_NEXTHOP.size :])
        me = _number(attributes, _NHA_ID) or 0
        group = attributes.get(_NHA_GROUP, b"")
        whole = len(group) - len(group) % _MEMBER.size
        groups[me] = {member for member, *_ in _MEMBER.iter_unpack(group[:whole])}
        if out := _number(attributes, _NHA_OIF):
            outs[me] = out
    members = set(wanted).union(*(groups.get(me, set()) for me in wanted))
    return {outs[me] for me in members if me in outs}


def _paths(multipath: bytes) -> Iterator[int]:
    """The interfaces of a multipath route's hops; each hop says how long it is."""
    at = 0
    while len(multipath) - at >= _PATH.size:
        length, _, _, index = _PATH.unpack_from(multipath, at)
        if length < _PATH.size:
            raise Unavailable("routing netlink: a hop of a route is cut short")
        yield index
        at += (length + 3) & ~3


def _attributes(data: bytes) -> _Attributes:
    return values_by_type(data)


def _number(attributes: _Attributes, which: int, form: struct.Struct = _U32) -> int | None:
    value = attributes.get(which)
    if value is None:
        return None
    if len(value) != form.size:
        raise Unavailable(f"routing netlink: attribute {which} has {len(value)} bytes")
    return int(form.unpack(value)[0])


def _text(attributes: _Attributes, which: int) -> str | None:
    return attributes.get(which, b"").rstrip(b"\0").decode(errors="replace") or None


def _need(payload: bytes, form: struct.Struct) -> None:
    if len(payload) < form.size:
        raise Unavailable(f"routing netlink: {len(payload)} bytes where {form.size} belong")
