"""Answers GET and HEAD of a few paths by HTTP: Prometheus and the kubelet's probes ask.

h11 knows the protocol, asyncio the sockets. Callers may be anybody who reaches the port, so what
one may cost is bounded. There are limits for connections, also of one address, for silence, and for
the size and time of a request. When all places are taken, a new connection may replace an idle one,
or one of an address with many. A caller that breaks off, or sends no HTTP, ends only its own
connection.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

import h11
import structlog

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import contained

HEAD_SECONDS = 10.0  # from a request's first byte to its last header; the first: from connecting
_IDLE_SECONDS = 120.0  # Prometheus scrapes once a minute; a Go client closes an idle one after 90
_CHUNK = 1 << 16
_LEAST_PACKED = 1 << 10  # bytes: a smaller body is in one packet anyway
_GZIP = re.compile(r"gzip(;q=(1|1\.0*|0?\.[0-9]*[1-9][0-9]*))?", re.IGNORECASE)

_MOST_BYTES = 1 << 14  # of a body, which a GET has none of
_PLAIN = "text/plain; charset=utf-8"

log = structlog.get_logger()


class HttpCall(Frozen):
    """The head of a request; `path` is without its query."""

    method: str
    path: str


class HttpReply(Frozen):
    """The answer to a request; `kind` is the type of the content."""

    status: HTTPStatus
    kind: str
    body: bytes


class HttpLimits(Frozen):
    """The limits of connections and requests that a server accepts."""

    connections: int
    seconds: float  # for a body to come, and for an answer to go
    one_peer: int = 8  # connections of an address


class HttpCaller:
    """An HTTP connection of one caller, whose requests come one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> None:
        self._reader, self._writer, self._seconds = reader, writer, seconds
        self._state = h11.Connection(h11.SERVER)
        self._patience = HEAD_SECONDS
        self._packs = self._wants_body = False
        self.peer = str(writer.get_extra_info("peername", ("",))[0])
        self.waits = True
        """This is true while no head of a request has come since the last answer."""

    async def head(self) -> HttpCall | None:
        """Return the head of the connection's next request, None at its end."""
        self.waits = True
        async with asyncio.timeout(self._patience) as limit:
            event = await self._event(limit)
        if not isinstance(event, h11.Request):
            return None
        self.waits, self._patience = False, _IDLE_SECONDS
        method, headers = event.method.decode("ascii"), dict(event.headers)
        codings = headers.get(b"accept-encoding", b"").decode("ascii", "replace")
        self._packs = any(_GZIP.fullmatch(one.replace(" ", "")) for one in codings.split(","))
        self._wants_body = method != "HEAD"
        return HttpCall(method, event.target.decode("ascii", "replace").partition("?")[0])

    async def has_ended(self, most: int) -> bool:
        """Read and drop the rest of a request; return whether it ended.

        Return False if it has more than `most` bytes or the connection is closed before.
        """
        size = 0
        async with asyncio.timeout(self._seconds):
            if self._state.they_are_waiting_for_100_continue:
                await self._tell(h11.InformationalResponse(status_code=100, headers=[]))
            while isinstance(event := await self._event(), h11.Data):
                size += len(event.data)
                if size > most:
                    return False
        return isinstance(event, h11.EndOfMessage)

    async def send(self, answer: HttpReply) -> bool:
        """Send an answer; return False if the connection must be closed then."""
        body, headers = answer.body, [(b"content-type", answer.kind.encode())]
        if self._packs and len(body) >= _LEAST_PACKED:
            body = await asyncio.to_thread(zlib.compress, body, 1, 16 + zlib.MAX_WBITS)
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", str(len(body)).encode()))
        async with asyncio.timeout(self._seconds):
            await self._tell(h11.Response(status_code=answer.status, headers=headers))
            for start in range(0, len(body) if self._wants_body else 0, _CHUNK):
                await self._tell(h11.Data(data=body[start : start + _CHUNK]))
            await self._tell(h11.EndOfMessage())
        if (self._state.our_state, self._state.their_state) != (h11.DONE, h11.DONE):
            return False
        self._state.start_next_cycle()
        return True

    def cut_off(self) -> None:
        """Abort the connection at once."""
        self._writer.transport.abort()

    async def _tell(self, event: h11.Event) -> None:
        self._writer.write(self._state.send(event) or b"")
        await self._writer.drain()  # so that of a long answer only a piece waits in memory

    async def _event(self, limit: asyncio.Timeout | None = None) -> object:
        """Return the next HTTP event; the first bytes of a head bring the time limit nearer."""
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(await self._reader.read(_CHUNK))
            if limit and (end := limit.when()):
                soon = asyncio.get_running_loop().time() + HEAD_SECONDS
                limit.reschedule(min(end, soon))
        return event


