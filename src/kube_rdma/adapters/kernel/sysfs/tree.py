"""Reading a sysfs tree that may be wrong: recorded, half there, or changing while it is read.

The lowest step of the survey: bytes under a root become text, names and places, and whatever
cannot be read becomes a Fault instead of an exception. What the texts mean is devices.py's
business.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from kube_rdma.model.survey import Fault

_PAGE = 4096  # a sysfs file never holds more than one page (Documentation/filesystems/sysfs.rst)

# A FIFO in a recorded tree must not block, and an attribute of a real sysfs is never a link.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

# How the kernel says "there is nothing to say": the file is not made, or its show() has no answer.
_SILENT = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP})

_DELETED = " (deleted)"  # d_path, fs/d_path.c: how the kernel shows a path that has been removed


class SysfsTree:
    """One sysfs root. Every path given and every path in `faults` is relative to it.

    A mount that is attached nowhere has a root that only its descriptor leads to: /proc/self/fd/N
    is opened as it is, and the kernel shows places in it from ``/`` on (d_path, fs/d_path.c).
    """

    def __init__(self, root: Path) -> None:
        real = os.path.realpath(root)
        self._root = real if _same(root, real) else str(root)
        self._shown = real.rstrip("/")
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
        """Sorted names in a directory; none, and a fault when `required`, if it is missing.

        A name that no text can hold (a line end, bytes that are not UTF-8) is a fault and left out,
        so that every path made of names can be shown.
        """
        try:
            with os.scandir(f"{self._root}/{path}") as entries:
                names = [entry.name for entry in entries]
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return ()
        odd = [name for name in names if not name.isprintable()]
        for name in odd:
            self.blame(path, f"holds a name that is not text: {name!r}")
        return tuple(sorted(set(names).difference(odd) if odd else names))

    def table(self, path: str) -> dict[int, str]:
        """Index and text of each entry of a numbered table (a port's gids), in order.

        An entry that the kernel refuses with EINVAL is unused: that is how kernels before 4.19 say
        so.
        """
        indexes = sorted(int(name) for name in self.names(path) if name.isdecimal())
        return self.entries(path, indexes, silent=True) if indexes else {}

    def entries(
        self,
        path: str,
        indexes: Iterable[int],
        *,
        silent: bool = False,
        empty: bool = False,
    ) -> dict[int, str]:
        """What the files named `indexes` in a directory say, without those that say nothing.

        A table has up to 1024 entries, so the path is walked once for all of them. That an entry
        says nothing is not a fault where it may be `silent`, an empty one where it may be `empty`.
        """
        passed_over = _SILENT if silent else frozenset()
        try:
            folder = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in passed_over:
                self.blame(path, _reason(error))
            return {}
        texts = {}
        try:
            for index in indexes:
                try:
                    data = _read(str(index), folder)
                except OSError as error:
                    if error.errno not in passed_over:
                        self.blame(f"{path}/{index}", _reason(error))
                    continue
                text = self._decode(path, data, index)
                if text:
                    texts[index] = text
                elif text == "" and not empty:
                    self.blame(f"{path}/{index}", "is empty")
        finally:
            os.close(folder)
        return texts

    def link(self, path: str) -> str | None:
        """The last name of what a link leads to, which need not exist; None where no link is."""
        try:
            target = os.readlink(f"{self._root}/{path}")  # noqa: PTH115  # a Path costs more
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.blame(path, "is not a link" if error.errno == errno.EINVAL else _reason(error))
            return None
        name = target.rpartition("/")[2]
        if name.isprintable():
            return name
        self.blame(path, f"leads to a name that is not text: {name!r}")
        return None

    def place(self, path: str, *, required: bool = False) -> str | None:
        """Where a path really is, relative to the root, once its links are followed.

        A link that leads out of the tree is not followed: a recorded tree says nothing about the
        machine it is read on.
        """
        try:
            real = real_path(f"{self._root}/{path}")
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return None
        if real.startswith(f"{self._shown}/"):
            return real[len(self._shown) + 1 :]
        self.blame(path, "leads out of the tree")
        return None

    def holds(self, path: str) -> bool:
        """Whether something is at `path`, links followed."""
        return os.path.exists(f"{self._root}/{path}")  # noqa: PTH110  # a Path costs more

    def _decode(self, path: str, data: bytes, index: int | None = None) -> str | None:
        """Text of a file, or of the entry `index` of a table; None and a fault when it is none."""
        try:
            text = data.decode().strip()
        except UnicodeDecodeError:
            text = "\0"
        if text.isprintable() or text.replace("\n", "").isprintable():
            return text
        self.blame(path if index is None else f"{path}/{index}", "is not text")
        return None


def _same(root: Path, real: str) -> bool:
    """Whether both lead to one place; what is not there is no descriptor either."""
    try:
        return root.samefile(real)
    except OSError:
        return True


def real_path(path: str) -> str:
    """Where a path that exists really is, once its links are followed; raise OSError without.

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


def _read(path: str, folder: int | None = None) -> bytes:
    """The first page of a file, in three system calls."""
    descriptor = os.open(path, _FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, _PAGE)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
