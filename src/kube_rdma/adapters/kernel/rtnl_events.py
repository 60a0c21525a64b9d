"""What changes on the node's interfaces and addresses, told by the kernel's routing netlink.

uevents.py tells which devices come and go. That a RoCE port went down, or that its GID table
changed, has no uevent: both follow the interface, and these events tell of it (a carrier is a
link's, a GID is an address's). An event says only that something happened, so whoever receives one
looks again. An InfiniBand port without IPoIB has no interface and is not heard here. Numbers:
include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from kube_rdma.adapters.kernel.netlink import decode as messages
from kube_rdma.model.errors import Unavailable

_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_BUFFER = 1 << 16
_QUEUE = 1 << 20  # bytes; a node that starts a hundred pods adds hundreds of links and addresses
_INDEX = struct.Struct("=4xI")  # the same place in struct ifinfomsg and struct ifaddrmsg


class News(StrEnum):
    """What an event is about; LOST: events were dropped, anything may have changed."""

    LINK = "link"
    LINK_GONE = "link gone"
    ADDRESS = "address"
    ADDRESS_GONE = "address gone"
    LOST = "lost"


_TYPES = {16: News.LINK, 17: News.LINK_GONE, 20: News.ADDRESS, 21: News.ADDRESS_GONE}


@dataclass(frozen=True, slots=True)
class RtnlEvent:
    """One announcement about the interface with this index (0: about none in particular)."""

    news: News
    interface: int = 0


def decode(datagram: bytes, sender: int) -> tuple[RtnlEvent, ...]:
    """The events of one datagram; none for what the kernel did not send or nobody can read.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return ()
    try:
        found = messages(datagram)
    except Unavailable:
        return (RtnlEvent(News.LOST),)
    return tuple(
        RtnlEvent(_TYPES[message.type], _INDEX.unpack_from(message.payload)[0])
        for message in found
        if message.type in _TYPES and len(message.payload) >= _INDEX.size
    )


class RtnlEvents:
    """The kernel's events, as they come: ``async with RtnlEvents() as events: async for …``.

    The socket listens from `async with` on, in the network namespace of that moment.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._waiting: list[RtnlEvent] = []

    async def __aenter__(self) -> Self:
        """Raise OSError when the kernel does not let us listen."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        listener = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
            listener.bind((0, _GROUPS))
        except OSError:
            listener.close()
            raise
        self._socket = listener
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RtnlEvent:
        assert self._socket, "listen with `async with` first"
        loop = asyncio.get_running_loop()
        while not self._waiting:
            try:
                data, (sender, _) = await loop.sock_recvfrom(self._socket, _BUFFER)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return RtnlEvent(News.LOST)
            self._waiting.extend(decode(data, sender))
        return self._waiting.pop(0)


class FakeRtnlEvents:
    """The same door with events pushed by hand; it ends when `close` was called."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[RtnlEvent | None] = asyncio.Queue()

    def push(self, event: RtnlEvent) -> None:
        """Announce `event`; ValueError for one that the kernel never sends."""
        if event.news is not News.LOST and event.interface < 1:
            raise ValueError("the kernel counts interfaces from 1")
        self._queue.put_nowait(event)

    def close(self) -> None:
        """End the stream after what was pushed so far."""
        self._queue.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RtnlEvent:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return event