LIMITS = HttpLimits(connections=64, seconds=10.0)


class HttpServer:
    """An HTTP server that answers each path with what a function returns.

    Unavailable becomes status 503 with its text. An unexpected error is logged and counted, and
    ends only its own connection. `option` is the command's option for the address, for messages.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Awaitable[bytes]]],
        option: str,
        content_type: str = _PLAIN,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self._pages, self._option, self._type, self._limits = pages, option, content_type, limits
        self._open: dict[HttpCaller, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port on which the server listens, once it does."""
        assert self._server
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def listen(self, host: str | None, port: int) -> None:
        """Begin to answer, until `close`; raise Refused when the address cannot be used."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise Refused(
                f"cannot listen on {host or '*'}:{port} ({error.strerror or error})",
                remedy="Name an address of this node and a port that is free",
                where=self._option,
            ) from error

    async def run(self, host: str | None, port: int, event: str) -> None:
        """Answer until cancelled, and log the start.

        Raise Refused when the address cannot be used.
        """
        await self.listen(host, port)
        log.info(event, address=host or "*", port=self.port)
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop listening, and cut all open connections off."""
        if self._server is None:
            return
        self._server.close()
        tasks = [task for task in self._open.values() if task]
        for caller in tuple(self._open):
            caller.cut_off()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = HttpCaller(reader, writer, self._limits.seconds)
        if not self._has_room(caller.peer):
            caller.cut_off()
            return
        self._open[caller] = asyncio.current_task()
        try:
            with contained("HTTP connection"):
                await self._exchange(caller)
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()
            self._open.pop(caller, None)

    async def _exchange(self, caller: HttpCaller) -> None:
        """Answer one request after another of a connection; tests/fuzz calls it directly."""
        with suppress(h11.ProtocolError, OSError, TimeoutError):  # nobody is left to hear an answer
            while call := await caller.head():
                answer = await self._answer(call, caller)
                if answer is None or not await caller.send(answer):
                    break

    def _has_room(self, peer: str) -> bool:
        """Decide whether to accept a connection from this address, perhaps in place of another.

        An address at its limit loses an idle connection of its own. When all places are taken, an
        idle connection is cut off, or one of an address with at least two connections more than
        this one. The address with the most connections loses one first.
        """
        counts = Counter(each.peer for each in self._open)
        is_crowd = counts[peer] >= self._limits.one_peer
        if not is_crowd and len(self._open) < self._limits.connections:
            return True
        spare = [
            each
            for each in self._open
            if (each.waits or counts[each.peer] > counts[peer] + 1)
            and (each.peer == peer or not is_crowd)
        ]
        if spare:
            worst = max(spare, key=lambda each: (counts[each.peer], each.waits))
            worst.cut_off()
            del self._open[worst]
        return bool(spare)

    async def _answer(self, call: HttpCall, caller: HttpCaller) -> HttpReply | None:
        """Return the answer to a call; None ends the connection, as for a body that is too long."""
        if not await caller.has_ended(_MOST_BYTES):
            return None
        if call.path not in self._pages:
            paths = " and ".join(self._pages)
            return _refusal(HTTPStatus.NOT_FOUND, f"there is nothing but {paths}")
        if call.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "send a GET")
        try:
            return HttpReply(HTTPStatus.OK, self._type, await self._pages[call.path]())
        except Unavailable as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _refusal(status: HTTPStatus, sentence: str) -> HttpReply:
    return HttpReply(status, _PLAIN, f"{sentence}\n".encode())
