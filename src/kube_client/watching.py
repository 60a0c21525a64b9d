"""Watches objects of a kind: lists them, follows changes, and lists again to mend what it missed.

    list ─► stream ─► stream ─► … an hour, 410, etcd restored to an earlier version ─► list

A round is a stream of changes, which begins where the one before ended. A list reports only what
differs from what was reported before, so a missed change is put right by the next list. Where a
stream broke off or began badly, etcd may have been restored to an earlier version, and a new stream
would be silent. So the store's version is asked for before the next stream (`horizon`), or the
objects are listed, for kinds that say so. When a client finds out that etcd was restored, all of
its streams end. Between two rounds lies a jittered pause, longer after each failure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from math import inf
from typing import Generic, TypeVar

import msgspec

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen
from kube_client import wire
from kube_client.calls import ApiRequests
from kube_client.errors import Expired, failure
from kube_client.kinds import ObjectKind, Stored, Where

S = TypeVar("S")
U = TypeVar("U")

_HELD = 10.0  # seconds; a round that lasted so long was no failure
_PUNCTUAL = 0.9  # of its seconds: a stream that ends earlier was broken off
_SPREAD = 0.25  # of the time between two lists


class Changed(Frozen, Generic[S, U]):
    """An event of a watch: the object exists, in this state."""

    object: Stored[S, U]


class Deleted(Frozen):
    """An event of a watch: the object is gone, or no longer in the selection."""

    name: str
    namespace: str
    uid: str


class Muddled(Frozen):
    """An event of a watch: an object exists that its kind's codec cannot decode.

    `why` is a sentence.
    """

    name: str
    namespace: str
    why: str
    bug: Exception | None = None  # what the codec raised if that was no refusal


class Synced(Frozen):
    """An event of a watch: all objects that exist have been reported.

    It comes after every list, and when the stream continues after an outage; changes made meanwhile
    follow.
    """


class Cut(Frozen):
    """An event of a watch: changes are unknown until the next Synced; it comes once per outage."""

    why: str


WatchEvent = Changed[S, U] | Deleted | Muddled | Synced | Cut
"""An event that a watch yields."""


class Level(Generic[S, U]):
    """A watch of a selection of objects. `run` yields WatchEvents without end.

    Until the first Synced it raises Refused for a refusal (RBAC, no such resource). Later refusals
    are a Cut: an API server that starts forbids for seconds what it will allow.
    """

    def __init__(self, calls: ApiRequests, kind: ObjectKind[S, U], where: Where) -> None:
        self._calls = calls
        self._kind = kind
        self._where = where
        self._place = (kind.plural, where)
        self._reported: dict[tuple[str, str], wire.Identity] = {}  # by namespace and name
        self._version = ""  # up to which all was reported; none before the first list
        self._due = inf  # when the next list is
        self._era = calls.horizon.era
        self._is_sure = True  # whether nothing happened since that may have been a restore of etcd
        self._synced = False
        self._cut = False

    async def run(self) -> AsyncGenerator[WatchEvent[S, U], None]:
        """Yield the events of the watch without end, round after round, also after failures."""
        try:
            pace = self._calls.pace
            failures = 0
            while True:
                began = pace.clock()
                cut: Cut | None = None
                try:
                    async with aclosing(self._round()) as events:
                        async for event in events:
                            yield event
                except Expired:
                    self._version = ""
                except (Refused, Unavailable) as error:
                    self._calls.troubles[self._place] = error
                    if isinstance(error, Refused) and not self._synced:
                        raise
                    self._is_sure = False
                    cut = None if self._cut else Cut(str(error))
                if cut:
                    self._cut = True
                    yield cut
                failures = 0 if pace.clock() - began >= _HELD else failures + 1
                await asyncio.sleep(pace.pause(failures))
        except (GeneratorExit, asyncio.CancelledError):  # nobody waits for it any more
            self._calls.troubles.pop(self._place, None)
            raise

    async def _round(self) -> AsyncGenerator[WatchEvent[S, U], None]:
        clock = self._calls.pace.clock
        began = clock()
        is_due = not self._version or began >= self._due or self._is_over
        if is_due or (self._kind.is_listed_in_doubt and not self._is_sure):
            async for event in self._list():
                yield event
            yield self._sync()
        elif not self._is_sure:
            await self._calls.confirm(self._kind, self._where)
            if self._cut and not self._is_over:
                yield self._sync()
        if self._is_over:  # since the list, or shown by the answer
            return
        began = clock()
        async with self._calls.stream(self._kind, self._where, self._version) as changes:
            self._is_sure = False
            async with aclosing(changes.lines) as lines:
                async for data in lines:
                    change, item = wire.line(data)
                    for event in self._follow(change, item):
                        yield event
            self._is_sure = clock() - began >= _PUNCTUAL * changes.seconds

    @property
    def _is_over(self) -> bool:
        """Return whether etcd was found restored to an earlier version since the last list."""
        return self._era is not self._calls.horizon.era

    def _sync(self) -> Synced:
        self._synced, self._cut, self._is_sure = True, False, True
        self._calls.troubles.pop(self._place, None)
        return Synced()

    async def _list(self) -> AsyncGenerator[WatchEvent[S, U], None]:
        """List the objects, and yield the differences from what was reported before."""
        self._version = ""
        era = self._calls.horizon.era
        present, version = set(), ""
        async for page in self._calls.list(self._kind, self._where):
            version = page.version
            for item in page.items:
                new = wire.identity(item)
                present.add(new.key)
                self._judge(new, version)
                for event in self._show(new, item):
                    yield event
        for key in [key for key in self._reported if key not in present]:
            yield self._forget(self._reported[key])
        self._version, self._era = version, era
        hour = self._calls.pace.resync
        self._due = self._calls.pace.clock() + hour * (1 + random.uniform(0, _SPREAD))  # noqa: S311

    def _judge(self, new: wire.Identity, version: str) -> None:
        """Check one object of a list: a version older than known shows that etcd was restored."""
        if not self._is_over:
            old = self._reported.get(new.key)
            reported = old.version if old else ""
            self._calls.horizon.listed(self._kind, new, version, reported)

    def _follow(self, change: str, item: msgspec.Raw) -> Iterator[WatchEvent[S, U]]:
        """Yield the events in a line of the watch's stream, if any; raise the error in an ERROR."""
        if change == "ERROR":
            kind = self._kind
            request = wire.ApiRequest("watch", kind.group, kind.version, kind.plural)
            raise failure(request, wire.answer_of(item), self._calls.program)
        new = wire.identity(item)
        match change:
            case "ADDED" | "MODIFIED":
                yield from self._show(new, item)
            case "DELETED" if new.key in self._reported:
                yield self._forget(new)
        self._version = new.version
        if not self._is_over:
            self._calls.horizon.shown(self._kind, new.version)

    def _show(self, new: wire.Identity, item: msgspec.Raw) -> Iterator[WatchEvent[S, U]]:
        old = self._reported.get(new.key)
        if old == new:
            return
        if old and old.uid != new.uid:
            yield self._forget(old)
        self._reported[new.key] = new
        try:
            yield Changed(wire.stored(self._kind, item))
        except wire.Unreadable as error:
            yield Muddled(new.name, new.namespace, str(error), error.bug)

    def _forget(self, gone: wire.Identity) -> Deleted:
        del self._reported[gone.key]
        return Deleted(gone.name, gone.namespace, gone.uid)
