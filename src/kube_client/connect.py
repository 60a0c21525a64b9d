"""The way to a real API server: who asks, whom to trust, and requests over HTTP.

    kubeconfig ─► credentials ─┐
               ─► tls, route ──┴─► http ─► Http, a Transport

Nothing below knows Kubernetes' objects, nothing above knows sockets and tokens.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import h11
import structlog
from msgspec import structs

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_client.calls import RequestTiming
from kube_client.credentials import Credential, Credentials, find_credentials, impersonation
from kube_client.errors import WebsocketFault
from kube_client.http import (
    ANSWER_SECONDS,
    NOTICE_SECONDS,
    HttpAnswer,
    HttpClient,
    HttpRequest,
    HttpUpgrade,
)
from kube_client.kinds import Pairs
from kube_client.kubeconfig import Access, find_access
from kube_client.objects import Cluster
from kube_client.route import ServerRoute, find_route
from kube_client.tls import client_context
from kube_client.wire import Answer, ApiRequest, Stream, Websocket

if TYPE_CHECKING:
    from kube_client.websocket import Handshake

log = structlog.get_logger()

_SILENCE = "silence"  # the topic of the notices about it
_ACCEPT = (("Accept", "application/json"),)


@asynccontextmanager
async def connect(
    kubeconfig: Path | None = None,
    *,
    user_agent: str,
    context: str = "",
    namespace: str = "",
    user: str = "",
    pace: RequestTiming | None = None,
) -> AsyncIterator[Cluster]:
    """Yield a client of the API server; it asks nothing yet.

    `user_agent` is ``name/version`` of the program; its name is the field manager of writes.
    Without `kubeconfig` the file is found as kubectl does (find_access). `context`, `namespace` and
    `user` (to impersonate) override what the file names. Raise Refused when the file, its TLS files
    or the proxy cannot be used.
    """
    access = find_access(kubeconfig, context=context)
    if user:
        access = replace(access, user=structs.replace(access.user, impersonate=user))
    route = find_route(access.server, os.environ)
    if route.tls:
        client_context(access)  # what is wrong with its files is said now
    pace = pace or RequestTiming()
    seconds = min(pace.patience or ANSWER_SECONDS, ANSWER_SECONDS)
    transport = Http(access, route, user_agent, seconds)
    try:
        program = user_agent.partition("/")[0]
        names = {"namespace": namespace or access.namespace, "server": route.authority}
        yield Cluster(transport, pace, program=program, **names)
    finally:
        transport.close()


class Http:
    """A Transport that talks HTTP to a real API server, with its credentials and TLS."""

    def __init__(
        self, access: Access, route: ServerRoute, user_agent: str, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._seconds = seconds
        self._access = access
        self._route = route
        self._credentials: Credentials = find_credentials(access)
        self._certificate = b""  # a plugin's
        self._fixed = (
            ("Host", route.authority),
            ("User-Agent", user_agent),
            *impersonation(access.user),
        )
        self._client = HttpClient(route, self._tls if route.tls else None, self._silent)
        self._notices = Notices()

    async def send(self, request: ApiRequest) -> Answer:
        """Send a request and return the whole answer; raise Unavailable when none comes."""
        async with AsyncExitStack() as stack:
            with self._asking(request, self._seconds):
                return await _whole(await self._enter(stack, request, self._seconds))

    @asynccontextmanager
    async def stream(self, request: ApiRequest, seconds: float) -> AsyncIterator[Stream]:
        """Yield the stream of a watch; raise Unavailable when it breaks, also in the block."""
        async with AsyncExitStack() as stack:
            failure: Answer | None = None
            with self._asking(request, seconds):
                answer = await self._enter(stack, request, seconds)
                if not 200 <= answer.status < 300:
                    failure = await _whole(answer)
            yield Stream(self._lines(request, answer, seconds), failure)

    @asynccontextmanager
    async def websocket(
        self, request: ApiRequest, protocols: Sequence[str]
    ) -> AsyncIterator[Websocket | Answer]:
        """Yield a WebSocket, or the answer that refuses it; raise Unavailable without an answer."""
        from kube_client.websocket import Handshake, OpenWebsocket  # few programs speak it

        offer = Handshake(protocols)
        async with AsyncExitStack() as stack:
            with self._asking(request):
                upgrade = await self._upgraded(stack, request, offer)
                refusal = None if upgrade.connection else await _whole(upgrade.answer)
            if upgrade.connection is None:
                assert refusal is not None
                yield refusal
                return
            with self._asking(request):
                protocol = offer.accepted(upgrade.answer.headers)
            yield OpenWebsocket(upgrade.connection, protocol, partial(self._asking, request))

    def local_address(self) -> str | None:
        """Return this side's IP address of the newest connection, None before the first."""
        return self._client.local_address

    def close(self) -> None:
        """Close the connections that are idle."""
        self._client.forget()

    async def _enter(
        self, stack: AsyncExitStack, request: ApiRequest, seconds: float
    ) -> HttpAnswer:
        """Send a request; after a 401 send it once more if the credentials may have changed."""
        credential = await self._credential()
        exchange = self._client.exchange(self._built(request, credential), seconds)
        answer = await stack.enter_async_context(exchange)
        if answer.status == 401 and self._credentials.reject(credential):
            await _whole(answer)
            await stack.aclose()
            again = self._built(request, await self._credential())
            answer = await stack.enter_async_context(self._client.exchange(again, seconds))
        self._answering()
        return answer

    async def _upgraded(
        self, stack: AsyncExitStack, request: ApiRequest, offer: Handshake
    ) -> HttpUpgrade:
        """Ask for another protocol; after a 401 once more if the credentials may have changed."""
        credential = await self._credential()
        asked = self._client.upgraded(self._built(request, credential, offer.headers))
        upgrade = await stack.enter_async_context(asked)
        if upgrade.answer.status == 401 and self._credentials.reject(credential):
            await stack.aclose()
            again = self._built(request, await self._credential(), offer.headers)
            upgrade = await stack.enter_async_context(self._client.upgraded(again))
        self._answering()
        return upgrade

    def _answering(self) -> None:
        if self._notices.over(_SILENCE):
            log.info("API server answering", server=self._route.host)

    async def _credential(self) -> Credential:
        credential = await self._credentials.read()
        if credential.certificate != self._certificate:
            self._certificate = credential.certificate
            self._client.forget()  # the connections of another certificate
        return credential

    def _built(
        self, request: ApiRequest, credential: Credential, further: Pairs = _ACCEPT
    ) -> HttpRequest:
        target = self._route.prefix + quote(request.path)
        if request.query:
            target += f"?{urlencode(request.query)}"
        headers = [*self._fixed, *further]
        if credential.authorization:
            headers.append(("Authorization", credential.authorization))
        if request.body:
            headers.append(("Content-Type", request.content_type))
        if request.body or request.method != "GET":
            headers.append(("Content-Length", str(len(request.body))))
        return HttpRequest(request.method, target, tuple(headers), request.body)

    def _tls(self) -> ssl.SSLContext:
        return client_context(self._access, self._certificate)

    def _silent(self) -> None:
        for _ in self._notices.news(_SILENCE, "silent"):
            log.warning("API server awaited", server=self._route.host, seconds=NOTICE_SECONDS)

    async def _lines(
        self, request: ApiRequest, answer: HttpAnswer, seconds: float
    ) -> AsyncIterator[bytes]:
        with self._asking(request, seconds):
            async for line in by_line(answer.chunks):
                yield line

    @contextmanager
    def _asking(self, request: ApiRequest, seconds: float = ANSWER_SECONDS) -> Iterator[None]:
        try:
            yield
        except (OSError, h11.ProtocolError, WebsocketFault) as error:
            host, why = self._route.host, _why(error, seconds)
            raise Unavailable(
                f"The API server at {host} does not answer to {request}: {why}."
            ) from error


async def by_line(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield complete lines of the chunks; the pieces of a long line are joined only once."""
    pieces: list[bytes] = []
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*pieces, end))
            pieces.clear()
        pieces.append(rest)


async def _whole(answer: HttpAnswer) -> Answer:
    body = b"".join([chunk async for chunk in answer.chunks])
    kind = answer.headers.get("content-type", "")
    after = answer.headers.get("retry-after", "")
    return Answer(
        answer.status,
        body,
        kind.startswith("application/json"),
        retry_after=float(after) if after.isdecimal() else None,
    )


def _why(error: Exception, seconds: float) -> str:
    """Return the reason why a request failed, as a part of a sentence."""
    match error:
        case TimeoutError(errno=None):
            return f"silence for {seconds:g} s"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not to be trusted, {error.verify_message}"
        case OSError(strerror=str() as words):
            return words
    return str(error) or type(error).__name__
