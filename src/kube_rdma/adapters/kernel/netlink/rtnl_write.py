"""Encodes Steps, and what undoes them, as requests to routing netlink.

pod/links.py sends them. Numbers come from include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h,
fib_rules.h and netlink.h. net/core/rtnetlink.c (rtnl_newlink, do_setlink) and
net/core/fib_rules.c carry them out.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from socket import AF_INET, AF_INET6

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink.codec import Attribute, Netlink, encode_attributes
from kube_rdma.model.attach import steps
from kube_rdma.model.ipam import Address, InterfaceName

_NEWLINK, _DELLINK, _SETLINK, _NEWADDR, _NEWROUTE, _NEWRULE, _DELRULE = 16, 17, 19, 20, 24, 32, 33
_DELLINKPROP = 109
_REPLACE, _EXCL, _CREATE = 0x100, 0x200, 0x400  # NLM_F_*

_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, length, flags, scope, index
_ROUTE = struct.Struct("=8BI")  # struct rtmsg
_RULE = struct.Struct("=8BI")  # struct fib_rule_hdr
_U16, _U32 = struct.Struct("=H"), struct.Struct("=I")

_IFLA_ADDRESS, _IFNAME, _MTU, _PARENT, _LINKINFO = 1, 3, 4, 5, 18
_ALIAS, _GROUP, _NET_NS_FD, _PROPERTIES, _ALTERNATIVE_NAME = 20, 27, 28, 52, 53
_NESTED = 0x8000  # NLA_F_NESTED, without which the kernel takes no property
_INFO_KIND, _INFO_DATA = 1, 2
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFSRC, _RTA_TABLE = 1, 4, 5, 6, 7, 15
_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE = 2, 6, 15
_UP = 0x1  # IFF_UP
_NODAD = 0x02  # IFA_F_NODAD
_MAIN, _STATIC, _UNICAST = 254, 4, 1  # RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST
_UNIVERSE, _ON_LINK = 0, 253  # RT_SCOPE_UNIVERSE, RT_SCOPE_LINK
_GATEWAY_HERE = 4  # RTNH_F_ONLINK
_TO_TABLE = 1  # FR_ACT_TO_TBL

GROUP = 0x6B72
"""The group (IFLA_GROUP) that a link of kube-rdma is made with.

A new link cannot be given an alias (rtnl_create_link knows none). By the group, a link whose maker
died before it set the alias is still known as kube-rdma's.
"""

_MODES: Mapping[steps.VirtualKind, Mapping[str, int]] = {
    steps.VirtualKind.MACVLAN: {"bridge": 4, "private": 1, "vepa": 2, "passthru": 8},
    steps.VirtualKind.IPVLAN: {"l2": 0, "l3": 1, "l3s": 2},
    steps.VirtualKind.IPOIB: {"datagram": 0, "connected": 1},
}
"""MACVLAN_MODE_*, IPVLAN_MODE_* and IPOIB_MODE_* by kind; the first of a kind is the default."""


def interim_name(mark: steps.Mark) -> InterfaceName:
    """Return the temporary name of a link with this mark, used until it can have its own."""
    return InterfaceName(f"kr{hashlib.blake2b(mark.encode(), digest_size=6).hexdigest()}")


class NetlinkRequest(Frozen):
    """One request for Netlink.ask: kind of message, its flags, the payload behind the header."""

    kind: int
    flags: int
    body: bytes


def send(netlink: Netlink, request: NetlinkRequest) -> None:
    """Send a request; raise Unavailable as Netlink.ask does."""
    netlink.ask(request.kind, request.body, more=request.flags)


def make_link(step: steps.MakeLink, pod: int) -> NetlinkRequest:
    """Return the request, for the socket of the parent's namespace, that makes a link in `pod`.

    Raise Refused for a mode that the kind does not have.
    """
    attributes = [_text(_IFNAME, step.name), _u32(_PARENT, step.parent.index), _u32(_GROUP, GROUP)]
    attributes += _wanted(step.mtu, step.mac)
    info = [_text(_INFO_KIND, step.kind), Attribute(_INFO_DATA, encode_attributes(_data(step)))]
    attributes += [Attribute(_LINKINFO, encode_attributes(info)), _u32(_NET_NS_FD, pod)]
    return _link(_NEWLINK, 0, attributes, flags=_CREATE | _EXCL)


def mark_link(step: steps.MakeLink) -> NetlinkRequest:
    """Return the request, for the pod's socket, that sets the alias, which make_link cannot set."""
    return _link(_SETLINK, 0, [_text(_IFNAME, step.name), Attribute(_ALIAS, step.mark.encode())])


