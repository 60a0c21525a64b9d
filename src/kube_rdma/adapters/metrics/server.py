"""HTTP for Prometheus: a GET of /metrics is answered, anything else refused in a line.

h11 knows the protocol, asyncio the sockets. Whoever reaches the port may ask, so what callers may
cost is bounded: how many are connected, how long one is silent, how large a request is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import h11

from kube_base.errors import Refused, Unavailable

PATH = "/metrics"
CONNECTIONS = 16
_IDLE_SECONDS = 120.0  # Prometheus keeps a connection from one scrape to the next
_CHUNK = 1 << 14
_MOST_BYTES = 1 << 14  # of what comes before and with a request
_PLAIN = "text/plain; charset=utf-8"

Answer = Callable[[], Awaitable[bytes]]


class MetricsServer:
    """Answers with what `answer` gives; Unavailable is status 503 with its sentence."""

    def __init__(self, answer: Answer, content_type: str) -> None:
        self._answer, self._type = answer, content_type
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._server
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def listen(self, host: str | None, port: int) -> None:
        """Answer from now on, until `close`; raise Refused when nobody can listen there."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise Refused(
                f"cannot listen on {host or '*'}:{port} ({error.strerror or error})",
                remedy="Name an address of this node and a port that is free",
                where="--metrics-address",
            ) from error

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
        self._open[writer] = asyncio.current_task()
        state = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_BYTES)
        try:
            while len(self._open) <= CONNECTIONS:
                async with asyncio.timeout(_IDLE_SECONDS):
                    request = await _next_request(state, reader)
                if request is None:
                    break
                writer.write(_sent(state, *await self._answered(request)))
                await writer.drain()
                if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
                    break
                state.start_next_cycle()
        except (h11.ProtocolError, OSError, TimeoutError):
            pass  # nobody is left to hear an answer
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()
            del self._open[writer]

    async def _answered(self, request: h11.Request) -> tuple[HTTPStatus, str, bytes]:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if path != PATH:
            return HTTPStatus.NOT_FOUND, _PLAIN, b"there is nothing but /metrics\n"
        if request.method != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"send a GET\n"
        try:
            return HTTPStatus.OK, self._type, await self._answer()
        except Unavailable as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{error}\n".encode()


async def _next_request(state: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request, None where no other comes or one is too long."""
    request: h11.Request | None = None
    size = 0
    while True:
        event = state.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_CHUNK)
            size += len(data)
            if size > _MOST_BYTES:
                return None
            state.receive_data(data)
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif not isinstance(event, h11.Data):
            return None


def _sent(state: h11.Connection, status: HTTPStatus, kind: str, body: bytes) -> bytes:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    parts = [
        state.send(h11.Response(status_code=status, headers=headers)),
        state.send(h11.Data(data=body)),
        state.send(h11.EndOfMessage()),
    ]
    return b"".join(part for part in parts if part)
