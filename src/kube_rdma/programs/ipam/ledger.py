"""The node's bookings on disk, and the id that says that it is this journal and no other.

Every record is written in a thread of its own, so that an fsync holds up nobody but who waits for
it. What cannot be read stops everything: an address of a living pod may stand in it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kube_rdma.adapters.journal.disk import Disk
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model.errors import Broken
from kube_rdma.model.ip import Booking, JournalId
from kube_rdma.rules.ip_talk import Put, Remove

_IDENTITY = "journal@id"  # CNI allows no @ in a container's id
_THREADS = 4  # records that are on their way to the disk at a time


@dataclass(frozen=True, slots=True)
class Identity:
    """The record that is made with an empty journal and never changed."""

    journal: JournalId


class Ledger:
    """The journal of one node's addresses; only `put` and `remove` are for the event loop."""

    def __init__(self, disk: Disk) -> None:
        """Read it. Raise Broken when a record cannot be read, Unavailable when the disk fails."""
        self._journal: Journal[Booking | Identity] = Journal(
            disk, {"booking": Booking, "identity": Identity}
        )
        try:
            values = self._values()
            self.bookings = tuple(value for value in values if isinstance(value, Booking))
            found = [value.journal for value in values if isinstance(value, Identity)]
            self.journal = found[0] if found else self._founded(disk.path)
        except BaseException:
            self._journal.close()
            raise
        self._threads = ThreadPoolExecutor(_THREADS, "addresses")

    async def put(self, act: Put) -> None:
        """Carry out Put."""
        await self._do(lambda: self._journal.put(act.booking.container, act.booking))

    async def remove(self, act: Remove) -> None:
        """Carry out Remove."""
        await self._do(lambda: self._journal.remove(act.container))

    def close(self) -> None:
        """Let the next writer in, after what is on its way."""
        self._threads.shutdown()
        self._journal.close()

    def _values(self) -> list[Booking | Identity]:
        loaded = self._journal.load()
        if loaded.faults:
            raise Broken(
                "the addresses of pods may stand in a record that cannot be read, so this node "
                f"gives none: drain the node first. {' '.join(map(str, loaded.faults))}"
            )
        return [value for _, value in loaded.records]

    def _founded(self, path: str) -> JournalId:
        """The id of a journal that begins here."""
        if self.bookings:
            raise Broken(
                f"{path} has records of containers, but not the journal's own id, so somebody took "
                "it away: drain the node, empty the folder, restart the node"
            )
        made = Identity(JournalId(secrets.token_hex(16)))
        self._journal.put(_IDENTITY, made)
        return made.journal

    async def _do(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, work)
