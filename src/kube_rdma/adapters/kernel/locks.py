"""Locks between all processes and threads of this machine that change hardware, one for a folder.

A folder of /sys stands for what is changed: that of a card for its virtual functions
(sriov/functions.py, sriov/rebind.py), class/infiniband for the namespaces of RDMA devices
(netlink/rdma_write.py). flock(2) on it needs no file of its own, and ends with its holder.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_base.errors import Unavailable

_PAUSE = 0.05  # seconds


@contextmanager
def locked(folder: Path, patience: float, busy: str) -> Iterator[None]:
    """Nobody else who asks for this folder is in the block meanwhile.

    Raise OSError when the folder is not there, Unavailable with the sentence `busy` when somebody
    else has the lock for `patience` seconds.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + patience
    try:
        while not _lock(descriptor):
            if time.monotonic() >= deadline:
                raise Unavailable(busy)
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
