"""HTTP/1.1 to one server: connections that are kept, one request at a time on each.

h11 knows the protocol, asyncio the sockets; what stands between is here: which connection, through
which proxy, and how long silence may last (`silence`). `connect` gives it the requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from asyncio import sslproto
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeGuard

import h11

from kube_base.frozen import Frozen
from kube_client.kinds import Pairs
from kube_client.route import ProxyServer, ServerRoute
from kube_client.silence import Silence

ANSWER_SECONDS = 30  # of silence before an answer is given up; client-go gives a connection as many
NOTICE_SECONDS = 5  # of silence before it is logged
_KEPT = 8  # idle connections
_IDLE_SECONDS = 60.0  # kube-apiserver closes an idle connection after 90
_CHUNK = 1 << 16
_NEXT_ADDRESS = 0.25  # seconds until the next address of a name is tried beside the first

# TCP keepalive: probes to a silent peer, the first after 15 s, as Go does.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_NEVER = 86400.0  # seconds; asyncio limits a handshake by the clock, which Silence replaces

# asyncio gives each TLS connection 256 KiB for what it reads, and agents have several. A
# record has at most 16 KiB (RFC 8446, 5.1): 100 MiB take as long with two of them.
sslproto.SSLProtocol.max_size = 1 << 15


class HttpRequest(Frozen):
    """One request: its target is path and query."""

    method: str
    target: str
    headers: Pairs
    body: bytes = b""


class HttpAnswer(Frozen):
    """The head of an answer, and its body as it comes. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]


class HttpConnection:
    """One connection, which carries one request after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        notice: Callable[[], None],
    ) -> None:
        for option in _KEEPALIVE:
            writer.get_extra_info("socket").setsockopt(*option)
        self._reader = reader
        self._writer = writer
        self._notice = notice
        self._state = h11.Connection(h11.CLIENT)
        self._idle_since = time.monotonic()
        self.answered = False  # whether a byte of the current answer came
        self._switched = False  # whether the bytes that came with status 101 were read

    @property
    def usable(self) -> bool:
        """Return whether the connection can carry another request."""
        fresh = time.monotonic() - self._idle_since < _IDLE_SECONDS
        closed = self._reader.at_eof() or self._writer.is_closing()
        return fresh and not closed and self._state.our_state is h11.IDLE

    async def ask(
        self, request: HttpRequest, seconds: float
    ) -> h11.Response | h11.InformationalResponse:
        """Send a request and return the head of its answer.

        After status 101 the connection speaks the protocol that the request asks for.
        """
        self.answered = False
        head = h11.Request(
            method=request.method, target=request.target, headers=list(request.headers)
        )
        data = self._state.send(head) or b""
        if request.body:
            data += self._state.send(h11.Data(request.body)) or b""
        data += self._state.send(h11.EndOfMessage()) or b""
        self._writer.write(data)
        async with Silence(seconds, self._notice, NOTICE_SECONDS):
            await self._writer.drain()
        while True:
            event = await self._next(seconds, self._notice)
            if isinstance(event, h11.Response) or _is_switch(event):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection was closed without an answer")

    async def body(self, seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body of the answer as it comes.

        Only a connection whose body was read to its end can be `usable` again.
        """
        while isinstance(event := await self._next(seconds), h11.Data):
            yield bytes(event.data)
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
            self._idle_since = time.monotonic()

    async def read(self) -> bytes:
        """Return bytes of the new protocol after an HTTP upgrade (101).

        They are empty when the server has closed the connection.
        """
        first, _ = self._state.trailing_data
        if first and not self._switched:
            self._switched = True
            return first
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        """Send bytes of the new protocol, after an HTTP upgrade (101)."""
        self._writer.write(data)
        await self._writer.drain()

    async def tunnel(self, host: str, proof: Pairs) -> None:
        """Ask a proxy for a tunnel to `host` (with its port); raise OSError when it makes none."""
        request = HttpRequest("CONNECT", host, (("Host", host), *proof))
        answer = await self.ask(request, ANSWER_SECONDS)
        if not 200 <= answer.status_code < 300:
            raise OSError(f"the proxy makes no tunnel ({answer.status_code})")
        self._state = h11.Connection(h11.CLIENT)

    async def secure(self, tls: ssl.SSLContext, server_name: str) -> None:
        """Begin TLS inside the tunnel through the proxy."""
        async with Silence(ANSWER_SECONDS, self._notice, NOTICE_SECONDS):
            await self._writer.start_tls(
                tls, server_hostname=server_name, ssl_handshake_timeout=_NEVER
            )

    def close(self) -> None:
        """Abort the connection at once."""
        self._writer.transport.abort()

    async def _next(
        self, seconds: float, notice: Callable[[], None] | None = None
    ) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        while True:
            event = self._state.next_event()
            if event is not h11.NEED_DATA:
                return event
            async with Silence(seconds, notice, NOTICE_SECONDS):
                data = await self._reader.read(_CHUNK)
            self.answered = self.answered or bool(data)
            self._state.receive_data(data)


