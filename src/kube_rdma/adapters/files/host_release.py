"""Reads the release of the host's kernel, its /etc/os-release, and the room in its folders.

With --node-labels=write-nfd the first two become labels of the node (pools/rules/labels). The
container's own os-release describes the image, so the host's file has to be mounted; os-release(5)
says how a line is quoted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from kube_base.os_files import readable
from kube_rdma.model.doctor import ObservedFolder

OS_RELEASE = Path("etc/os-release")  # below the host's root

_LONGEST = 65536  # bytes that are read of a file that somebody else writes
_LINE = re.compile(r"(\w+)=(.*)", re.ASCII)


def read_kernel() -> str:
    """Return the release of the running kernel, as `uname -r` prints it."""
    return os.uname().release


def read_os_release(host: Path) -> tuple[tuple[str, str], ...]:
    """Return the fields of os-release below this root.

    Raise Unavailable when it cannot be read.
    """
    path = host / OS_RELEASE
    with readable(path), path.open("rb") as file:
        return parsed(file.read(_LONGEST).decode(errors="replace"))


def parsed(text: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of an os-release text; skip lines that assign no single word."""
    matches = map(_LINE.fullmatch, map(str.strip, text.split("\n")))
    pairs = ((match[1], _unquoted(match[2])) for match in matches if match)
    return tuple((name, value) for name, value in pairs if value is not None)


def _unquoted(value: str) -> str | None:
    try:
        words = shlex.split(value, comments=False)
    except ValueError:
        return None
    return words[0] if len(words) == 1 else None


# The room where kube-rdma keeps its state, for the doctor (statvfs(3)).


def read_room(folders: Iterable[Path]) -> tuple[ObservedFolder, ...]:
    """Return the free space of each folder that exists; raise OSError if it cannot be read."""
    return tuple(_of(folder) for folder in folders if folder.is_dir())


def _of(folder: Path) -> ObservedFolder:
    """Return the free bytes and inodes of a folder's file system, and whether it is read-only.

    The numbers include what only root may use.
    """
    room = os.statvfs(folder)
    inodes = room.f_ffree if room.f_files else None  # some file systems count none
    read_only = bool(room.f_flag & os.ST_RDONLY)
    return ObservedFolder(str(folder), room.f_bfree * room.f_frsize, inodes, read_only)
