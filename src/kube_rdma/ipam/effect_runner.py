"""Carries out the effects of operations in ipam/rules/agent and ipam/rules/reclaim.

The rules rely on this: a read of the API server that fails throws Unavailable into its operation.
A garbled block reads as None. An operation sees no error of a write to the API server: everything
but a plain success is None. The client closes the connection to a server that is silent
(kube_client/silence). The outcome of such a write is unknown, which is None too.

The journal and the clock that the runner needs are here too.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_rdma.adapters.journal.codec import ADDRESSES
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.ipam.cluster import IpamObjects
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.effects import Effect, Effects, Put, Remove
from kube_rdma.lib.records import Records
from kube_rdma.model import ipam

_IDENTITY = "journal@id"  # CNI allows no @ in a container's id
_THREADS = 4  # records that are written at the same time
_SPREAD = 0.1  # seconds over which operations that wait for the same change go on: they would race


class AddressJournal:
    """The journal of the addresses of one node.

    Only `put`, `remove` and `refuse_foreign` are for the event loop; the other methods block.
    """

    def __init__(self, disk: Folder) -> None:
        """Open the journal; raise Broken if it cannot be relied on, Unavailable on disk failure.

        An empty one gets an id. One with an unreadable record, or with records and without an id,
        is not reliable.
        """
        journal = Journal(disk, ADDRESSES)
        self._threads = ThreadPoolExecutor(_THREADS, "addresses")
        try:
            self._records = Records(journal, threads=self._threads)
            _refuse(self._records.broken)
            values = self._records.values
            records = (value for value in values if isinstance(value, ipam.AllocationRecord))
            self.records = tuple(records)
            ids = [value.journal for value in values if isinstance(value, ipam.JournalIdentity)]
            self.journal = ids[0] if ids else self._create_id(disk.path)
        except BaseException:
            journal.close()
            raise

    async def put(self, effect: Put) -> None:
        """Write a container's addresses into the journal, durably.

        Raise Unavailable if the disk fails, or another version of kube-rdma wrote the old record.
        """
        await self._records.put(effect.record.container, effect.record)

    async def remove(self, effect: Remove) -> None:
        """Remove a container's record from the journal, durably.

        Raise Unavailable if the disk fails, or another version of kube-rdma wrote the record.
        """
        await self._records.remove(effect.container)

    def close(self) -> None:
        """Finish writes that have begun, then release the journal to the next process."""
        self._threads.shutdown()
        self._records.close()

    async def refuse_foreign(self) -> None:
        """Raise Unavailable if the journal has records that this version does not understand.

        Any address of this node may be in such a record.
        """
        await self._records.refuse_foreign(*self._records.foreign_names)

    def _create_id(self, path: str) -> ipam.JournalId:
        """Create, store and return the id of a new journal; raise Broken if it has records."""
        _refuse(self._records.foreign)  # the id may be in one of them
        if self.records:
            raise Broken(
                f"{path} has records of containers, but not the journal's own id, so it was "
                "removed: drain the node, empty the folder, restart the node"
            )
        made = ipam.JournalIdentity(ipam.JournalId(secrets.token_hex(16)))
        self._records.begin(_IDENTITY, made)
        return made.journal


def _refuse(faults: Sequence[Broken]) -> None:
    if faults:
        raise Broken(
            "the addresses of pods may stand in a record that cannot be read, so this node "
            f"gives none: drain the node first. {' '.join(map(str, faults))}"
        )


def boot_time() -> float:
    """Return the seconds of CLOCK_BOOTTIME, which also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class IpamTiming(Frozen):
    """The intervals of IPAM, in seconds, with its clock."""

    agreed: ipam.Timing = field(default_factory=ipam.Timing)  # the same for nodes and controller
    clock: Callable[[], float] = boot_time
    tick: float = 1.0  # until the next round of a node's upkeep, while work is left
    # The longest pause of an idle node between two looks at `clock`: timers of the process stop
    # while the machine is suspended.
    longest: float = 200.0
    gc_interval: float = 5.0  # from the end of one round of the controller to the next
    pause: Callable[[int], float] = full_jitter  # after so many failures, counted from 0


