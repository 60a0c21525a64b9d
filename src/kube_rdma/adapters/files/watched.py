"""Tells when a mounted file may have changed.

The kubelet renews a ConfigMap by swapping a link beside the file (``..data``), an editor by a
rename, a person by writing in place. So the file's folder is watched for everything, and whoever is
woken reads the file and compares: that is the only comparison which is never wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from asyncinotify import Mask

from kube_base.errors import Refused
from kube_rdma.adapters import inotify

_WRITTEN = Mask.CLOSE_WRITE | Mask.ATTRIB


@contextmanager
def watching(path: Path) -> Iterator[AsyncIterator[None]]:
    """An iterator that yields after anything happened beside the file `path`.

    It misses nothing since the context was entered. Raise Refused when the folder cannot be
    watched; the iterator raises Unavailable when the folder itself is removed or moved away.
    """

    def refused(error: OSError) -> Refused:
        return Refused(
            f"the folder cannot be watched ({error.strerror})",
            remedy="Mount the ConfigMap as a folder, or name another file with --config",
            where=str(path.parent),
        )

    with inotify.watching(path.parent, refused, _WRITTEN) as changed:
        yield _events(changed)


async def _events(changed: AsyncIterator[str | None]) -> AsyncIterator[None]:
    async for _ in changed:
        yield
