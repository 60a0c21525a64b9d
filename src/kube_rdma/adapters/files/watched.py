"""Tells when a mounted file may have changed.

The kubelet renews a ConfigMap by swapping a link beside the file (``..data``), an editor by a
rename, a person by writing in place. So the file's folder is watched for everything, and whoever is
woken reads the file and compares: that is the only comparison which is never wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from asyncinotify import Inotify, Mask

from kube_rdma.adapters.inotify import open_inotify
from kube_rdma.model.errors import Refused, Unavailable

_CHANGED = (
    Mask.CREATE | Mask.DELETE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.CLOSE_WRITE | Mask.ATTRIB
)
_GONE = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT | Mask.IGNORED


@contextmanager
def watching(path: Path) -> Iterator[AsyncIterator[None]]:
    """An iterator that yields after anything happened beside the file `path`.

    It misses nothing since the context was entered. Raise Refused when the folder cannot be
    watched; the iterator raises Unavailable when the folder itself is removed or moved away.
    """
    with open_inotify() as inotify:
        try:
            inotify.add_watch(path.parent, _CHANGED | _GONE | Mask.ONLYDIR)
        except OSError as error:
            raise Refused(
                f"the folder cannot be watched ({error.strerror})",
                remedy="Mount the ConfigMap as a folder, or name another file with --config",
                where=str(path.parent),
            ) from error
        yield _changes(inotify, path)


async def _changes(inotify: Inotify, path: Path) -> AsyncIterator[None]:
    async for event in inotify:
        if event.mask & _GONE:
            raise Unavailable(
                f"{path.parent} was removed or moved; kube-rdma has to start again to see it"
            )
        yield