Handler = Callable[[Any], Awaitable[object]]
T = TypeVar("T")

log = structlog.get_logger()


class EffectRunner:
    """The runner of the IPAM operations of one node or controller.

    `own` are handlers of effects that IpamObjects does not serve. `refusal` is the API server's
    last refusal to write a block; None since the last block that was written.
    """

    def __init__(
        self,
        objects: IpamObjects,
        timing: IpamTiming,
        own: Mapping[type[Effect], Handler] | None = None,
    ) -> None:
        self.refusal: Refused | None = None
        self._objects = objects
        self._timing = timing
        self._news = asyncio.Event()
        self._handlers: dict[type[Effect], Handler] = {
            effects.Clock: self._clock,
            effects.Pause: self._wait,
            effects.ReadBlock: lambda effect: self._read(self._block(effect.key)),
            effects.ListPinned: lambda effect: self._read(objects.pinned(effect.owner)),
            effects.ReadLease: lambda effect: self._read(objects.lease(effect.node)),
            effects.ReadBorrowQueue: lambda effect: self._read(objects.borrow_queue(effect.pool)),
            effects.WriteBlock: self._write_block,
            effects.WriteLease: lambda effect: self._write(objects.write_lease(effect.lease)),
            effects.WriteBorrowQueue: lambda effect: self._write(
                objects.write_borrow_queue(effect.queue)
            ),
            effects.DropBlock: lambda effect: self._write(objects.drop_block(effect.block)),
            effects.DropLease: lambda effect: self._write(objects.drop_lease(effect.lease)),
            **(own or {}),
        }

    async def run(self, operation: Effects[T]) -> T:
        """Run an operation: carry out each effect it yields, send it the answer, return its result.

        A KubeError of an effect is raised inside the operation; errors of the operation come out.
        """
        try:
            effect = next(operation)
            while True:
                try:
                    answer = await self._handlers[type(effect)](effect)
                except KubeError as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    def wake(self) -> None:
        """Wake the paused operations, for something that they may wait for has changed."""
        self._news.set()
        self._news = asyncio.Event()

    async def _clock(self, _: effects.Clock) -> float:
        return self._timing.clock()

    async def _wait(self, effect: effects.Pause) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(effect.seconds):
                await self._news.wait()
                await asyncio.sleep(random.uniform(0, _SPREAD))  # noqa: S311  spreads load

    async def _read(self, reading: Awaitable[T]) -> T:
        try:
            return await reading
        except KubeError as error:
            raise Unavailable(str(error)) from error

    async def _block(self, key: ipam.BlockKey) -> ipam.Block | None:
        """Return a block; None where it is missing or garbled, or the API server refuses the read.

        An error would stop the operation for all other blocks until a person repairs this one. To
        create a block that exists fails, so the node's holding in it stays uncertain.
        """
        try:
            return await self._objects.block(key)
        except (Refused, Broken) as error:
            log.debug("block not understood", why=str(error))
            return None

    async def _write(self, writing: Awaitable[T]) -> T | None:
        try:
            return await self._attempt(writing)
        except Refused as error:
            log.warning("write rejected", why=str(error))
            return None

    async def _write_block(self, effect: effects.WriteBlock) -> object:
        try:
            written = await self._attempt(self._objects.write_block(effect.block))
        except Refused as error:
            self.refusal = error
            return None
        if written:
            self.refusal = None
        return written

    async def _attempt(self, writing: Awaitable[T]) -> T | None:
        """Return the result of a write; None for any KubeError but Refused, which is raised."""
        try:
            return await writing
        except Refused:
            raise
        except KubeError:
            return None
