"""Sends requests to one API server, and notes which version of the store a list shows.

`objects` and `watching` send through it. An answer is a body or a KubeError. A server that is too
busy (429) may say when to ask again, and is asked then, within _BUSY seconds. A server that was too
busy has done nothing, so writes are repeated too, except evictions.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client import wire
from kube_client.errors import failure
from kube_client.horizon import Horizon
from kube_client.kinds import ObjectKind, Where

_SILENCE = 10.0  # seconds that the server may be late in ending a watch
_BUSY = 30.0  # seconds in all that one call waits for a server that is too busy
_PAGE_BYTES = 4 << 20  # that the next page of a list should have, estimated from the last page
_PAGE_OBJECTS = 500
_SPREAD = 1.25  # most times the seconds that a server names: else all clients come back in step

log = logging.getLogger(__name__)


class RequestTiming(Frozen):
    """The waits and limits of a client of the API server, in seconds, with its clock."""

    clock: Callable[[], float] = time.monotonic
    pause: Callable[[int], float] = full_jitter  # until the next try, by failures in a row
    stream: float = 450.0  # that a stream lasts, give or take a quarter
    # After it, and up to a quarter more, a watch lists again, so that no missed change lasts.
    resync: float = 3600.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    patience: float = 0.0  # of silence that end a request, if fewer than ANSWER_SECONDS; 0: unset


class Changes(Frozen):
    """An open watch: its lines, and the seconds after which the server is to end it."""

    lines: AsyncGenerator[bytes, None]
    seconds: float


class ApiRequests:
    """A sender of requests to one API server."""

    def __init__(self, transport: wire.Transport, pace: RequestTiming, program: str) -> None:
        self._transport = transport
        self.pace = pace
        self.program = program
        self.horizon = Horizon()
        self.troubles: dict[tuple[str, Where], KubeError] = {}  # by plural and selection

    async def call(self, request: wire.ApiRequest) -> bytes:
        """Send a request; return the body of a success, else raise the answer's error."""
        waited = 0.0
        while True:
            answer = await self._transport.send(request)
            log.debug("%s: status %d", request, answer.status)
            if (pause := _busy(request, answer, waited)) is None:
                break
            await self.pace.sleep(pause)
            waited += pause
        if 200 <= answer.status < 300:
            if not answer.json:
                raise Unavailable("What answers in place of the API server is something else.")
            return answer.body
        raise failure(request, answer, self.program)

    async def list(self, kind: ObjectKind[Any, Any], where: Where) -> AsyncIterator[wire.Page]:
        """Yield the pages of a consistent list; raise Expired when the next page is gone.

        The bytes of one page decide how many objects the next one is asked for. `resourceVersion=0`
        is not sent: the server would read its cache, which may be older than what was seen, and
        ignore the limit (apiserver's cacher).
        """
        request = make("list", kind, "", where.namespace)
        mark, limit, following = self.horizon.mark(kind), kind.page, ""
        while True:
            query = (*wire.selection(where), ("limit", str(limit)))
            if following:
                query = (*query, ("continue", following))
            page = wire.page(await self.call(replace(request, query=query)))
            self.horizon.shown(kind, page.version, mark)
            yield page
            following = page.following
            if not following:
                return
            weighed = limit * _PAGE_BYTES // max(page.size, 1)
            limit = max(1, min(weighed, 4 * limit, _PAGE_OBJECTS))

    async def confirm(self, kind: ObjectKind[Any, Any], where: Where) -> None:
        """List one object to learn the store's newest version, and note that version.

        A version lower than known ends all streams, for it shows that etcd was restored.
        """
        request = make("list", kind, "", where.namespace)
        query = (*wire.selection(Where(name=where.name)), ("limit", "1"))
        mark = self.horizon.mark(kind)
        page = wire.page(await self.call(replace(request, query=query)))
        self.horizon.shown(kind, page.version, mark)

    @asynccontextmanager
    async def stream(
        self, kind: ObjectKind[Any, Any], where: Where, version: str
    ) -> AsyncIterator[Changes]:
        """Yield an open watch of the changes after a version.

        Its lines end with the server's stream, or when etcd is found restored to an earlier
        version. Raise the error for a refusal, of a busy server after the wait that it asks for.
        """
        # Spread, or all nodes that lost one server come back in step forever.
        seconds = max(1, round(self.pace.stream * random.uniform(0.75, 1.25)))  # noqa: S311
        query = (
            *wire.selection(where),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(seconds)),
        )
        request = replace(make("watch", kind, "", where.namespace), query=query)
        era = self.horizon.era
        async with self._transport.stream(request, seconds + _SILENCE) as stream:
            if stream.failure is None:
                yield Changes(_until(stream.lines, era), seconds)
                return
            refusal = stream.failure
        if pause := _busy(request, refusal, 0.0):  # so that the caller does not ask again earlier
            await self.pace.sleep(pause)
        raise failure(request, refusal, self.program)

    @asynccontextmanager
    async def websocket(
        self, request: wire.ApiRequest, protocols: Sequence[str]
    ) -> AsyncIterator[wire.Websocket]:
        """Yield a WebSocket for the block; raise the error for a refusal of the API server."""
        async with self._transport.websocket(request, protocols) as socket:
            if isinstance(socket, wire.Answer):
                raise failure(request, socket, self.program)
            yield socket

    def local_address(self) -> str | None:
        """Return this side's IP address of the newest connection, None before the first."""
        return self._transport.local_address()


async def _until(lines: AsyncIterator[bytes], over: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Yield the lines until they end or the event `over` is set."""
    ending = asyncio.create_task(over.wait())
    reading = asyncio.create_task(_next(lines))
    try:
        while True:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() or (line := reading.result()) is None:
                return
            yield line
            reading = asyncio.create_task(_next(lines))
    finally:
        ending.cancel()
        reading.cancel()
        await asyncio.gather(ending, reading, return_exceptions=True)


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    return await anext(lines, None)


def _busy(request: wire.ApiRequest, answer: wire.Answer, waited: float) -> float | None:
    """Return the seconds to wait before asking a busy server again; None to keep its answer."""
    if answer.status != 429 or answer.retry_after is None or waited + answer.retry_after > _BUSY:
        return None
    # An eviction's is a PodDisruptionBudget's "not now" (registry/core/pod/storage/eviction.go).
    if request.subresource == "eviction":
        return None
    return answer.retry_after * random.uniform(1.0, _SPREAD)  # noqa: S311  spreads load


def make(verb: str, kind: ObjectKind[Any, Any], name: str, namespace: str) -> wire.ApiRequest:
    """Return a request for an object or collection; raise Refused for an invalid name.

    Raise TypeError for a namespace with a cluster-scoped kind, or for none where `verb` needs one.
    """
    if namespace and not kind.namespaced:
        raise TypeError(f"{kind.kind} has no namespace")
    if not namespace and kind.namespaced and verb not in {"list", "watch"}:
        raise TypeError(f"{kind.kind} needs a namespace")
    for part in (name, namespace):
        # A path segment, as apimachinery's IsValidPathSegmentName allows it.
        if part in {".", ".."} or "/" in part or "%" in part:
            raise Refused(
                f"{part!r} cannot be a name of an object", remedy="Use letters, digits, - and ."
            )
    return wire.ApiRequest(verb, kind.group, kind.version, kind.plural, namespace, name)
