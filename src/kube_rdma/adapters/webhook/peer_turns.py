"""Whose request is read now: few bodies of one peer are in memory at once, and few of all.

For server.py: whoever reaches the port may send, without a credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct


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
