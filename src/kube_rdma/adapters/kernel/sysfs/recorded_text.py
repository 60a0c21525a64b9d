"""Reads a sysfs from one text in memory: the machines that come with kube-rdma.

The survey of such a machine begins here, not in files.py: tree.py asks the same questions, and
nothing is written or opened. So it works on systems whose folders cannot hold such a tree, for
names of PCI functions have colons. The lab writes the same texts out (kube_rdma_lab/native).
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterable, Iterator

from kube_base.frozen import Frozen

_RANGE = re.compile(r"(.*)/\{(\d+)\.\.(\d+)\}")
_MOST_INDEXES = 4096  # of one range; a GID table has at most 1024
_PAGE = 4096  # bytes of a file of sysfs, at most
_MOST_LINKS = 40  # on one way: MAXSYMLINKS, include/linux/namei.h


class TextEntry(Frozen):
    """An entry in the text of a recorded tree: a file with `content`, a link, or a folder.

    A link has a `target`.
    """

    path: str
    content: bytes | None = None
    target: str | None = None


def read_entries(text: str) -> Iterator[TextEntry]:
    r"""Yield the files, links and folders that a text describes; raise ValueError for other lines.

    A line is ``path: content``, where ``\n`` stands for a line end and the last one is added. It is
    ``path = 00*256 0d00`` for bytes, ``path -> target`` for a link, or ``path/`` for a folder.
    ``gids/{4..255}: 0000:…`` stands for a range of files. After ``[folder]`` paths lie in that
    folder, except those that begin with /. A target that begins with / becomes the relative one
    that sysfs has. Blank lines and lines that begin with # are passed over.
    """
    folder = ""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            folder = f"{line[1:-1]}/"
            continue
        yield from _of_line(line[1:] if line.startswith("/") else folder + line)


def _of_line(line: str) -> Iterator[TextEntry]:
    path, arrow, target = line.partition(" -> ")
    name, colon, content = line.partition(": ")
    file, equals, digits = line.partition(" = ")
    if arrow:
        if target.startswith("/"):
            target = posixpath.relpath(target, posixpath.dirname(f"/{path}"))
        yield TextEntry(path, target=target)
    elif colon:
        written = content.replace("\\n", "\n") + "\n"
        yield from (TextEntry(one, written.encode()) for one in _expanded(name))
    elif equals:
        runs = (piece.partition("*") for piece in digits.split())
        data = b"".join(bytes.fromhex(of) * min(int(times or 1), _PAGE) for of, _, times in runs)
        yield TextEntry(file, data[:_PAGE])
    elif line.endswith("/"):
        yield TextEntry(line.rstrip("/"))
    else:
        raise ValueError(f"neither file nor link nor directory: {line!r}")


def _expanded(path: str) -> list[str]:
    match = _RANGE.fullmatch(path)
    if not match:
        return [path]
    indexes = range(int(match[2]), int(match[3]) + 1)
    if len(indexes) > _MOST_INDEXES:
        raise ValueError(f"a range of more than {_MOST_INDEXES} files: {path!r}")
    return [f"{match[1]}/{index}" for index in indexes]


class RecordedText:
    """A sysfs tree that is recorded as a text, with the methods of SysfsFiles.

    Paths are relative to its root, and methods raise OSError. It answers as SysfsFiles does of the
    folder that the lab writes of the same text.
    """

    def __init__(self, name: str, text: str) -> None:
        """Parse the recorded tree in `text`; `name` is the machine's name for people."""
        self.name = name
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._folders: dict[str, dict[str, None]] = {"": {}}
        for entry in read_entries(text):
            above, _, last = entry.path.rpartition("/")
            self._folder(above)[last] = None
            if entry.target is not None:
                self._links[entry.path] = entry.target
            elif entry.content is not None:
                self._files[entry.path] = entry.content
            else:
                self._folder(entry.path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; raise OSError for a link."""
        place, last = self._above(path)
        if f"{place}{last}" in self._links:
            raise _error(errno.ELOOP, path)
        return self._file(f"{place}{last}", path)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        place = self._real(path)
        if place not in self._folders:
            raise _error(errno.ENOTDIR, path)
        return list(self._folders[place])

    def entries(self, path: str, indexes: Iterable[int]) -> Iterator[tuple[int, bytes | OSError]]:
        """Yield each of the files named `indexes` in a folder: its bytes, or the OSError."""
        place = self._real(path)
        if place not in self._folders:
            raise _error(errno.ENOTDIR, path)
        for index in indexes:
            try:
                yield index, self._file(f"{place}/{index}".lstrip("/"), f"{path}/{index}")
            except OSError as error:
                yield index, error

    def target(self, path: str) -> str:
        """Return the target of a symbolic link, unresolved."""
        place, last = self._above(path)
        entry = f"{place}{last}"
        if entry in self._links:
            return self._links[entry]
        raise _error(errno.EINVAL if self._is_present(entry) else errno.ENOENT, path)

    def place(self, path: str) -> str | None:
        """Return the real path of a file, with links followed; None outside of the tree."""
        try:
            return self._real(path) or None
        except PermissionError:
            return None

    def holds(self, path: str) -> bool:
        """Return whether a file exists at a path, with links followed."""
        try:
            self._real(path)
        except OSError:
            return False
        return True

    def _folder(self, path: str) -> dict[str, None]:
        """Return the names in a folder, after making it and all folders above it."""
        if path not in self._folders:
            above, _, last = path.rpartition("/")
            self._folder(above)[last] = None
            self._folders[path] = {}
        return self._folders[path]

    def _is_present(self, place: str) -> bool:
        return place in self._folders or place in self._files or place in self._links

    def _file(self, place: str, path: str) -> bytes:
        if place in self._files:
            return self._files[place]
        raise _error(errno.EISDIR if place in self._folders else errno.ENOENT, path)

    def _above(self, path: str) -> tuple[str, str]:
        """Return the real path of the folder above a path, with a slash; and the last name."""
        above, _, last = path.rstrip("/").rpartition("/")
        folder = self._real(above)
        if folder not in self._folders:
            raise _error(errno.ENOTDIR, path)
        return f"{folder}/" if folder else "", last

    def _real(self, path: str) -> str:
        """Return the real path of a path; raise PermissionError for one outside of the tree."""
        place: list[str] = []
        pending, links = path.split("/")[::-1], 0
        while pending:
            name = pending.pop()
            if name == "":
                continue
            if "/".join(place) in self._files:
                raise _error(errno.ENOTDIR, path)
            if name == ".":
                continue
            if name == "..":
                if not place:
                    raise _error(errno.EPERM, path)
                place.pop()
                continue
            entry = "/".join((*place, name))
            if entry in self._links:
                links += 1
                if links > _MOST_LINKS:
                    raise _error(errno.ELOOP, path)
                pending += self._links[entry].split("/")[::-1]
            elif self._is_present(entry):
                place.append(name)
            else:
                raise _error(errno.ENOENT, path)
        return "/".join(place)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
