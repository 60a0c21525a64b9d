"""Answers HTTP requests of few callers: the transport below metrics/server and webhook/server.

h11 knows the protocol, asyncio the sockets. Callers may be anybody who reaches the port, so what
one may cost is bounded: how many are connected, how long one is silent, how large a request is and
how long it takes. A caller that breaks off, or sends something else, ends its own connection alone.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from contextlib import suppress
from http import HTTPStatus

import h11

from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import contained

MOST_PIECES = 4096  # the largest body in packets of 1 KiB; each costs as much as many bytes
_IDLE_SECONDS = 120.0  # Prometheus scrapes once a minute; a Go client closes an idle one after 90
_CHUNK = 1 << 16


class HttpCall(Frozen):
    """The head of a request; `path` is without its query."""

    method: str
    path: str


class HttpReply(Frozen):
    """What a request is answered; `kind` is the type of the content."""

    status: HTTPStatus
    kind: str
    body: bytes


class HttpLimits(Frozen):
    """How many are connected, and what each may take.

    `seconds` is the time for a body to come, and for an answer to go. `goodbye` are the seconds
    that a caller has to end its side of TLS.
    """

    connections: int
    seconds: float
    goodbye: float = 1.0


class Body:
    """The bytes of a body that have come so far, at most `most`, copied once."""

    def __init__(self, most: int) -> None:
        self._most, self._pieces = most, 0
        self._content = bytearray()

    def take(self, piece: bytes | bytearray) -> bool:
        """Append a piece; False, and nothing is kept any more, when that is too much."""
        self._pieces += 1
        if self._pieces > MOST_PIECES or len(self._content) + len(piece) > self._most:
            self._content.clear()
            return False
        self._content += piece
        return True

    def whole(self) -> bytes:
        """All that came."""
        return bytes(self._content)


class HttpCaller:
    """The requests of one caller, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> None:
        self._reader, self._writer, self._seconds = reader, writer, seconds
        self._state = h11.Connection(h11.SERVER)
        self.peer = str(writer.get_extra_info("peername", ("",))[0])

    async def head(self) -> HttpCall | None:
        """The begin of the next request, None where no other comes."""
        async with asyncio.timeout(_IDLE_SECONDS):
            event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        path = event.target.decode("ascii", "replace").partition("?")[0]
        return HttpCall(event.method.decode("ascii"), path)

    async def body(self, most: int) -> bytes | None:
        """The rest of a request; None where it is too large, and not read to its end."""
        body = Body(most)
        async with asyncio.timeout(self._seconds):
            while isinstance(event := await self._event(), h11.Data):
                if not body.take(event.data):
                    return None
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionError("it hung up")
        return body.whole()

    async def send(self, answer: HttpReply) -> bool:
        """Answer a request; whether another may follow, which it may not behind half a body."""
        kind, size = answer.kind.encode(), str(len(answer.body)).encode()
        headers = [(b"content-type", kind), (b"content-length", size)]
        events = (
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        )
        self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
        async with asyncio.timeout(self._seconds):
            await self._writer.drain()
        if (self._state.our_state, self._state.their_state) != (h11.DONE, h11.DONE):
            return False
        self._state.start_next_cycle()
        return True

    async def _event(self) -> object:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(await self._reader.read(_CHUNK))
        return event


class HttpServer(ABC):
    """A server; a failure of one connection is one of `part`, in the log and in metrics."""

    def __init__(self, part: str, limits: HttpLimits) -> None:
        self._part, self._most = part, limits
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._server
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    @abstractmethod
    async def answer(self, call: HttpCall, caller: HttpCaller) -> HttpReply | None:
        """Read the body of a request and answer it; None ends the connection instead."""

    async def start(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Answer from now on, until `close`; raise OSError when nobody can listen there."""
        goodbye = self._most.goodbye if tls else None
        self._server = await asyncio.start_server(
            self._serve, host, port, ssl=tls, ssl_shutdown_timeout=goodbye
        )

    async def close(self) -> None:
        """Listen no more; whoever is still connected is cut off."""
        if self._server is None:
            return
        self._server.close()
        tasks = [task for task in self._open.values() if task]
        for writer in tuple(self._open):
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._most.connections:
            writer.transport.abort()  # and it counts for nothing: nobody waits for its goodbye
            return
        self._open[writer] = asyncio.current_task()
        try:
            with contained(self._part):
                await self._exchange(HttpCaller(reader, writer, self._most.seconds))
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()
            del self._open[writer]

    async def _exchange(self, caller: HttpCaller) -> None:
        try:
            while call := await caller.head():
                answer = await self.answer(call, caller)
                if answer is None or not await caller.send(answer):
                    break
        except (h11.ProtocolError, OSError, TimeoutError):
            pass  # nobody is left to hear an answer
