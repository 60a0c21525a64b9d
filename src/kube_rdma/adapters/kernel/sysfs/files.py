"""Reads files of a sysfs that is mounted, or was copied to a folder; tree.py reads through it.

It is the first step of the survey. Few system calls, which only Linux has, are made for each file,
for a node has thousands. recorded_text.py answers the same questions from memory, on any system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

PAGE = 4096  # a text file of sysfs has one page at most (Documentation/filesystems/sysfs.rst)

# A FIFO in a recorded tree must not block, and an attribute of a real sysfs is never a link.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

_DELETED = " (deleted)"  # d_path, fs/d_path.c: how the kernel shows a path that has been removed


class SysfsFiles:
    """Access to files below one root, such as /sys.

    Paths are relative to the root, and methods raise OSError. A root may be /proc/self/fd/N, for a
    mount that is attached nowhere. The kernel then shows real paths in it from ``/`` on (d_path,
    fs/d_path.c).
    """

    def __init__(self, root: Path) -> None:
        real = os.path.realpath(root)
        self._root = real if _same(root, real) else str(root)
        self._shown = real.rstrip("/")

    def read(self, path: str) -> bytes:
        """Return the first page of a file."""
        return read_file(f"{self._root}/{path}")

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, unsorted."""
        with os.scandir(f"{self._root}/{path}") as entries:
            return [entry.name for entry in entries]

    def entries(self, path: str, indexes: Iterable[int]) -> Iterator[tuple[int, bytes | OSError]]:
        """Yield index and content of each file named by `indexes` in a folder, or its OSError."""
        folder = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for index in indexes:
                try:
                    yield index, read_file(str(index), folder)
                except OSError as error:
                    yield index, error
        finally:
            os.close(folder)

    def target(self, path: str) -> str:
        """Return the target of a symbolic link, unresolved."""
        return os.readlink(f"{self._root}/{path}")  # noqa: PTH115  # a Path costs more

    def place(self, path: str) -> str | None:
        """Return the real path of a file, with links followed; None outside of the tree."""
        real = _real_path(f"{self._root}/{path}")
        if real.startswith(f"{self._shown}/"):
            return real[len(self._shown) + 1 :]
        return None

    def holds(self, path: str) -> bool:
        """Return whether a file exists at a path, with links followed."""
        return os.path.exists(f"{self._root}/{path}")  # noqa: PTH110  # a Path costs more


def _same(root: Path, real: str) -> bool:
    """Return whether both paths lead to the same file; true if one cannot be looked at."""
    try:
        return root.samefile(real)
    except OSError:
        return True


def _real_path(path: str) -> str:
    """Return a file's real path, with links followed; raise OSError if it does not exist.

    The kernel knows (proc_pid_fd(5)): three system calls, where os.path.realpath has one for each
    name on the way. Nothing is opened by O_PATH, so no FIFO blocks and no device hears of it.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  a Path costs more
    finally:
        os.close(descriptor)
    if real.endswith(_DELETED):  # it went between the two calls
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return real


def read_file(path: str, folder: int | None = None) -> bytes:
    """Return the first page of a file at `path`, below the open `folder` if there is one.

    It takes three system calls. Raise OSError when the file cannot be read.
    """
    descriptor = os.open(path, _FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, PAGE)
    finally:
        os.close(descriptor)


def read_each(paths: Iterable[str], folder: int, size: int) -> list[bytes | int]:
    """Return the first `size` bytes of each file below an open folder, or the errno of its error.

    A node has tens of thousands of counters, so only system calls are made for each.
    """
    said: list[bytes | int] = []
    for path in paths:
        try:
            descriptor = os.open(path, _FLAGS, dir_fd=folder)
            try:
                said.append(os.read(descriptor, size))
            finally:
                os.close(descriptor)
        except OSError as error:
            said.append(error.errno or 0)
    return said
