"""A level that heals itself: what is there, reported as changes.

A round is a list and then the stream of changes after it, until the server ends the stream. Every
round lists again and reports only what differs from what was reported before, so a broken
connection, a forgotten version (410) and a missed change all end in the same way: the next round
puts it right. Between two rounds lies a jittered pause, longer after each failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Generic, TypeVar

from kube_rdma.adapters.cluster import wire
from kube_rdma.adapters.cluster.calls import ApiRequests
from kube_rdma.adapters.cluster.errors import Expired, failure
from kube_rdma.adapters.cluster.kinds import ObjectKind, Stored, Where
from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma.model.frozen import Frozen

S = TypeVar("S")
U = TypeVar("U")

_HELD = 10.0  # seconds; a round that lasted so long was no failure


class Changed(Frozen, Generic[S, U]):
    """The object is there, and is like this."""

    object: Stored[S, U]


class Deleted(Frozen):
    """The object is no more, or no longer belongs to the selection."""

    name: str
    namespace: str
    uid: str


class Muddled(Frozen):
    """The object is there, but the codec does not understand it; `why` is a sentence."""

    name: str
    namespace: str
    why: str


class Synced(Frozen):
    """All that was there at `contact` (Pace.clock) has been reported. Comes with every round."""

    contact: float


class Cut(Frozen):
    """Nothing is known of changes until the next Synced; reported once per outage."""

    why: str


Notice = Changed[S, U] | Deleted | Muddled | Synced | Cut


class Level(Generic[S, U]):
    """One watch. `run` yields Notices without end.

    Raise Refused when the very first list is refused (RBAC, no such resource). Later refusals are
    a Cut: an API server that starts forbids for seconds what it will allow.
    """

    def __init__(self, calls: ApiRequests, kind: ObjectKind[S, U], where: Where) -> None:
        self._calls = calls
        self._kind = kind
        self._where = where
        self._reported: dict[tuple[str, str], wire.Identity] = {}  # by namespace and name
        self._synced = False
        self._cut = False

    async def run(self) -> AsyncGenerator[Notice[S, U], None]:
        """Round after round."""
        pace = self._calls.pace
        failures = 0
        while True:
            began = pace.clock()
            cut: Cut | None = None
            try:
                async with aclosing(self._round()) as notices:
                    async for notice in notices:
                        yield notice
            except Expired:
                pass  # the list is next anyway
            except (Refused, Unavailable) as error:
                if isinstance(error, Refused) and not self._synced:
                    raise
                cut = None if self._cut else Cut(str(error))
            if cut:
                self._cut = True
                yield cut
            failures = 0 if pace.clock() - began >= _HELD else failures + 1
            await asyncio.sleep(pace.pause(failures))

    async def _round(self) -> AsyncGenerator[Notice[S, U], None]:
        began = self._calls.pace.clock()
        version, documents = await self._calls.list(self._kind, self._where)
        for notice in self._compare(documents):
            yield notice
        self._synced, self._cut = True, False
        yield Synced(began)
        async with self._calls.stream(self._kind, self._where, version) as lines:
            async for data in lines:
                change, item = wire.line(data)
                for notice in self._follow(change, item):
                    yield notice

    def _compare(self, documents: tuple[bytes, ...]) -> Iterator[Notice[S, U]]:
        """What differs between a list and what was reported."""
        present = {wire.identity(item).key: item for item in documents}
        for key in [key for key in self._reported if key not in present]:
            yield self._forget(self._reported[key])
        for item in present.values():
            yield from self._show(item)

    def _follow(self, change: str, item: bytes) -> Iterator[Notice[S, U]]:
        """What a line of the stream says."""
        match change:
            case "ADDED" | "MODIFIED":
                yield from self._show(item)
            case "DELETED":
                gone = wire.identity(item)
                if gone.key in self._reported:
                    yield self._forget(gone)
            case "ERROR":
                request = wire.ApiRequest(
                    "watch", self._kind.group, self._kind.version, self._kind.plural
                )
                raise failure(request, wire.answer_of(item))

    def _show(self, item: bytes) -> Iterator[Notice[S, U]]:
        new = wire.identity(item)
        old = self._reported.get(new.key)
        if old == new:
            return
        if old and old.uid != new.uid:
            yield self._forget(old)
        self._reported[new.key] = new
        try:
            yield Changed(wire.stored(self._kind, item))
        except wire.Unreadable as error:
            yield Muddled(new.name, new.namespace, str(error))

    def _forget(self, gone: wire.Identity) -> Deleted:
        del self._reported[gone.key]
        return Deleted(gone.name, gone.namespace, gone.uid)
