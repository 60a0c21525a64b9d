"""A namespace's links, addresses, routes and rules as values: routing netlink, the reading half.

pod/links.py looks with it before it acts where it must, pod/steps.py answers look() with it.
Numbers: include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h, fib_rules.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from socket import AF_INET, AF_INET6

from kube_rdma.adapters.kernel.netlink.codec import (
    Attribute,
    Netlink,
    encode_attributes,
    values_by_type,
)
from kube_rdma.adapters.kernel.netlink.rtnl_write import GROUP, by_name
from kube_rdma.model.device import PciAddress
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.ip import Address, InterfaceName, Subnet
from kube_rdma.model.pod_view import SeenLink, SeenRoute, SeenRule

_GETLINK, _GETADDR, _GETROUTE, _GETRULE = 18, 22, 26, 34
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
_ROUTE = struct.Struct("=8BI")  # struct rtmsg, and struct fib_rule_hdr
_U32 = struct.Struct("=I")

_MAC, _IFNAME, _MTU, _PARENT, _LINKINFO, _ALIAS, _GROUP, _EXT_MASK = 1, 3, 4, 5, 18, 20, 27, 29
_PERMANENT, _DEVICE, _BUS = 54, 56, 57  # IFLA_PERM_ADDRESS, IFLA_PARENT_DEV_NAME, …_BUS_NAME
_INFO_KIND = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_TABLE = 1, 4, 5, 15
_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE = 2, 6, 15
_UP, _CLONED, _UNICAST, _TO_TABLE = 0x1, 0x200, 1, 1
_MAIN, _LOCAL = 254, 255
_FAMILIES: Mapping[int, int] = {AF_INET: 4, AF_INET6: 16}  # octets of an address
_SKIP_STATS = encode_attributes([Attribute(_EXT_MASK, _U32.pack(1 << 3))])

_Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Interface:
    """A link with what only this adapter asks: its hardware type, group and permanent MAC."""

    seen: SeenLink
    hardware: int  # ARPHRD_*
    group: int
    permanent_mac: str

    def ours(self, mark: str) -> bool:
        """Whether it carries `mark`, or was made by kube-rdma a moment ago and has none yet."""
        return self.seen.alias == mark or (not self.seen.alias and self.group == GROUP)


def interfaces(netlink: Netlink) -> tuple[Interface, ...]:
    """Every link of the namespace that `netlink` was opened in."""
    every = _LINK.pack(0, 0, 0, 0, 0) + _SKIP_STATS
    return tuple(map(decode_interface, netlink.ask(_GETLINK, every, dump=True)))


def interface_named(netlink: Netlink, name: str) -> Interface | None:
    """The link of this name, None when there is none."""
    return _get_interface(netlink, by_name(name) + _SKIP_STATS)


def interface_at(netlink: Netlink, index: int) -> Interface | None:
    """The link with this index, None when there is none."""
    return _get_interface(netlink, _LINK.pack(0, 0, index, 0, 0) + _SKIP_STATS)


def _get_interface(netlink: Netlink, which: bytes) -> Interface | None:
    try:
        (payload,) = netlink.ask(_GETLINK, which)
    except Unavailable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENODEV:
            return None
        raise
    return decode_interface(payload)


def seen_links(netlink: Netlink) -> tuple[SeenLink, ...]:
    """Every link with its addresses."""
    addresses = _addresses(netlink)
    links = [interface.seen for interface in interfaces(netlink)]
    return tuple(replace(link, addresses=tuple(addresses.get(link.index, ()))) for link in links)


def seen_named(netlink: Netlink, names: Iterable[str]) -> tuple[SeenLink, ...]:
    """The links of these names that are there, with their addresses; other links cost nothing.

    `netlink` is strict from now on.
    """
    netlink.be_strict()
    links = [one.seen for name in names if (one := interface_named(netlink, name))]
    return tuple(
        replace(link, addresses=tuple(_addresses(netlink, link.index).get(link.index, ())))
        for link in links
    )


def _addresses(netlink: Netlink, index: int = 0) -> dict[int, list[tuple[Address, int]]]:
    """By index the addresses of every link, of one alone where the kernel can filter."""
    addresses: dict[int, list[tuple[Address, int]]] = {}
    for payload in netlink.ask(_GETADDR, _ADDRESS.pack(0, 0, 0, 0, index), dump=True):
        for at, address, length in decode_address(payload):
            addresses.setdefault(at, []).append((address, length))
    return addresses


def seen_routes(netlink: Netlink, links: Iterable[SeenLink]) -> tuple[SeenRoute, ...]:
    """The unicast routes of every table but the local one, over these links."""
    names = {link.index: link.name for link in links}
    payloads = netlink.ask(_GETROUTE, _ROUTE.pack(*[0] * 9), dump=True)
    return tuple(route for payload in payloads for route in decode_route(payload, names))


def seen_rules(netlink: Netlink) -> tuple[SeenRule, ...]:
    """The rules that send one address to a table."""
    payloads = netlink.ask(_GETRULE, _ROUTE.pack(*[0] * 9), dump=True)
    return tuple(rule for payload in payloads for rule in decode_rule(payload))


def decode_interface(payload: bytes) -> Interface:
    """One answer to GETLINK; Unavailable when it is malformed or has no name."""
    (_, hardware, index, flags, _), attributes = _split(_LINK, payload)
    if _IFNAME not in attributes:
        raise Unavailable(f"routing netlink: interface {index} has no name")
    info = _attributes(attributes.get(_LINKINFO, b""))
    on_pci = _text(attributes, _BUS) == "pci"
    link = SeenLink(
        name=InterfaceName(_text(attributes, _IFNAME)),
        index=index,
        mtu=_number(attributes, _MTU) or 0,
        mac=attributes.get(_MAC, b"").hex(":"),
        up=bool(flags & _UP),
        kind=_text(info, _INFO_KIND),
        parent=_number(attributes, _PARENT) or None,
        alias=_text(attributes, _ALIAS),
        pci=PciAddress(_text(attributes, _DEVICE)) if on_pci else None,
    )
    permanent = attributes.get(_PERMANENT, b"").hex(":")
    return Interface(link, hardware, _number(attributes, _GROUP) or 0, permanent)


def decode_address(payload: bytes) -> Iterator[tuple[int, Address, int]]:
    """Index, address and length of one answer to GETADDR; nothing for other families."""
    (family, length, _, _, index), attributes = _split(_ADDRESS, payload)
    # IFA_ADDRESS is the other end's on a point-to-point link, IFA_LOCAL is never.
    value = attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS, b""))
    if len(value) == _FAMILIES.get(family):
        yield index, ip_address(value), length


def decode_route(payload: bytes, names: Mapping[int, InterfaceName]) -> Iterator[SeenRoute]:
    """The route of one answer to GETROUTE, if it is one of those that seen_routes tells."""
    (family, length, _, _, small, _, _, kind, flags), attributes = _split(_ROUTE, payload)
    table = _number(attributes, _RTA_TABLE) or small
    name = names.get(_number(attributes, _RTA_OIF) or 0)
    if family not in _FAMILIES or kind != _UNICAST or table == _LOCAL or flags & _CLONED:
        return
    if name is None:
        return
    via = attributes.get(_RTA_GATEWAY)
    yield SeenRoute(
        name,
        _subnet(attributes.get(_RTA_DST, bytes(_FAMILIES[family])), length),
        _address(via) if via else None,
        None if table == _MAIN else table,
    )


def decode_rule(payload: bytes) -> Iterator[SeenRule]:
    """The rule of one answer to GETRULE, if it sends one address to a table."""
    (family, _, length, _, small, _, _, action, _), attributes = _split(_ROUTE, payload)
    source = attributes.get(_FRA_SRC, b"")
    if action != _TO_TABLE or len(source) != _FAMILIES.get(family) or length != 8 * len(source):
        return
    table = _number(attributes, _FRA_TABLE) or small
    yield SeenRule(_address(source), table, _number(attributes, _FRA_PRIORITY) or 0)


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


def _split(form: struct.Struct, payload: bytes) -> tuple[tuple[int, ...], _Attributes]:
    if len(payload) < form.size:
        raise Unavailable(f"routing netlink: {len(payload)} bytes where {form.size} belong")
    return form.unpack_from(payload), _attributes(payload[form.size :])


def _attributes(data: bytes) -> _Attributes:
    return values_by_type(data)


def _number(attributes: _Attributes, which: int) -> int | None:
    value = attributes.get(which)
    if value is None:
        return None
    if len(value) != _U32.size:
        raise Unavailable(f"routing netlink: attribute {which} has {len(value)} bytes")
    return int(_U32.unpack(value)[0])


def _text(attributes: _Attributes, which: int) -> str:
    return attributes.get(which, b"").rstrip(b"\0").decode(errors="replace")
