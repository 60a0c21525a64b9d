"""Yields changes of folders by inotify, or says what the node lacks.

A watcher of a folder that was removed or moved sees the new one only after a new start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from asyncinotify import Inotify, Mask

from kube_base.errors import KubeError, Refused, Unavailable

CHANGED = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
LEFT = Mask.DELETE_SELF | Mask.MOVE_SELF
GONE = LEFT | Mask.UNMOUNT | Mask.IGNORED  # the last two come unasked


def open_inotify() -> Inotify:
    """Return a new inotify instance, which the caller closes; raise Unavailable if none is left.

    Root's processes share fs.inotify.max_user_instances, 128 by default.
    """
    try:
        return Inotify()
    except OSError as error:
        raise Unavailable(
            f"The kernel gives no inotify instance ({error.strerror}): raise the sysctl "
            "fs.inotify.max_user_instances of this node."
        ) from error


@contextmanager
def watching(
    folder: Path, refused: Callable[[OSError], KubeError], more: Mask = CHANGED
) -> Iterator[AsyncIterator[str | None]]:
    """Yield an iterator of names of files that were made in `folder`, removed, or moved in or out.

    `more` adds kinds of changes. The name is None when the kernel dropped events: anything may have
    changed. The iterator has every change since the context was entered. Raise what `refused` makes
    of an OSError when the folder cannot be watched, Unavailable when no inotify instance is left.
    The iterator raises Unavailable when the folder is removed or moved away.
    """
    with open_inotify() as inotify:
        try:
            inotify.add_watch(folder, CHANGED | more | LEFT | Mask.ONLYDIR)
        except OSError as error:
            raise refused(error) from error
        yield _names(inotify, folder)


def watching_file(path: Path) -> AbstractContextManager[AsyncIterator[object]]:
    """Return a context with an iterator that yields after every change in the folder of a file.

    The kubelet renews a ConfigMap by swapping a link beside the file (``..data``), an editor by a
    rename, a person by writing in place. So the file's folder is watched for every change, and the
    caller reads the file and compares. Entering the context raises Refused when the folder cannot
    be watched, Unavailable when no inotify instance is left.
    """

    def refused(error: OSError) -> Refused:
        return Refused(
            f"the folder cannot be watched ({error.strerror})",
            remedy="Mount the ConfigMap as a folder, or name another file with --config",
            where=str(path.parent),
        )

    return watching(path.parent, refused, Mask.CLOSE_WRITE | Mask.ATTRIB)


async def _names(inotify: Inotify, folder: Path) -> AsyncIterator[str | None]:
    async for event in inotify:
        if event.mask & GONE:
            raise gone(folder)
        yield None if event.name is None else str(event.name)


def gone(folder: Path) -> Unavailable:
    """Return the error for a watched folder that was removed or moved."""
    return Unavailable(
        f"{folder} was removed or moved; kube-rdma has to start again to see the new one"
    )
