"""HTTPS for webhooks: bytes of a request in, bytes of an answer out.

h11 knows the protocol, asyncio the sockets. Callers are few and trusted by the network alone, so
what one connection may cost is bounded: its silence, the size of a request, and how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

import h11

from kube_rdma.adapters.webhook.held_identity import HeldIdentity
from kube_rdma.adapters.webhook.identity import ServerIdentity
from kube_rdma.model.errors import Refused
from kube_rdma.model.frozen import Frozen

HEALTH = "/healthz"
_CONNECTIONS = 256
_IDLE_SECONDS = 120.0  # a Go client closes an idle connection after 90
_GOODBYE = 1.0  # seconds that a caller has to end its side of TLS
_CHUNK = 1 << 16

Answer = Callable[[bytes], bytes]


class ReviewCall(Frozen):
    """One request as it came; `body` is None where it is too large."""

    method: str
    path: str
    body: bytes | None


class WebhookServer:
    """Answers POST by path. An answer that raises Refused is status 400 with its sentence."""

    def __init__(
        self,
        identity: ServerIdentity | HeldIdentity,
        answers: Mapping[str, Answer],
        most_bytes: int,
    ) -> None:
        self._identity, self._answers, self._most = identity, answers, most_bytes
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
        context = self._identity.listening
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, ssl=context, ssl_shutdown_timeout=_GOODBYE
            )
        except OSError as error:
            raise Refused(
                f"cannot listen on port {port} ({error.strerror or error})",
                remedy="Name a port that is free",
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
        state = h11.Connection(h11.SERVER)
        try:
            while len(self._open) <= _CONNECTIONS:
                async with asyncio.timeout(_IDLE_SECONDS):
                    call = await self._next_call(state, reader)
                if call is None:
                    break
                writer.write(_sent(state, *self._answered(call)))
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

    async def _next_call(
        self, state: h11.Connection, reader: asyncio.StreamReader
    ) -> ReviewCall | None:
        """The next request, None where no other comes."""
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
                if sum(map(len, body)) > self._most:
                    return _call(head, None)
            elif isinstance(event, h11.EndOfMessage):
                return _call(head, b"".join(body))
            else:
                return None

    def _answered(self, call: ReviewCall) -> tuple[HTTPStatus, bytes]:
        """What a request is answered; the connection ends where a body is not read to its end."""
        if call.path == HEALTH and call.method == "GET":
            return HTTPStatus.OK, b"ok"
        answer = self._answers.get(call.path)
        if answer is None:
            return HTTPStatus.NOT_FOUND, b"there is nothing at this path"
        if call.method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, b"send a POST"
        if call.body is None:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"the request is too large"
        try:
            return HTTPStatus.OK, answer(call.body)
        except Refused as error:
            return HTTPStatus.BAD_REQUEST, str(error).encode()


def _call(head: h11.Request | None, body: bytes | None) -> ReviewCall:
    assert head
    target = head.target.decode("ascii", "replace")
    return ReviewCall(head.method.decode("ascii"), target.partition("?")[0], body)


def _sent(state: h11.Connection, status: HTTPStatus, body: bytes) -> bytes:
    kind = b"application/json" if status is HTTPStatus.OK and body != b"ok" else b"text/plain"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    parts = [
        state.send(h11.Response(status_code=status, headers=headers)),
        state.send(h11.Data(data=body)),
        state.send(h11.EndOfMessage()),
    ]
    return b"".join(part for part in parts if part)
