"""HTTP for Prometheus: GET and HEAD of /metrics are answered, anything else refused in a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.http_server import HttpCall, HttpCaller, HttpLimits, HttpReply, HttpServer

PATH = "/metrics"
LIMITS = HttpLimits(connections=64, seconds=10.0)
_MOST_BYTES = 1 << 14  # of a body, which a GET has none of
_PLAIN = "text/plain; charset=utf-8"

Answer = Callable[[], Awaitable[bytes]]


class MetricsServer(HttpServer):
    """Answers with what `text` gives; Unavailable is status 503 with its sentence."""

    def __init__(self, text: Answer, content_type: str) -> None:
        super().__init__("metrics connection", LIMITS)
        self._text, self._type = text, content_type

    async def listen(self, host: str | None, port: int) -> None:
        """Answer from now on, until `close`; raise Refused when nobody can listen there."""
        try:
            await self.start(host, port)
        except OSError as error:
            raise Refused(
                f"cannot listen on {host or '*'}:{port} ({error.strerror or error})",
                remedy="Name an address of this node and a port that is free",
                where="--metrics-address",
            ) from error

    async def answer(self, call: HttpCall, caller: HttpCaller) -> HttpReply | None:
        """Answer a scrape; a body that is too long ends the connection."""
        if not await caller.has_ended(_MOST_BYTES):
            return None
        if call.path != PATH:
            return _refusal(HTTPStatus.NOT_FOUND, "there is nothing but /metrics")
        if call.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "send a GET")
        try:
            return HttpReply(HTTPStatus.OK, self._type, await self._text())
        except Unavailable as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _refusal(status: HTTPStatus, sentence: str) -> HttpReply:
    return HttpReply(status, _PLAIN, f"{sentence}\n".encode())
