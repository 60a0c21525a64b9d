"""One request, its answer and what it proves: below `objects`, `watching` and `events`.

An answer is a body or a KubeRdmaError; when the store behind the API server gave it, the agent was
in contact at the moment the request was sent. A server that is too busy (429) says when to ask
again, and is asked then: it has done nothing, so that is right for writes too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kube_rdma.adapters.backoff import full_jitter
from kube_rdma.adapters.cluster import wire
from kube_rdma.adapters.cluster.errors import Conflict, failure
from kube_rdma.adapters.cluster.kinds import ObjectKind, Where
from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma.model.frozen import Frozen

_SILENCE = 10.0  # seconds that the server may be late in ending a watch
_BUSY = 30.0  # seconds in all that one call waits for a server that is too busy
_SPREAD = 1.25  # times what it says, at most: or all clients come back in step


class RequestTiming(Frozen):
    """The clocks of a door; tests have their own.

    `clock` is monotonic, in seconds. `pause` says how long to wait after so many failures, counted
    from 0. A watch reads the whole list again after about `resync` seconds, so that a level cannot
    stay wrong and contact is proved even where nothing changes.
    """

    clock: Callable[[], float] = time.monotonic
    pause: Callable[[int], float] = full_jitter
    resync: float = 120.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class ApiRequests:
    """Requests to one API server."""

    def __init__(self, transport: wire.Transport, pace: RequestTiming) -> None:
        self._transport = transport
        self.pace = pace
        self.contact: float | None = None  # when the last answered request was sent

    async def call(self, request: wire.ApiRequest, *, text: bool = False) -> bytes:
        """Carry a request; the body of a success, else the error that the answer means.

        The API server speaks JSON; only what it passes on may be `text`.
        """
        waited = 0.0
        while True:
            sent = self.pace.clock()
            answer = await self._transport.send(request)
            if (pause := _busy(request, answer, waited)) is None:
                break
            await self.pace.sleep(pause)
            waited += pause
        if 200 <= answer.status < 300:
            if not answer.json and not text:
                raise Unavailable("What answers in place of the API server is something else.")
            self._touch(sent)
            return answer.body
        error = failure(request, answer)
        if isinstance(error, Conflict):
            self._touch(sent)
        raise error

    async def list(self, kind: ObjectKind[Any, Any], where: Where) -> tuple[str, tuple[bytes, ...]]:
        """The version of a consistent list and its objects, not yet decoded."""
        request = make("list", kind, "", where.namespace)
        return wire.items(await self.call(replace(request, query=wire.selection(where))))

    @asynccontextmanager
    async def stream(
        self, kind: ObjectKind[Any, Any], where: Where, version: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The changes after a version, a line each, until the server ends it."""
        # Spread, or all nodes that lost one server come back in step forever.
        seconds = max(1, round(self.pace.resync * random.uniform(0.75, 1.25)))  # noqa: S311
        query = (
            *wire.selection(where),
            ("watch", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(seconds)),
        )
        request = replace(make("watch", kind, "", where.namespace), query=query)
        async with self._transport.stream(request, seconds + _SILENCE) as stream:
            if stream.failure is None:
                yield stream.lines
                return
            refusal = stream.failure
        if pause := _busy(request, refusal, 0.0):  # the next round is not begun before
            await self.pace.sleep(pause)
        raise failure(request, refusal)

    @asynccontextmanager
    async def websocket(
        self, request: wire.ApiRequest, protocols: Sequence[str]
    ) -> AsyncIterator[wire.Websocket]:
        """A WebSocket while it is needed; raise what a refusal means."""
        async with self._transport.websocket(request, protocols) as socket:
            if isinstance(socket, wire.Answer):
                raise failure(request, socket)
            yield socket

    def local_address(self) -> str | None:
        """As Transport.local_address."""
        return self._transport.local_address()

    def _touch(self, sent: float) -> None:
        self.contact = sent if self.contact is None else max(sent, self.contact)


def _busy(request: wire.ApiRequest, answer: wire.Answer, waited: float) -> float | None:
    """Seconds until a busy server wants to be asked again; None to take its answer as it is."""
    if answer.status != 429 or answer.retry_after is None or waited + answer.retry_after > _BUSY:
        return None
    # An eviction's is a PodDisruptionBudget's "not now" (registry/core/pod/storage/eviction.go).
    if request.subresource == "eviction":
        return None
    return answer.retry_after * random.uniform(1.0, _SPREAD)  # noqa: S311  spreads load


def make(verb: str, kind: ObjectKind[Any, Any], name: str, namespace: str) -> wire.ApiRequest:
    """A request for one object, or for a collection; Refused for what cannot be a name."""
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
