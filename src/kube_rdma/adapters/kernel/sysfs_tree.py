"""Reading a sysfs tree that may be wrong: recorded, half there, or changing while it is read.

The lowest step of the survey: bytes under a root become text, names and places, and whatever
cannot be read becomes a Fault instead of an exception. What the texts mean is sysfs.py's business.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kube_rdma.model.survey import Fault

_PAGE = 4096  # a sysfs file never holds more than one page (Documentation/filesystems/sysfs.rst)

# A FIFO in a recorded tree must not block us, and an attribute of a real sysfs is never a link.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

# How the kernel says "there is nothing to say": the file is not made, or its show() has no answer.
_SILENT = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP})


class Tree:
    """One sysfs root. Every path given and every path in `faults` is relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self.faults: list[Fault] = []

    def blame(self, path: str, reason: str) -> None:
        """Write down that `path` could not be understood."""
        self.faults.append(Fault(path, reason))

    def text(self, path: str, *, required: bool = True) -> str | None:
        """What a file says, without surrounding white space; None when it says nothing.

        Saying nothing is a fault only when `required`; being unreadable or not text always is.
        """
        try:
            data = _read(f"{self._root}/{path}")
        except OSError as error:
            if required or error.errno not in _SILENT:
                self.blame(path, _reason(error))
            return None
        text = self._decode(path, data)
        if text == "" and required:
            self.blame(path, "is empty")
        return text or None

    def names(self, path: str, *, required: bool = True) -> tuple[str, ...]:
        """Sorted names in a directory; none, and a fault when `required`, if it is missing."""
        try:
            with os.scandir(f"{self._root}/{path}") as entries:
                return tuple(sorted(entry.name for entry in entries))
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return ()

    def table(self, path: str) -> Iterator[tuple[int, str]]:
        """Index and text of each entry of a numbered table (a port's gids), in order.

        A table has up to 1024 entries, so the path is walked once for all of them. An entry that
        the kernel refuses with EINVAL is unused: that is how kernels before 4.19 say so.
        """
        indexes = sorted(int(name) for name in self.names(path) if name.isdecimal())
        if not indexes:
            return
        try:
            folder = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self.blame(path, _reason(error))
            return
        try:
            for index in indexes:
                text = self._entry(path, index, folder)
                if text is not None:
                    yield index, text
        finally:
            os.close(folder)

    def place(self, path: str, *, required: bool = False) -> str | None:
        """Where a path really is, relative to the root, once its links are followed.

        A link that leads out of the tree is not followed: a recorded tree says nothing about the
        machine it is read on.
        """
        try:
            real = os.path.realpath(f"{self._root}/{path}", strict=True)
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return None
        if real.startswith(f"{self._root}/"):
            return real[len(self._root) + 1 :]
        self.blame(path, "leads out of the tree")
        return None

    def holds(self, path: str) -> bool:
        """Whether something is at `path`, links followed."""
        return Path(self._root, path).exists()

    def _entry(self, path: str, index: int, folder: int) -> str | None:
        try:
            data = _read(str(index), folder)
        except OSError as error:
            if error.errno not in _SILENT:
                self.blame(f"{path}/{index}", _reason(error))
            return None
        text = self._decode(f"{path}/{index}", data)
        if text == "":
            self.blame(f"{path}/{index}", "is empty")
        return text or None

    def _decode(self, path: str, data: bytes) -> str | None:
        try:
            text = data.decode().strip()
        except UnicodeDecodeError:
            self.blame(path, "is not text")
            return None
        if not text.replace("\n", "").isprintable():
            self.blame(path, "is not text")
            return None
        return text


def _read(path: str, folder: int | None = None) -> bytes:
    """The first page of a file, in three system calls."""
    descriptor = os.open(path, _FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, _PAGE)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