def take_link(step: steps.TakeLink, index: int, pod: int) -> NetlinkRequest:
    """Return the request, for the node's socket, that moves a link into `pod` and renames it.

    The kernel takes the link down first.
    """
    return _link(_SETLINK, index, [_u32(_NET_NS_FD, pod), _text(_IFNAME, step.name)])


def rename_link(index: int, name: str) -> NetlinkRequest:
    """Return the request, for the socket of the link's namespace, that renames a link.

    The link must be down before Linux 6.2.
    """
    return _link(_SETLINK, index, [_text(_IFNAME, name)])


def remove_alternative_name(index: int, name: str) -> NetlinkRequest:
    """Return the request, for the socket of the link's namespace, that removes an alternative name.

    The kernel answers ENOENT if the link has no such name.
    """
    properties = encode_attributes([_text(_ALTERNATIVE_NAME, name)])
    return _link(_DELLINKPROP, index, [Attribute(_PROPERTIES | _NESTED, properties)])


def set_link(step: steps.SetLink) -> NetlinkRequest:
    """Return the request, for the pod's socket, that sets MAC and MTU, then brings the link up."""
    attributes = [_text(_IFNAME, step.name), *_wanted(step.mtu, step.mac)]
    return _link(_SETLINK, 0, attributes, state=_UP, change=_UP)


def remove_link(index: int) -> NetlinkRequest:
    """Return the request, for the socket of the link's namespace, that removes a link."""
    return _link(_DELLINK, index, [])


def remove_group() -> NetlinkRequest:
    """Return the request, for the pod's socket, that removes every link of GROUP at once.

    The kernel answers ENODEV if there is none.
    """
    return _link(_DELLINK, 0, [_u32(_GROUP, GROUP)])


def send_home(undo: steps.GiveBackLink, index: int, host: int) -> NetlinkRequest:
    """Return the request, for the pod's socket, that moves a link to `host` under its old name."""
    return _link(_SETLINK, index, [_u32(_NET_NS_FD, host), _text(_IFNAME, undo.link.name)])


def set_down(index: int) -> NetlinkRequest:
    """Return the request, for the socket of the link's namespace, that takes a link down."""
    return _link(_SETLINK, index, [], change=_UP)


def restore_link(index: int, mtu: int | None, mac: str | None, *, up: bool) -> NetlinkRequest:
    """Return the request, for the socket of the link's namespace, that sets MTU, MAC and state.

    None leaves the value that is there.
    """
    return _link(_SETLINK, index, _wanted(mtu, mac), state=_UP if up else 0, change=_UP)


def add_address(step: steps.AddAddress, index: int) -> NetlinkRequest:
    """Return the request that adds an address to a link; the same address again changes nothing."""
    value = step.address.packed
    attributes = [Attribute(_IFA_LOCAL, value), Attribute(_IFA_ADDRESS, value)]
    if step.address.version == 4 and step.prefix < 31:
        broadcast = int(step.address) | (1 << 32 - step.prefix) - 1
        attributes.append(Attribute(_IFA_BROADCAST, broadcast.to_bytes(4, "big")))
    flags = _NODAD if step.address.version == 6 else 0
    head = _ADDRESS.pack(_family(step.address), step.prefix, flags, _UNIVERSE, index)
    return NetlinkRequest(_NEWADDR, _CREATE | _REPLACE, head + encode_attributes(attributes))


