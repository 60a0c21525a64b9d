"""Finds out that etcd behind the API server was restored to an earlier version.

`calls` beside it has one Horizon for each client. Etcd counts its writes, and every object, list
and change has that count as its version. Restored from a backup it counts from there. The API
server then serves a watch from a later version without an error and in silence. Only an answer with
a lower version than an earlier one shows the restore. Versions of one resource can be compared as
numbers (KEP-5504). Versions of two resources cannot, for each may have its own etcd.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kube_base.frozen import Frozen
from kube_client.kinds import ObjectKind, Stored
from kube_client.wire import Identity

_OBJECTS = 1024  # whose versions are remembered

_Place = tuple[str, str, str, str]  # group, resource, namespace, name


class SentMark(Frozen):
    """The newest known versions when a request was sent: its answer must not be older."""

    era: asyncio.Event
    newest: int
    seen: int  # version of the object, 0 without one


class Horizon:
    """The newest versions of resources and objects that this process has seen.

    `era` is an event that is set, and replaced by a new one, when etcd is found restored.
    """

    def __init__(self) -> None:
        self.era = asyncio.Event()
        self.listeners: list[Callable[[], None]] = []
        self._newest: dict[tuple[str, str], int] = {}
        self._objects: OrderedDict[_Place, int] = OrderedDict()

    def mark(self, kind: ObjectKind[Any, Any], name: str = "", namespace: str = "") -> SentMark:
        """Return the newest known versions of a kind and an object, before a request is sent."""
        newest = self._newest.get((kind.group, kind.plural), 0)
        return SentMark(self.era, newest, self._objects.get(_place(kind, namespace, name), 0))

    def shown(self, kind: ObjectKind[Any, Any], version: str, mark: SentMark | None = None) -> None:
        """Note a version from a watch; with a `mark`, the store's newest from a list or a write.

        A version lower than `mark` knew means a restored etcd (`went_back`). Nothing is noted of a
        request that was sent before etcd was found restored.
        """
        number = _number(version)
        if mark and mark.era is not self.era:
            return
        if mark and 0 < number < mark.newest:
            self.went_back()
        resource = (kind.group, kind.plural)
        self._newest[resource] = max(self._newest.get(resource, 0), number)

    def read(self, kind: ObjectKind[Any, Any], stored: Stored[Any, Any], mark: SentMark) -> None:
        """Note the version of an object that was read; one older than known means a restored etcd.

        `mark` was taken before the request was sent.
        """
        number = _number(stored.version)
        if mark.era is not self.era:
            return
        if 0 < number < mark.seen:
            self.went_back()
        place = _place(kind, stored.namespace, stored.name)
        self._objects[place] = number
        self._objects.move_to_end(place)
        if len(self._objects) > _OBJECTS:
            self._objects.popitem(last=False)

    def listed(
        self, kind: ObjectKind[Any, Any], item: Identity, of: str, reported: str = ""
    ) -> None:
        """Call `went_back` if an object of a list of version `of` is older than known.

        `reported` is the version that a watch reported. A known version newer than the list's does
        not count: the object was written after the list was read.
        """
        written = self._objects.get(_place(kind, item.namespace, item.name), 0)
        number, present = _number(item.version), _number(of)
        if any(0 < number < seen <= present for seen in (written, _number(reported))):
            self.went_back()

    def went_back(self) -> None:
        """Forget all versions and end all watches, so that they list again; call the listeners.

        This is for an etcd that was restored to an earlier version.
        """
        self.era.set()
        self.era = asyncio.Event()
        self._newest.clear()
        self._objects.clear()
        for listener in tuple(self.listeners):
            listener()


def _place(kind: ObjectKind[Any, Any], namespace: str, name: str) -> _Place:
    return kind.group, kind.plural, namespace, name


def _number(version: str) -> int:
    """Return a resource version as a number; 0 for a text, as aggregated API servers may have."""
    with suppress(ValueError):
        return int(version)
    return 0
