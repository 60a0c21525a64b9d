"""Waits for the kernel with a limit, and locks folders of /sys.

The locks are between processes and threads of kube-rdma on this machine that change hardware. A
folder stands for what is changed: a card's folder for its virtual functions (sriov/functions.py,
sriov/rebind.py), class/infiniband for the namespaces of RDMA devices (netlink/rdma_write.py).
flock(2) on it needs no file of its own, and ends with its holder.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.os_files import closed_after

_PAUSE = 0.02  # seconds


def waited(done: Callable[[], bool], patience: float) -> bool:
    """Wait until `done()` is true; return False if it is not within `patience` seconds."""
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


@contextmanager
def locked(folder: Path, patience: float, busy: str, gone: Unavailable) -> Iterator[None]:
    """Lock a folder for the block against other processes that lock it.

    Raise `gone` when the folder is not there, Unavailable with the sentence `busy` when somebody
    else has the lock for `patience` seconds.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise gone from error
    with closed_after(descriptor):
        if not waited(lambda: _lock(descriptor), patience):
            raise Unavailable(busy)
        yield


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