def add_route(step: steps.AddRoute, index: int) -> NetlinkRequest:
    """Return the request that adds a route, or replaces one of equal destination, table, metric."""
    attributes = [Attribute(_RTA_DST, step.to.network_address.packed)] if step.to.prefixlen else []
    attributes.append(_u32(_RTA_OIF, index))
    attributes += [Attribute(_RTA_GATEWAY, step.via.packed)] if step.via else []
    attributes += [Attribute(_RTA_PREFSRC, step.source.packed)] if step.source else []
    attributes += [_u32(_RTA_PRIORITY, step.metric)] if step.metric else []
    attributes.append(_u32(_RTA_TABLE, step.table or _MAIN))
    scope = _UNIVERSE if step.via or step.to.version == 6 else _ON_LINK
    family = _family(step.to.network_address)
    flags = _GATEWAY_HERE if step.onlink else 0
    head = _ROUTE.pack(family, step.to.prefixlen, 0, 0, 0, _STATIC, scope, _UNICAST, flags)
    return NetlinkRequest(_NEWROUTE, _CREATE | _REPLACE, head + encode_attributes(attributes))


def add_rule(step: steps.AddRule) -> NetlinkRequest:
    """Return the request that adds a rule; the kernel answers EEXIST if just this rule is there."""
    return NetlinkRequest(_NEWRULE, _CREATE | _EXCL, _rule(step))


def remove_rule(undo: steps.RemoveRule) -> NetlinkRequest:
    """Return the request that removes a rule; the kernel answers ENOENT if it is not there."""
    return NetlinkRequest(_DELRULE, 0, _rule(undo))


def _rule(rule: steps.AddRule | steps.RemoveRule) -> bytes:
    length = rule.source.max_prefixlen
    head = _RULE.pack(_family(rule.source), 0, length, 0, 0, 0, 0, _TO_TABLE, 0)
    attributes = [Attribute(_FRA_SRC, rule.source.packed)]
    attributes += [_u32(_FRA_PRIORITY, rule.priority), _u32(_FRA_TABLE, rule.table)]
    return head + encode_attributes(attributes)


def _link(
    kind: int,
    index: int,
    attributes: list[Attribute],
    *,
    flags: int = 0,
    state: int = 0,
    change: int = 0,
) -> NetlinkRequest:
    head = _LINK.pack(0, 0, index, state, change)
    return NetlinkRequest(kind, flags, head + encode_attributes(attributes))


def _data(step: steps.MakeLink) -> list[Attribute]:
    """Return the attributes of a link's kind (IFLA_INFO_DATA); raise Refused for a bad mode.

    They are IFLA_MACVLAN_MODE, IFLA_IPVLAN_MODE or IFLA_IPOIB_*.
    """
    modes = _MODES[step.kind]
    if step.mode and step.mode not in modes:
        raise Refused(
            f"{step.kind} has no mode {step.mode}", remedy=f"Choose one of {', '.join(modes)}"
        )
    mode = modes[step.mode or next(iter(modes))]
    if step.kind is steps.VirtualKind.MACVLAN:
        return [_u32(1, mode)]
    if step.kind is steps.VirtualKind.IPVLAN:
        return [Attribute(1, _U16.pack(mode))]
    pkey = [] if step.pkey is None else [Attribute(1, _U16.pack(step.pkey))]
    return [*pkey, Attribute(2, _U16.pack(mode))]


def _wanted(mtu: int | None, mac: str | None) -> list[Attribute]:
    attributes = [] if mtu is None else [_u32(_MTU, mtu)]
    return attributes if mac is None else [*attributes, Attribute(_IFLA_ADDRESS, mac_bytes(mac))]


def mac_bytes(mac: str) -> bytes:
    """Return the bytes of a MAC such as ``02:00:00:00:00:01``; raise Refused if it is no hex."""
    try:
        return bytes.fromhex(mac.replace(":", ""))
    except ValueError as error:
        raise Refused(f"{mac!r} is not a MAC", remedy="Write one like 02:00:00:00:00:01") from error


def by_name(name: InterfaceName | str) -> bytes:
    """Return the body of a request about the link of this name."""
    return _LINK.pack(0, 0, 0, 0, 0) + encode_attributes([_text(_IFNAME, name)])


def _family(address: Address) -> int:
    return AF_INET if address.version == 4 else AF_INET6


def _u32(which: int, value: int) -> Attribute:
    return Attribute(which, _U32.pack(value))


def _text(which: int, value: str) -> Attribute:
    return Attribute(which, value.encode() + b"\0")
