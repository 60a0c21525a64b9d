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

from asyncinotify import Inotify, Mask

from kube_rdma.adapters.inotify import open_inotify
from kube_rdma.model.errors import Refused, Unavailable

KUBELET_SOCKET = "kubelet.sock"

_CHANGED = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
_LEFT = Mask.DELETE_SELF | Mask.MOVE_SELF
_GONE = _LEFT | Mask.UNMOUNT | Mask.IGNORED  # the last two come unasked

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
    with open_inotify() as inotify:
        try:
            inotify.add_watch(directory, _CHANGED | _LEFT | Mask.ONLYDIR)
        except OSError as error:
            raise Refused(
                f"the kubelet's folder cannot be watched ({error.strerror})",
                remedy=(
                    f"Mount the host's /var/lib/kubelet/{directory.name} there (hostPath) and run "
                    "as uid 0, or name the folder with --kubelet-root"
                ),
                where=str(directory),
            ) from error
        yield _changes(inotify, directory, names)


async def _changes(
    inotify: Inotify, directory: Path, names: Collection[str]
) -> AsyncIterator[None]:
    async for event in inotify:
        if event.mask & _GONE:
            raise Unavailable(
                f"{directory} was removed or moved; kube-rdma has to start again to see the new one"
            )
        # Without a name the kernel dropped events: anything may have changed.
        if event.name is None or str(event.name) in names:
            yield
