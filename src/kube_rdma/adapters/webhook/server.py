"""HTTPS for webhooks: bytes of a request in, bytes of an answer out.

Callers are few and trusted by the network alone, so how many of their requests are read at once is
bounded, beside what http_server.py bounds. Answers are made in one thread: the loop goes on
meanwhile, and renews the lead of this copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.http_server import HttpCall, HttpCaller, HttpLimits, HttpReply, HttpServer
from kube_rdma.adapters.webhook.held_identity import HeldIdentity
from kube_rdma.adapters.webhook.identity import ServerIdentity
from kube_rdma.adapters.webhook.peer_turns import PeerTurns

HEALTH = "/healthz"
# The API server waits 10 s for an answer at most, so a body that takes longer is for nobody.
_HTTP = HttpLimits(connections=256, seconds=10.0)
_PLAIN = "text/plain"

Answer = Callable[[bytes], bytes]


class WebhookLimits(Frozen):
    """What callers may take; bodies in memory, of `one_peer` and of `all_peers`."""

    one_peer: int = 4
    all_peers: int = 32
    http: HttpLimits = _HTTP


class WebhookServer(HttpServer):
    """Answers POST by path. An answer that raises Refused is status 400 with its sentence."""

    def __init__(
        self,
        identity: ServerIdentity | HeldIdentity,
        answers: Mapping[str, Answer],
        most_bytes: int,
        limits: WebhookLimits | None = None,
    ) -> None:
        limits = limits or WebhookLimits()
        super().__init__("admission connection", limits.http)
        self._identity, self._answers, self._most_bytes = identity, answers, most_bytes
        self._turns = PeerTurns(limits.one_peer, limits.all_peers)
        self._judge = ThreadPoolExecutor(1, "admission")

    async def listen(self, host: str | None, port: int) -> None:
        """Answer from now on, until `close`; raise Refused when nobody can listen there."""
        try:
            await self.start(host, port, self._identity.listening)
        except OSError as error:
            raise Refused(
                f"cannot listen on port {port} ({error.strerror or error})",
                remedy="Name a port that is free",
            ) from error

    async def answer(self, call: HttpCall, caller: HttpCaller) -> HttpReply:
        """Read a request when it is its peer's turn, and answer it."""
        async with self._turns.turn(caller.peer):
            return await self._answered(call, await caller.body(self._most_bytes))

    async def _answered(self, call: HttpCall, body: bytes | None) -> HttpReply:
        """What a request is answered; `body` is None where it is too large."""
        if call.path == HEALTH and call.method == "GET":
            return HttpReply(HTTPStatus.OK, _PLAIN, b"ok")
        judge = self._answers.get(call.path)
        if judge is None:
            return HttpReply(HTTPStatus.NOT_FOUND, _PLAIN, b"there is nothing at this path")
        if call.method != "POST":
            return HttpReply(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"send a POST")
        if body is None:
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            return HttpReply(status, _PLAIN, b"the request is too large")
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._judge, judge, body)
        except Refused as error:
            return HttpReply(HTTPStatus.BAD_REQUEST, _PLAIN, str(error).encode())
        return HttpReply(HTTPStatus.OK, "application/json", answer)
