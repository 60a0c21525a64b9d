"""Finds missing device nodes of cards, and watches nodes in /dev/infiniband come and go.

A device can be there before its node is. The folder itself appears with its first node. Where the
host's /dev is mounted, the agent looks again whenever a node comes or goes, and grants no card
whose node is missing. Nothing is polled: inotify reports nodes, which devtmpfs makes through the
VFS (drivers/base/devtmpfs.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from asyncinotify import Event, Inotify, Mask, Watch

from kube_base.errors import Refused
from kube_rdma.adapters.inotify import CHANGED, GONE, LEFT, gone, open_inotify

FOLDER = "infiniband"

_CHANGED = CHANGED | Mask.ONLYDIR


def missing(paths: Iterable[str], folder: Path) -> frozenset[str]:
    """Return those device paths (CharDevice.path) without a device node in `folder`.

    `folder` is the host's /dev/infiniband as the agent sees it, which may be mounted elsewhere.
    Nodes of vfio lie beside it.
    """
    dev = folder.parent
    return frozenset(path for path in paths if not (dev / path.removeprefix("/dev/")).exists())


class CharNodes:
    """A watch of device nodes in a folder, which may not exist yet.

    ``async with CharNodes(folder) as changes: async for name in changes``. `name` is a node that
    came or went. The folder's own name, or an empty one, stands for anything in it. It sees every
    change since `async with`. A `folder` that does not exist is waited for through its parent,
    which must exist and stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inotify: Inotify | None = None
        self._parent: Watch | None = None
        self._inside: Watch | None = None

    async def __aenter__(self) -> Self:
        """Begin to watch.

        Raise Refused when the parent folder cannot be watched, Unavailable when no inotify instance
        is left.
        """
        self._inotify = open_inotify()
        parent = self._folder.parent
        try:
            self._parent = self._inotify.add_watch(parent, _CHANGED | LEFT)
        except OSError as error:
            self._inotify.close()
            raise Refused(
                f"the folder of device nodes cannot be watched ({error.strerror})",
                remedy="Mount the host's /dev there (hostPath), or leave the folder out",
                where=str(parent),
            ) from error
        self._enter_folder()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._inotify:
            self._inotify.close()
            self._inotify = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Return the name of the next changed node.

        Raise Unavailable when the parent folder is gone.
        """
        assert self._inotify, "watch with `async with` first"
        while True:
            event = await self._inotify.get()
            if event.watch is self._parent and event.mask & GONE:
                raise gone(self._folder.parent)
            if self._is_news(event):
                return str(event.name or "")

    def _is_news(self, event: Event) -> bool:
        if event.watch is self._inside:
            if event.mask & GONE:
                self._inside = None
                return False  # an event of the parent reports it, or what is there now
            return True
        # Without a name the kernel dropped events: anything may have changed.
        if event.name is not None and str(event.name) != self._folder.name:
            return False
        self._enter_folder()
        return True

    def _enter_folder(self) -> None:
        """Watch the folder if it exists.

        Device nodes made before are not reported: the caller looks at the folder afterwards.
        """
        assert self._inotify
        with suppress(OSError):
            self._inside = self._inotify.add_watch(self._folder, _CHANGED)
