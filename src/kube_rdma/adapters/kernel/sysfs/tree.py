"""Reads a sysfs tree that may be wrong: recorded, half there, or changing while it is read.

It is the second step of the survey: bytes and names from `files.py` or `recorded_text.py` become
text and places. What cannot be read becomes a Fault instead of an exception; what is optional may
be missing. What the texts mean is devices.py's business.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.model.survey import Fault

if TYPE_CHECKING:
    from kube_rdma.adapters.kernel.sysfs.files import SysfsFiles

SysfsRoot: TypeAlias = Path | RecordedText
"""The place of a sysfs: /sys or a recorded folder, or an example machine in memory."""

# How the kernel says "there is nothing to say": the file is not made, or its show() has no answer.
_SILENT = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP})


class SysfsTree:
    """A reader of one sysfs root, by default /sys, that collects faults.

    Paths given and those in `faults` are relative to the root.
    """

    def __init__(self, root: SysfsRoot | None = None) -> None:
        self._store: RecordedText | SysfsFiles
        if isinstance(root, RecordedText):
            self._store = root
        else:
            # It opens files as Linux alone does, and a machine in memory is for any system.
            from kube_rdma.adapters.kernel.sysfs.files import SysfsFiles

            self._store = SysfsFiles(root or Path("/sys"))
        self.faults: list[Fault] = []

    def blame(self, path: str, reason: str) -> None:
        """Add a fault of the file at `path`, with its reason."""
        self.faults.append(Fault(path, reason))

    def text(self, path: str, *, required: bool = True) -> str | None:
        """Return the text of a file without surrounding white space.

        Return None when it is empty or unreadable. A file that is missing or says nothing is a
        fault only if `required`; one that is unreadable or no text always is.
        """
        try:
            data = self._store.read(path)
        except OSError as error:
            if required or error.errno not in _SILENT:
                self.blame(path, _reason(error))
            return None
        text = self._decode(path, data)
        if text == "" and required:
            self.blame(path, "is empty")
        return text or None

    def matching(self, path: str, pattern: re.Pattern[str], *, required: bool = True) -> str | None:
        """Return the text of a file; None, and a fault, when it does not match `pattern`."""
        text = self.text(path, required=required)
        if text is None or pattern.fullmatch(text):
            return text
        self.blame(path, f"says {text!r}, which is not of its form")
        return None

    def number(self, path: str) -> int | None:
        """Return the decimal number in a file; None without one, and a fault for another text."""
        text = self.text(path, required=False)
        if text is None or text.isdecimal():
            return None if text is None else int(text)
        self.blame(path, f"is not a number: {text!r}")
        return None

    def data(self, path: str) -> bytes | None:
        """Return the first page of a binary file; None, and a fault, if unreadable."""
        try:
            return self._store.read(path)
        except OSError as error:
            self.blame(path, _reason(error))
            return None

    def names(self, path: str, *, required: bool = True) -> tuple[str, ...]:
        """Return sorted names in a directory; none, and a fault when `required`, if it is missing.

        A name that no text can hold (a line end, bytes that are not UTF-8) is a fault and left out.
        So every path made of names can be shown.
        """
        try:
            names = self._store.names(path)
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return ()
        odd = [name for name in names if not name.isprintable()]
        for name in odd:
            self.blame(path, f"holds a name that is not text: {name!r}")
        return tuple(sorted(set(names).difference(odd) if odd else names))

    def table(self, path: str) -> dict[int, str]:
        """Return index and text of each entry of a numbered folder, such as a port's gids.

        An entry that the kernel refuses with EINVAL is unused: that is how kernels before 4.19 say
        so.
        """
        indexes = sorted(int(name) for name in self.names(path) if name.isdecimal())
        return self.entries(path, indexes, silent=True) if indexes else {}

    def entries(
        self, path: str, indexes: Iterable[int], *, silent: bool = False, empty: bool = False
    ) -> dict[int, str]:
        """Return the texts of files named by `indexes` in a directory, without empty ones.

        A table has up to 1024 entries, so the path is walked once for all of them. With `silent`,
        an entry without an answer is no fault; with `empty`, nor is an empty one.
        """
        passed_over = _SILENT if silent else frozenset()
        texts = {}
        try:
            for index, data in self._store.entries(path, indexes):
                if isinstance(data, OSError):
                    if data.errno not in passed_over:
                        self.blame(f"{path}/{index}", _reason(data))
                    continue
                text = self._decode(path, data, index)
                if text:
                    texts[index] = text
                elif text == "" and not empty:
                    self.blame(f"{path}/{index}", "is empty")
        except OSError as error:
            if error.errno not in passed_over:
                self.blame(path, _reason(error))
        return texts

    def link(self, path: str) -> str | None:
        """Return the last part of a link's target, which need not exist; None without a link."""
        try:
            target = self._store.target(path)
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
        """Return the real path relative to the root, links followed; None where there is none.

        A link that leads out of the tree is not followed, and is a fault. A recorded tree says
        nothing about the machine it is read on.
        """
        try:
            place = self._store.place(path)
        except OSError as error:
            if required or error.errno != errno.ENOENT:
                self.blame(path, _reason(error))
            return None
        if place is None:
            self.blame(path, "leads out of the tree")
        return place

    def holds(self, path: str) -> bool:
        """Return whether something exists at `path`, links followed."""
        return self._store.holds(path)

    def _decode(self, path: str, data: bytes, index: int | None = None) -> str | None:
        """Return bytes of a file or table entry as text; None, with a fault, if they are not."""
        try:
            text = data.decode().strip()
        except UnicodeDecodeError:
            text = "\0"
        if text.isprintable() or text.replace("\n", "").isprintable():
            return text
        self.blame(path if index is None else f"{path}/{index}", "is not text")
        return None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
