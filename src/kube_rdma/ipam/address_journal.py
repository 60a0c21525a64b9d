"""The node's allocation records on disk, and the random id that tells this journal from any other.

A thread writes each record, so an fsync delays only the request that waits for it. A record that
cannot be read stops the node from giving addresses: it may hold the address of a living pod. If
another version wrote that record, the node can still release the addresses it knows of.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kube_base.errors import Broken
from kube_rdma.adapters.journal.disk import Disk
from kube_rdma.adapters.journal.format import ADDRESSES
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.ipam.rules.effects import Put, Remove
from kube_rdma.lib.records import Records
from kube_rdma.model.ipam import AllocationRecord, JournalId, JournalIdentity

_IDENTITY = "journal@id"  # CNI allows no @ in a container's id
_THREADS = 4  # records that are written at the same time


class AddressJournal:
    """The journal of one node's addresses; only `put` and `remove` are for the event loop."""

    def __init__(self, disk: Disk) -> None:
        """Read the journal; raise Broken for an unreadable record, Unavailable for the disk."""
        journal = Journal(disk, ADDRESSES)
        self._threads = ThreadPoolExecutor(_THREADS, "addresses")
        try:
            self._records = Records(journal, threads=self._threads)
            _refuse(self._records.broken)
            values = self._records.values
            self.records = tuple(value for value in values if isinstance(value, AllocationRecord))
            ids = [value.journal for value in values if isinstance(value, JournalIdentity)]
            self.journal = ids[0] if ids else self._create_id(disk.path)
        except BaseException:
            journal.close()
            raise

    async def put(self, effect: Put) -> None:
        """Carry out Put."""
        await self._records.put(effect.record.container, effect.record)

    async def remove(self, effect: Remove) -> None:
        """Carry out Remove."""
        await self._records.remove(effect.container)

    def close(self) -> None:
        """Finish the writes under way, then let the next writer in."""
        self._threads.shutdown()
        self._records.close()

    async def refuse_foreign(self) -> None:
        """Raise Unavailable while another version's record may have any address of this node."""
        await self._records.refuse_foreign(*self._records.foreign_names)

    def _create_id(self, path: str) -> JournalId:
        """Store and return the id of a journal that is new."""
        _refuse(self._records.foreign)  # the id may be in one of them
        if self.records:
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
