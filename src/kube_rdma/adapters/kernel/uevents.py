"""What changes on the node, told by the kernel: the agent's reason to take a new Survey.

An event says that something happened, not what is true now: whoever receives one looks again. That
is why a lost event (the socket overflowed) is an event as well, and why nothing here is parsed
beyond what tells RDMA apart. Format: lib/kobject_uevent.c; nothing is polled.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
_KERNEL_GROUP = 1  # group 2 carries what udev sends on
_BUFFER = 1 << 16
_QUEUE = 1 << 20  # bytes; a card with its VFs announces hundreds of objects at once

_SUBSYSTEMS = frozenset({"infiniband", "infiniband_verbs", "infiniband_mad", "net"})
_RDMA_CM = "infiniband/rdma_cm"

LOST = "lost"  # our own action: events were dropped, anything may have changed


@dataclass(frozen=True, slots=True)
class Uevent:
    """One announcement: `action` is the kernel's word (add, remove, change, move …) or LOST."""

    action: str
    subsystem: str = ""
    devpath: str = ""
    properties: tuple[tuple[str, str], ...] = ()


def decode(datagram: bytes, sender: int) -> Uevent | None:
    """An event about RDMA or interfaces; None for any other, and for what the kernel did not send.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return None
    _, *lines = datagram.decode(errors="replace").split("\0")
    pairs = tuple((key, value) for key, is_, value in (x.partition("=") for x in lines) if is_)
    found = dict(pairs)
    subsystem = found.get("SUBSYSTEM", "")
    is_cm = subsystem == "misc" and found.get("DEVNAME") == _RDMA_CM
    if "ACTION" not in found or not (subsystem in _SUBSYSTEMS or is_cm):
        return None
    return Uevent(found["ACTION"], subsystem, found.get("DEVPATH", ""), pairs)


class Uevents:
    """The kernel's events, as they come: ``async with Uevents() as uevents: async for …``.

    The socket listens from `async with` on, so a Survey taken after it misses nothing.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    async def __aenter__(self) -> Self:
        """Raise OSError when the kernel does not let us listen."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        listener = socket.socket(socket.AF_NETLINK, kind, _NETLINK_KOBJECT_UEVENT)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
            listener.bind((0, _KERNEL_GROUP))
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

    async def __anext__(self) -> Uevent:
        assert self._socket, "listen with `async with` first"
        loop = asyncio.get_running_loop()
        while True:
            try:
                data, (sender, _) = await loop.sock_recvfrom(self._socket, _BUFFER)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return Uevent(LOST)
            event = decode(data, sender)
            if event is not None:
                return event


class FakeUevents:
    """The same door with events pushed by hand; it ends when `close` was called."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Uevent | None] = asyncio.Queue()

    def push(self, event: Uevent) -> None:
        """Announce `event`; ValueError for one that the real listener would never yield."""
        if event.action != LOST and event.subsystem not in _SUBSYSTEMS | {"misc"}:
            raise ValueError(f"the listener passes over subsystem {event.subsystem!r}")
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

    async def __anext__(self) -> Uevent:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return event
