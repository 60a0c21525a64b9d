"""HTTPS for webhooks: bytes of a request in, bytes of an answer out.

h11 knows the protocol, asyncio the sockets. Callers are few and trusted by the network alone, so
what one may cost is bounded: its silence, the size of a request and the time that it takes, how
many of its requests are read at once, and how many connections there are. Answers are made in one
thread: the loop goes on meanwhile, and renews the lead of this copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus

import h11

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.webhook.bodies import Body, PeerTurns
from kube_rdma.adapters.webhook.held_identity import HeldIdentity
from kube_rdma.adapters.webhook.identity import ServerIdentity

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


class WebhookLimits(Frozen):
    """Bodies in memory, of `one_peer` and of `all_peers`; seconds in which one has to come."""

    one_peer: int = 4
    all_peers: int = 32
    body_seconds: float = 10.0  # the API server waits for an answer as long as this at most


class WebhookServer:
    """Answers POST by path. An answer that raises Refused is status 400 with its sentence."""

    def __init__(
        self,
        identity: ServerIdentity | HeldIdentity,
        answers: Mapping[str, Answer],
        most_bytes: int,
        limits: WebhookLimits | None = None,
    ) -> None:
        self._identity, self._answers, self._most = identity, answers, most_bytes
        self._limits = limits or WebhookLimits()
        self._turns = PeerTurns(self._limits.one_peer, self._limits.all_peers)
        self._judge = ThreadPoolExecutor(1, "admission")
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
        if len(self._open) >= _CONNECTIONS:
            writer.transport.abort()  # and it counts for nothing: nobody waits for its goodbye
            return
        self._open[writer] = asyncio.current_task()
        try:
            with contained("admission connection"):
                await self._exchange(reader, writer)
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()
            del self._open[writer]

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other."""
        state = h11.Connection(h11.SERVER)
        peer = str(writer.get_extra_info("peername", ("",))[0])
        try:
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    head = await _next_event(state, reader)
                if not isinstance(head, h11.Request):
                    break
                async with self._turns.turn(peer):
                    async with asyncio.timeout(self._limits.body_seconds):
                        body = await self._body(state, reader)
                    answer = await self._answered(_call(head, body))
                writer.write(_sent(state, *answer))
                async with asyncio.timeout(self._limits.body_seconds):
                    await writer.drain()
                if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
                    break
                state.start_next_cycle()
        except (h11.ProtocolError, OSError, TimeoutError):
            pass  # nobody is left to hear an answer

    async def _body(self, state: h11.Connection, reader: asyncio.StreamReader) -> bytes | None:
        """The rest of a request; None where it is too large, and not read to its end."""
        body = Body(self._most)
        while isinstance(event := await _next_event(state, reader), h11.Data):
            if not body.take(event.data):
                return None
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionError("it hung up")
        return body.whole()

    async def _answered(self, call: ReviewCall) -> tuple[HTTPStatus, bytes]:
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
        loop = asyncio.get_running_loop()
        try:
            return HTTPStatus.OK, await loop.run_in_executor(self._judge, answer, call.body)
        except Refused as error:
            return HTTPStatus.BAD_REQUEST, str(error).encode()


async def _next_event(state: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := state.next_event()) is h11.NEED_DATA:
        state.receive_data(await reader.read(_CHUNK))
    return event


def _call(head: h11.Request, body: bytes | None) -> ReviewCall:
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
