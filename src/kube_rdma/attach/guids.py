"""What one call keeps from all others while it goes on: its sandbox, GUIDs, addresses of claims.

Part of attach/attach. Calls for one sandbox come from several sides: the
runtime keeps order among its own, a meta-plugin's and the rounds of repair.py come besides, and a
DEL may come before its ADD has ended. Calls for several sandboxes may ask for one GUID: each has
found it free some time before there is a record that says whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from msgspec import Struct, field

from kube_rdma.model.attach.attachment import AttachmentKey, Sandbox
from kube_rdma.model.late_binding.binding import ContainerId


class _Turn(Struct, weakref=True):
    """`borrowing` is held by one of those for whom the turn is lent."""

    held: asyncio.Lock = field(default_factory=asyncio.Lock)
    borrowing: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_lent: bool = False


class SandboxLocks:
    """One call at a time changes a sandbox, through whichever door it came.

    Plugins of others that are run for a pod may come back for addresses (ipam_plugin.py): whoever
    runs them lends its turn meanwhile, or both would wait for each other.
    """

    def __init__(self) -> None:
        self._sandboxes: WeakValueDictionary[ContainerId, _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, container: ContainerId, *, within: bool = False) -> AsyncIterator[None]:
        """Hold a sandbox. `within`: it may be for its holder, so a turn that is lent will do."""
        turn = self._turn(container)
        async with turn.borrowing if within and turn.is_lent else turn.held:
            yield

    @asynccontextmanager
    async def lent(self, container: ContainerId) -> AsyncIterator[None]:
        """For the holder, while it runs others' plugins; what they began has ended afterwards."""
        turn = self._turn(container)
        turn.is_lent = True
        try:
            yield
        finally:
            turn.is_lent = False
            async with turn.borrowing:  # in the order in which they came
                pass

    def _turn(self, container: ContainerId) -> _Turn:
        turn = self._sandboxes.get(container)
        if turn is None:
            turn = self._sandboxes[container] = _Turn()
        return turn


class Reservations:
    """What is being given to interfaces that have no record yet, and to whom.

    GUIDs, and keys of what claims say (Placed.sole).
    """

    def __init__(self) -> None:
        self._claimed: dict[AttachmentKey, dict[str, str]] = {}  # who gets it

    def of_others(self, key: AttachmentKey) -> dict[str, str]:
        """What another ADD than this one is about to give, with whom it gives it."""
        claims = [claim for other, claim in self._claimed.items() if other != key]
        return {value: pod for claim in claims for value, pod in claim.items()}

    def claim(self, key: AttachmentKey, sandbox: Sandbox, values: Iterable[str]) -> None:
        """Keep these from all others until `release`."""
        if claim := dict.fromkeys(values, f"{sandbox.pod} is being given it"):
            self._claimed[key] = claim

    def release(self, key: AttachmentKey) -> None:
        """The ADD has ended, in whatever way: its record tells, or it has nothing."""
        self._claimed.pop(key, None)
