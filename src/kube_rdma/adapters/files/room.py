"""How much room is left where kube-rdma keeps its state, for the doctor (statvfs(3))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kube_rdma.model.doctor import ObservedFolder


def read_room(folders: Iterable[Path]) -> tuple[ObservedFolder, ...]:
    """Of each folder that is there; raise OSError where one cannot be looked at."""
    return tuple(_of(folder) for folder in folders if folder.is_dir())


def _of(folder: Path) -> ObservedFolder:
    """The agent is root, so what a file system keeps for root counts as free."""
    room = os.statvfs(folder)
    inodes = room.f_ffree if room.f_files else None  # some file systems count none
    read_only = bool(room.f_flag & os.ST_RDONLY)
    return ObservedFolder(str(folder), room.f_bfree * room.f_frsize, inodes, read_only)
