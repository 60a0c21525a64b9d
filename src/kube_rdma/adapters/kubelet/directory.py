"""A folder of sockets of the kubelet: what is in it, and when that changes.

In device-plugins it is the only sign that a kubelet comes and goes: on its start it removes every
socket in there and makes a new kubelet.sock. Nothing is polled; inotify wakes the reader, and
whoever is woken looks again.
"""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters import inotify

KUBELET_SOCKET = "kubelet.sock"

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """What tells one socket from another of the same name, None when there is none.

    Inode numbers are used again at once on some file systems, so the time of change goes with it.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_ctime_ns) if stat.S_ISSOCK(status.st_mode) else None


@contextmanager
def watching(directory: Path, names: Collection[str]) -> Iterator[AsyncIterator[None]]:
    """An iterator that yields after each change to one of the files `names` of `directory`.

    It sees every change since the context was entered. Raise Refused when the directory cannot be
    watched; the iterator raises Unavailable when it is removed or moved away.
    """

    def refused(error: OSError) -> Refused:
        return Refused(
            f"the kubelet's folder cannot be watched ({error.strerror})",
            remedy=(
                f"Mount the host's /var/lib/kubelet/{directory.name} there (hostPath) and run "
                "as uid 0, or name the folder with --kubelet-root"
            ),
            where=str(directory),
        )

    with inotify.watching(directory, refused) as changed:
        yield _among(names, changed)


async def _among(names: Collection[str], changed: AsyncIterator[str | None]) -> AsyncIterator[None]:
    async for name in changed:
        if name is None or name in names:
            yield
