"""Asking the kernel's routing netlink for the default routes of one network namespace.

default_routes.py asks in the host's. rtnl_read.py reads links and routes for it, rtnl_events.py
listens to the same family. Numbers: include/uapi/linux/rtnetlink.h, nexthop.h; what fills them:
net/ipv4/fib_semantics.c, net/ipv6/route.c, net/ipv4/nexthop.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from socket import AF_INET, AF_INET6, NETLINK_ROUTE

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Netlink, number, split
from kube_rdma.adapters.kernel.netlink.rtnl_read import MAIN_TABLE, decode_unicast, interface_at

_GETROUTE, _GETNEXTHOP = 26, 106
_ROUTE = struct.Struct("=8BI")  # struct rtmsg
_NEXTHOP = struct.Struct("=BBBxI")  # struct nhmsg
_PATH = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, interface
_MEMBER = struct.Struct("=IBBH")  # struct nexthop_grp: id, weight, its upper byte, reserved

_MULTIPATH, _NH_ID = 9, 30  # RTA_*
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5


def open_rtnl() -> Netlink:
    """A conversation with the routing family of this thread's network namespace."""
    return Netlink(NETLINK_ROUTE)


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
        if interface := interface_at(netlink, index):
            yield interface.seen.name


def decode_default_route(payload: bytes) -> tuple[set[int], set[int]]:
    """The interfaces and nexthop objects of one route; none when it is no default route."""
    route = decode_unicast(payload)
    if route is None or route.length or route.table != MAIN_TABLE:
        return set(), set()
    through = number(route.attributes, _NH_ID)
    indexes = {route.out} if route.out else set()
    indexes |= set(_paths(route.attributes.get(_MULTIPATH, b"")))
    # The object's interfaces are told beside it unless net.ipv4.nexthop_compat_mode is 0.
    return indexes, {through} if through and not indexes else set()


def resolve_nexthops(wanted: set[int], payloads: tuple[bytes, ...]) -> set[int]:
    """The interfaces of nexthop objects, groups of them included."""
    outs: dict[int, int] = {}
    groups: dict[int, set[int]] = {}
    for payload in payloads:
        _, attributes = split(_NEXTHOP, payload)
        me = number(attributes, _NHA_ID) or 0
        group = attributes.get(_NHA_GROUP, b"")
        whole = len(group) - len(group) % _MEMBER.size
        groups[me] = {member for member, *_ in _MEMBER.iter_unpack(group[:whole])}
        if out := number(attributes, _NHA_OIF):
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
