"""A fake disk that tears unsynced files, and a wrapper that makes any disk fail at a step.

With FakeDisk a Journal lives in memory. At its crash a name that was not synced may be there or
not, and a file that was never synced is torn. What is written to a file after a sync stays.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kube_rdma.adapters.journal.disk import Folder

R = TypeVar("R")


class Killed(BaseException):
    """The simulated death of the process at a step, which no handler of errors catches."""


@dataclass(eq=False)
class _File:
    content: bytes = b""
    synced: bytes | None = None  # None: a crash tears the content


@dataclass
class FakeDisk:
    """A fake folder in memory, which can hold `capacity` bytes in all its files.

    While it is `read_only`, creating, renaming and removing a file raise OSError (EROFS).
    """

    capacity: int | None = None
    read_only: bool = False
    path: str = "journal"
    _history: list[dict[str, _File]] = field(default_factory=lambda: [{}])  # since the last sync
    _open: dict[int, _File] = field(default_factory=dict)
    _handles: int = 0

    @property
    def _names(self) -> dict[str, _File]:
        return self._history[-1]

    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted."""
        return tuple(sorted(self._names))

    def read(self, name: str) -> bytes:
        """Return the content of a file; raise FileNotFoundError if there is none."""
        return self._entry(name).content

    def create(self, name: str) -> int:
        """Open a file for writing and return its handle; empty it if it exists, as O_TRUNC does."""
        self._writable()
        file = self._names.get(name) or _File()
        file.content, file.synced = b"", None
        self._change({**self._names, name: file})
        self._handles += 1
        self._open[self._handles] = file
        return self._handles

    def write(self, handle: int, content: bytes) -> None:
        """Write as much as there is room for; raise OSError (ENOSPC) if that is not all."""
        file = self._open[handle]
        used = sum(len(one.content) for one in self._names.values())
        room = len(content) if self.capacity is None else max(0, self.capacity - used)
        file.content += content[:room]
        if room < len(content):
            raise OSError(errno.ENOSPC, "No space left on device")

    def fsync(self, handle: int) -> None:
        """Make the content of a file survive a crash."""
        self._open[handle].synced = self._open[handle].content

    def close(self, handle: int) -> None:
        """Close a handle; raise KeyError if it is not open."""
        del self._open[handle]

    def rename(self, old: str, new: str) -> None:
        """Rename a file, in place of one with the new name; raise as `read` does."""
        self._writable()
        rest = {name: file for name, file in self._names.items() if name != old}
        self._change({**rest, new: self._entry(old)})

    def unlink(self, name: str) -> None:
        """Remove a file; raise FileNotFoundError if there is none."""
        self._writable()
        self._entry(name)
        self._change({other: file for other, file in self._names.items() if other != name})

    def fsync_folder(self) -> None:
        """Make all changes of file names survive a crash."""
        self._history = [self._names]

    def release(self) -> None:
        """Do nothing, because the folder in memory has no lock."""

    def crash(self, lost: int = 0) -> None:
        """Cut the power: undo up to `lost` unsynced changes of names, halve files never synced."""
        kept = self._history[: max(1, len(self._history) - lost)][-1]
        for file in kept.values():
            if file.synced is None:
                file.content = file.content[: len(file.content) // 2]
            file.synced = file.content
        self._history = [dict(kept)]
        self._open.clear()

    @property
    def unsynced(self) -> int:
        """Return how many changes of names a crash could lose now."""
        return len(self._history) - 1

    def _change(self, names: dict[str, _File]) -> None:
        self._history.append(names)

    def _entry(self, name: str) -> _File:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self._names[name]

    def _writable(self) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, "Read-only file system")


@dataclass
class Failing:
    """A disk that raises `error` in place of step number `at`, counted from 0.

    Reading and closing are no steps. After Killed all later steps raise it too.
    """

    disk: Folder
    at: int | None = None
    error: BaseException = field(default_factory=Killed)
    steps: int = 0

    @property
    def path(self) -> str:
        """Return the path of the disk's folder."""
        return self.disk.path

    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted; this is no step, so `error` is never raised."""
        return self.disk.names()

    def read(self, name: str) -> bytes:
        """Return the content of a file; this is no step, so `error` is never raised."""
        return self.disk.read(name)

    def create(self, name: str) -> int:
        """Create a file and return its handle, as a step that may fail."""
        return self._step(lambda: self.disk.create(name))

    def write(self, handle: int, content: bytes) -> None:
        """Write to a file, as a step that may fail after half of the content."""
        if self.steps == self.at:
            self.disk.write(handle, content[: len(content) // 2])
        self._step(lambda: self.disk.write(handle, content))

    def fsync(self, handle: int) -> None:
        """Sync a file, as a step that may fail."""
        self._step(lambda: self.disk.fsync(handle))

    def close(self, handle: int) -> None:
        """Close a handle; this is no step, since a process that ends closes what it has open."""
        self.disk.close(handle)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, as a step that may fail."""
        self._step(lambda: self.disk.rename(old, new))

    def unlink(self, name: str) -> None:
        """Unlink a file, as a step that may fail."""
        self._step(lambda: self.disk.unlink(name))

    def fsync_folder(self) -> None:
        """Sync the folder's file names, as a step that may fail."""
        self._step(self.disk.fsync_folder)

    def release(self) -> None:
        """Release the lock of the disk."""
        self.disk.release()

    def _step(self, act: Callable[[], R]) -> R:
        number, self.steps = self.steps, self.steps + 1
        dead = isinstance(self.error, Killed) and self.at is not None and number > self.at
        if number == self.at or dead:
            raise self.error
        return act()
