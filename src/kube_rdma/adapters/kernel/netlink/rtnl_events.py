"""What changes on the node's interfaces and addresses, told by the kernel's routing netlink.

uevents.py tells which devices come and go. That a RoCE port went down, or that its GID table
changed, has no uevent: both follow the interface, and these events tell of it (a carrier is a
link's, a GID is an address's). An event says only that something happened, so whoever receives one
looks again. An InfiniBand port without IPoIB has no interface and is not heard here. Numbers:
include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from enum import StrEnum

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink.codec import decode as messages
from kube_rdma.adapters.kernel.netlink.codec import values_by_type
from kube_rdma.adapters.kernel.netlink.multicast import Listener

_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_LINK_SIZE = 16  # of struct ifinfomsg
_IFNAME, _LINKINFO, _INFO_KIND = 3, 18, 1
_INDEX = struct.Struct("=4xI")  # the same place in struct ifinfomsg and struct ifaddrmsg


class News(StrEnum):
    """What an event is about; LOST: events were dropped, anything may have changed."""

    LINK = "link"
    LINK_GONE = "link gone"
    ADDRESS = "address"
    ADDRESS_GONE = "address gone"
    LOST = "lost"


_TYPES = {16: News.LINK, 17: News.LINK_GONE, 20: News.ADDRESS, 21: News.ADDRESS_GONE}


class RtnlEvent(Frozen):
    """One announcement about the interface with this index (0: about none in particular).

    Of a link also its name and kind (IFLA_INFO_KIND), as far as they are told.
    """

    news: News
    interface: int = 0
    name: str = ""
    kind: str = ""


def decode(datagram: bytes, sender: int) -> tuple[RtnlEvent, ...]:
    """The events of one datagram; none for what the kernel did not send or nobody can read.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return ()
    try:
        netlink_messages = messages(datagram)
    except Unavailable:
        return (RtnlEvent(News.LOST),)
    return tuple(
        _event(_TYPES[message.type], message.payload)
        for message in netlink_messages
        if message.type in _TYPES and len(message.payload) >= _INDEX.size
    )


def _event(news: News, payload: bytes) -> RtnlEvent:
    (interface,) = _INDEX.unpack_from(payload)
    if news not in (News.LINK, News.LINK_GONE):
        return RtnlEvent(news, interface)
    try:
        attributes = values_by_type(payload[_LINK_SIZE:])
        info = values_by_type(attributes.get(_LINKINFO, b""))
    except Unavailable:
        return RtnlEvent(news, interface)
    return RtnlEvent(news, interface, _text(attributes, _IFNAME), _text(info, _INFO_KIND))


def _text(attributes: Mapping[int, bytes], which: int) -> str:
    return attributes.get(which, b"").rstrip(b"\0").decode(errors="replace")


class RtnlEvents(Listener[RtnlEvent]):
    """The kernel's events, as they come: ``async with RtnlEvents() as events: async for …``."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE, _GROUPS, decode, RtnlEvent(News.LOST))
