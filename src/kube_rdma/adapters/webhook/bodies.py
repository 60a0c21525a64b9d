"""What the body of one request may cost, and who may send one now.

For server.py. Whoever reaches the port may send, without a credential, so nothing here grows with
what comes but the bytes of the body: they are copied once, in a bounded number of pieces, and few
bodies of one peer are in memory at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

MOST_PIECES = 4096  # the largest body in packets of 1 KiB; each costs as much as many bytes


class Body:
    """The bytes that have come so far, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most, self._pieces = most, 0
        self._content = bytearray()

    def take(self, piece: bytes | bytearray) -> bool:
        """Append a piece; False, and nothing is kept any more, when that is too much."""
        self._pieces += 1
        if self._pieces > MOST_PIECES or len(self._content) + len(piece) > self._most:
            self._content.clear()
            return False
        self._content += piece
        return True

    def whole(self) -> bytes:
        """All that came."""
        return bytes(self._content)


class _Peer(Struct):
    gate: asyncio.Semaphore
    users: int = 0


class PeerTurns:
    """`of_one` peer's bodies at once, `of_all` together; the others wait."""

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one, self._all = of_one, asyncio.Semaphore(of_all)
        self._peers: dict[str, _Peer] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the scope is open."""
        peer = self._peers.setdefault(address, _Peer(asyncio.Semaphore(self._of_one)))
        peer.users += 1
        try:
            async with peer.gate, self._all:
                yield
        finally:
            peer.users -= 1
            if not peer.users:
                del self._peers[address]
