"""Yields what the kernel announces over netlink: uevents, changes of links and addresses.

The agent listens to both, for each is a reason to take a new Survey; hardware/kernel_events.py
decides which of them are about cards.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Generic, Self, TypeVar

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink import codec
from kube_rdma.adapters.kernel.netlink.codec import text, values_by_type

Event = TypeVar("Event")

_BUFFER = 1 << 16
_QUEUE = 1 << 20  # bytes; a card with many functions, or a hundred starting pods, come in one burst


class Listener(Generic[Event]):
    """A stream of netlink events.

    ``async with listener as events: async for event in events``. The socket listens from `async
    with` on, in the network namespace of that moment, so a Survey taken after it misses nothing.
    `decode` gets a datagram and the netlink port of its sender (0 is the kernel); `lost` is yielded
    when the kernel had to drop announcements.
    """

    def __init__(
        self, family: int, groups: int, decode: Callable[[bytes, int], Iterable[Event]], lost: Event
    ) -> None:
        self._family = family
        self._groups = groups
        self._decode = decode
        self._lost = lost
        self._socket: socket.socket | None = None
        self._waiting: deque[Event] = deque()

    async def __aenter__(self) -> Self:
        """Begin to listen; raise OSError when the kernel does not allow it."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        listener = socket.socket(socket.AF_NETLINK, kind, self._family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
            listener.bind((0, self._groups))
        except OSError:
            listener.close()
            raise
        self._socket = listener
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        assert self._socket, "listen with `async with` first"
        loop = asyncio.get_running_loop()
        while not self._waiting:
            try:
                data, (sender, _) = await loop.sock_recvfrom(self._socket, _BUFFER)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return self._lost
            self._waiting.extend(self._decode(data, sender))
        return self._waiting.popleft()


# Uevents: what changes in the tree of devices.

_NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
_KERNEL_GROUP = 1  # group 2 carries what udev sends on

# A group of vfio and a function in it come as two (drivers/vfio/group.c, vfio_main.c).
_VFIO = {"vfio", "vfio-dev"}
SUBSYSTEMS = frozenset({"infiniband", "infiniband_verbs", "infiniband_mad", "net", *_VFIO})
_RDMA_CM = "infiniband/rdma_cm"

LOST = "lost"  # not an action of the kernel: events were dropped, anything may have changed


class Uevent(Frozen):
    """A kernel event of a device: `action` is add, remove, change, move …, or LOST."""

    action: str
    subsystem: str = ""
    devpath: str = ""


def decode(datagram: bytes, sender: int) -> Uevent | None:
    """Return an event about RDMA, interfaces or vfio; None for other events and other senders.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return None
    _, *lines = datagram.decode(errors="replace").split("\0")
    properties = {key: value for key, is_, value in (x.partition("=") for x in lines) if is_}
    subsystem = properties.get("SUBSYSTEM", "")
    is_cm = subsystem == "misc" and properties.get("DEVNAME") == _RDMA_CM
    if "ACTION" not in properties or not (subsystem in SUBSYSTEMS or is_cm):
        return None
    return Uevent(properties["ACTION"], subsystem, properties.get("DEVPATH", ""))


class Uevents(Listener[Uevent]):
    """A Listener for kernel events of devices: ``async with Uevents() as uevents: async for …``."""

    def __init__(self) -> None:
        super().__init__(
            _NETLINK_KOBJECT_UEVENT,
            _KERNEL_GROUP,
            lambda datagram, sender: filter(None, [decode(datagram, sender)]),
            Uevent(LOST),
        )


# Routing netlink: what changes on interfaces and addresses.

_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_LINK_SIZE = 16  # of struct ifinfomsg
_IFNAME, _LINKINFO, _INFO_KIND = 3, 18, 1
_INDEX = struct.Struct("=4xI")  # the same place in struct ifinfomsg and struct ifaddrmsg


class News(StrEnum):
    """The subject of a routing netlink event.

    LOST means dropped events: anything may have changed.
    """

    LINK = "link"
    LINK_GONE = "link gone"
    ADDRESS = "address"
    ADDRESS_GONE = "address gone"
    LOST = "lost"


_TYPES = {16: News.LINK, 17: News.LINK_GONE, 20: News.ADDRESS, 21: News.ADDRESS_GONE}


class RtnlEvent(Frozen):
    """An event about the interface with this index; index 0 stands for no particular one.

    An event of a link has its name and kind (IFLA_INFO_KIND) too, where the kernel sends them.
    """

    news: News
    interface: int = 0
    name: str = ""
    kind: str = ""


def decode_link_event(datagram: bytes, sender: int) -> tuple[RtnlEvent, ...]:
    """Return the events of one datagram; LOST if it is malformed, none of other senders.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return ()
    try:
        messages = codec.decode(datagram)
    except Unavailable:
        return (RtnlEvent(News.LOST),)
    return tuple(
        _event(_TYPES[message.type], message.payload)
        for message in messages
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
    return RtnlEvent(news, interface, text(attributes, _IFNAME), text(info, _INFO_KIND))


class RtnlEvents(Listener[RtnlEvent]):
    """A Listener for events of interfaces: ``async with RtnlEvents() as events: async for …``."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE, _GROUPS, decode_link_event, RtnlEvent(News.LOST))
