"""The records of one journal as a program has them: in memory, read once, written through.

A record that this version of kube-rdma does not understand stays on disk and is logged. What needs
it is refused until it can be read again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar, TypeVarTuple

import structlog

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.journal import Journal

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


def in_the_log(_: str) -> None:
    """Ignore a fault: the log has it already, and the program reports it nowhere else."""


class Records(Generic[T]):
    """The records of one journal, in memory and on disk.

    Calls for different records may overlap. `threads` wait for the disk; None: the event loop's.
    """

    def __init__(
        self,
        journal: Journal[T],
        tell: Callable[[str], None] = in_the_log,
        read: Callable[[str, T], T] = lambda _, value: value,
        threads: Executor | None = None,
        outlives: Callable[[T], bool] | None = None,
    ) -> None:
        """Do Journal.load, which blocks; raise Unavailable if its folder cannot be listed.

        `tell` gets a sentence for each record that cannot be read. `read` makes the value of a
        record, given its name. `outlives` decides whether a record is about what a power failure
        leaves, and so has to be on disk; None: each is.
        """
        self._journal = journal
        self._threads = threads
        self._outlives = outlives or (lambda _: True)
        loaded = journal.load(torn=outlives is not None)
        self._values = {name: read(name, value) for name, value in loaded.records}
        self._left: set[str] = set()  # what is over, and lies on the disk all the same
        self._ending = asyncio.Lock()  # while that is removed
        self._removing = threading.Lock()  # the same for threads
        self.broken, self.foreign = loaded.broken, loaded.foreign
        for fault in loaded.faults:
            log.error("journal record not understood", why=str(fault))
            tell(str(fault))
        for path in loaded.torn:
            log.info("torn journal record removed", path=path)

    @property
    def values(self) -> tuple[T, ...]:
        """Return the values of all records."""
        return tuple(self._values.values())

    @property
    def named(self) -> tuple[tuple[str, T], ...]:
        """Return name and value of each record."""
        return tuple(self._values.items())

    @property
    def foreign_names(self) -> frozenset[str]:
        """Return the names of records that this version does not understand."""
        return self._journal.foreign

    def get(self, name: str) -> T | None:
        """Return the value of the record of this name, None without one."""
        return self._values.get(name)

    async def refuse_foreign(self, *names: str) -> None:
        """Raise Unavailable if a record of one of these names was written by another version."""
        if not self.foreign_names.isdisjoint(names):
            await self._run(self._journal.refuse_foreign, *names)

    async def put(self, name: str, value: T) -> None:
        """Write a record, durably: it has the new value once it is on disk.

        Raise Unavailable if the disk fails or another version wrote a record of this name.
        """
        await self.put_before(name, value, lambda: None)

    async def put_before(self, name: str, value: T, act: Callable[[], R]) -> R:
        """Write a record and then call `act`, which needs it on disk; return what `act` returns.

        Both are done in one thread. The record stays if `act` raises. Raise Unavailable as `put`
        does.
        """

        def put() -> R:
            self._journal.put(name, value)
            self._values[name] = value
            return act()

        await self._take(name)
        answer = await self._run(put)
        await self._end_left()
        return answer

    def begin(self, name: str, value: T) -> None:
        """Write a record from a thread; it has the new value at once.

        Raise Unavailable if the disk fails or another version wrote a record of this name. A disk
        that fails may have the record all the same, so whoever gives up has to remove it.
        """
        self._journal.refuse_foreign(name)
        with self._removing:
            self._left.discard(name)
        self._values[name] = value
        self._journal.put(name, value, sync=self._outlives(value))

    async def rename(self, old: str, new: str, value: T) -> None:
        """Give a record another name and value.

        Only the name is written: `value` has to be what is read of the record under that name.
        Raise Unavailable if the disk fails, the record is missing, or another version wrote it.
        """
        await self._take(new)
        await self._run(partial(self._journal.rename, old, new, sync=self._outlives(value)))
        del self._values[old]
        self._values[new] = value
        await self._end_left()

    async def remove(self, *names: str) -> None:
        """Remove records; a missing one is no error.

        Raise Unavailable if the disk fails or another version wrote one of them.
        """
        gone = (self._values[name] for name in names if name in self._values)
        await self._run(partial(self._journal.remove, *names, sync=any(map(self._outlives, gone))))
        for name in names:
            self._values.pop(name, None)
        self._left.difference_update(names)
        await self._end_left()

    async def forget(self, *names: str) -> None:
        """Remove records that are not needed any more, even if the disk fails.

        A record that a full or read-only disk keeps is removed after a later put, rename or remove;
        else the next process finds it. Raise Unavailable for a record of another version.
        """
        await self.refuse_foreign(*names)
        try:
            await self.remove(*names)
        except Unavailable as error:
            log.warning("journal record left", why=str(error))
            for name in names:
                self._values.pop(name, None)
            self._left.update(names)

    async def _take(self, name: str) -> None:
        """Reserve a name for a new record, so that removing leftovers does not remove this one."""
        self._left.discard(name)
        if self._ending.locked():
            async with self._ending:
                pass

    async def _end_left(self) -> None:
        """Remove the records that a failing disk had kept, now that it takes writes again."""
        if not self._left or self._ending.locked():
            return

        def remove() -> None:
            with self._removing:
                left = tuple(self._left)
                self._journal.remove(*left)
                self._left.difference_update(left)

        async with self._ending:
            with suppress(Unavailable):
                await self._run(remove)

    def close(self) -> None:
        """Release the journal, so that the next process can open it."""
        self._journal.close()

    async def _run(self, work: Callable[[*Ts], R], *args: *Ts) -> R:
        if self._threads is None:
            return await asyncio.to_thread(work, *args)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
