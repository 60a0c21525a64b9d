"""The node's bookings on disk, and the id that says that it is this journal and no other.

Every record is written in a thread of its own, so that an fsync holds up nobody but who waits for
it. What cannot be read stops everything: an address of a living pod may stand in it. While it is a
record of another version, what this one knows of can still be given back.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kube_base.errors import Broken
from kube_rdma.adapters.journal.disk import Disk
from kube_rdma.adapters.journal.format import ADDRESSES
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model.ipam import Booking, JournalId, JournalIdentity
from kube_rdma.programs.records import Records
from kube_rdma.rules.ipam.effects import Put, Remove

_IDENTITY = "journal@id"  # CNI allows no @ in a container's id
_THREADS = 4  # records that are on their way to the disk at a time


class Ledger:
    """The journal of one node's addresses; only `put` and `remove` are for the event loop."""

    def __init__(self, disk: Disk) -> None:
        """Read it. Raise Broken when a record cannot be read, Unavailable when the disk fails."""
        journal = Journal(disk, ADDRESSES)
        self._threads = ThreadPoolExecutor(_THREADS, "addresses")
        try:
            self._records = Records(journal, threads=self._threads)
            _refuse(self._records.broken)
            values = self._records.values
            self.bookings = tuple(value for value in values if isinstance(value, Booking))
            ids = [value.journal for value in values if isinstance(value, JournalIdentity)]
            self.journal = ids[0] if ids else self._founded(disk.path)
        except BaseException:
            journal.close()
            raise

    async def put(self, act: Put) -> None:
        """Carry out Put."""
        await self._records.put(act.booking.container, act.booking)

    async def remove(self, act: Remove) -> None:
        """Carry out Remove."""
        await self._records.remove(act.container)

    def close(self) -> None:
        """Let the next writer in, after what is on its way."""
        self._threads.shutdown()
        self._records.close()

    async def refuse_foreign(self) -> None:
        """Raise Unavailable while another version's record may have any address of this node."""
        await self._records.refuse_foreign(*self._records.foreign_names)

    def _founded(self, path: str) -> JournalId:
        """The id of a journal that begins here."""
        _refuse(self._records.foreign)  # the id may be in one of them
        if self.bookings:
            raise Broken(
                f"{path} has records of containers, but not the journal's own id, so it was "
                "removed: drain the node, empty the folder, restart the node"
            )
        made = JournalIdentity(JournalId(secrets.token_hex(16)))
        self._records.begin(_IDENTITY, made)
        return made.journal


def _refuse(faults: Sequence[Broken]) -> None:
    if faults:
        raise Broken(
            "the addresses of pods may stand in a record that cannot be read, so this node "
            f"gives none: drain the node first. {' '.join(map(str, faults))}"
        )