class HttpUpgrade(Frozen):
    """The answer to a request for another protocol; `connection` speaks it, None if refused."""

    answer: HttpAnswer
    connection: HttpConnection | None


class HttpClient:
    """The connections to one server. `tls` makes the TLS context of a new one; None for plain HTTP.

    `notice` is called when the server does not begin an answer for some seconds.
    """

    def __init__(
        self,
        route: ServerRoute,
        tls: Callable[[], ssl.SSLContext] | None,
        notice: Callable[[], None],
    ) -> None:
        self._route = route
        self._tls = tls
        self._notice = notice
        self._idle: list[HttpConnection] = []  # the one that was used last comes last
        self.local_address: str | None = None  # of the connection that was made last

    @asynccontextmanager
    async def exchange(
        self, request: HttpRequest, seconds: float = ANSWER_SECONDS
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request and yield its answer.

        Raise OSError, TimeoutError or h11.ProtocolError where the connection breaks.
        """
        connection, head = await self._ask(request, seconds)
        try:
            async with aclosing(connection.body(seconds)) as chunks:
                yield _answer(head, chunks)
        finally:
            if connection.usable and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                connection.close()

    @asynccontextmanager
    async def upgraded(self, request: HttpRequest) -> AsyncIterator[HttpUpgrade]:
        """Ask for another protocol and yield the answer; close the connection after the block."""
        connection, head = await self._ask(request, ANSWER_SECONDS)
        try:
            async with aclosing(connection.body(ANSWER_SECONDS)) as chunks:
                switched = _is_switch(head)
                yield HttpUpgrade(_answer(head, chunks), connection if switched else None)
        finally:
            connection.close()

    def forget(self) -> None:
        """Close all idle connections, so that the next request opens a new one."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(
        self, request: HttpRequest, seconds: float
    ) -> tuple[HttpConnection, h11.Response | h11.InformationalResponse]:
        while connection := self._kept():
            try:
                return connection, await connection.ask(request, seconds)
            except (OSError, h11.RemoteProtocolError) as error:
                connection.close()
                # It was closed while idle, and nobody saw it; only reading twice is harmless.
                raced = not connection.answered and not isinstance(error, TimeoutError)
                if not raced or request.method != "GET":
                    raise
            except BaseException:
                connection.close()
                raise
        connection = await self._connect()
        try:
            return connection, await connection.ask(request, seconds)
        except BaseException:
            connection.close()
            raise

    def _kept(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> HttpConnection:
        route, proxy = self._route, self._route.proxy
        tls = self._tls() if self._tls else None
        if proxy is None:
            return await self._open(_place(route), tls, route.server_name)
        if proxy.socks:
            return await self._open({"sock": await self._socks(proxy)}, tls, route.server_name)
        outer = ssl.create_default_context() if proxy.tls else None
        connection = await self._open(_place(proxy), outer, proxy.host)
        try:
            await connection.tunnel(route.authority, proxy.proof)
            if tls:
                await connection.secure(tls, route.server_name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _socks(self, proxy: ProxyServer) -> socket.socket:
        """Return a socket to the server through a SOCKS5 proxy, which resolves the server name."""
        from python_socks import ProxyError, ProxyType  # few clusters are behind one
        from python_socks.async_.asyncio import Proxy

        name, password = proxy.login or (None, None)
        asked = Proxy(ProxyType.SOCKS5, proxy.host, proxy.port, name, password, rdns=True)
        try:
            async with Silence(ANSWER_SECONDS, self._notice, NOTICE_SECONDS):
                return await asked.connect(self._route.host, self._route.port)
        except ProxyError as error:
            raise OSError(f"the proxy makes no connection ({error})") from error

    async def _open(
        self, place: dict[str, Any], tls: ssl.SSLContext | None, server_name: str
    ) -> HttpConnection:
        # Given without TLS, asyncio refuses the two.
        name, handshake = (server_name, _NEVER) if tls else (None, None)
        async with Silence(ANSWER_SECONDS, self._notice, NOTICE_SECONDS):
            reader, writer = await asyncio.open_connection(
                **place, ssl=tls, server_hostname=name, ssl_handshake_timeout=handshake
            )
        self.local_address = str(writer.get_extra_info("sockname")[0])
        return HttpConnection(reader, writer, self._notice)


def _place(to: ServerRoute | ProxyServer) -> dict[str, Any]:
    return {"host": to.host, "port": to.port, "happy_eyeballs_delay": _NEXT_ADDRESS}


def _is_switch(event: object) -> TypeGuard[h11.InformationalResponse]:
    return isinstance(event, h11.InformationalResponse) and event.status_code == 101  # RFC 9110


def _answer(
    head: h11.Response | h11.InformationalResponse, chunks: AsyncIterator[bytes]
) -> HttpAnswer:
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    return HttpAnswer(head.status_code, headers, chunks)
