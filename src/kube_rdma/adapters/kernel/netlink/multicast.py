"""Listening to a netlink multicast group: what the kernel announces, as it comes.

uevents.py and rtnl_events.py say what an announcement means; how one listens is the same for both
and stands here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Self, TypeVar

Event = TypeVar("Event")

_BUFFER = 1 << 16
_QUEUE = 1 << 20  # bytes; a card with many functions, or a hundred starting pods, come in one burst


class Listener(Generic[Event]):
    """``async with listener as events: async for event in events``.

    The socket listens from `async with` on, in the network namespace of that moment, so a Survey
    taken after it misses nothing. `decode` gets a datagram and the netlink port of its sender (0 is
    the kernel); `lost` is yielded when the kernel had to drop announcements.
    """

    def __init__(
        self,
        family: int,
        groups: int,
        decode: Callable[[bytes, int], Iterable[Event]],
        lost: Event,
    ) -> None:
        self._family = family
        self._groups = groups
        self._decode = decode
        self._lost = lost
        self._socket: socket.socket | None = None
        self._waiting: deque[Event] = deque()

    async def __aenter__(self) -> Self:
        """Raise OSError when the kernel does not allow to listen."""
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
