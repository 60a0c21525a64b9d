"""WebSockets (RFC 6455) over a connection that the API server has upgraded (101).

wsproto knows frames, http the connection; here are the headers of the handshake, and messages of
bytes in both directions. Pings are answered, for load balancers count silence.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from kube_client.errors import WebsocketFault
from kube_client.kinds import Pairs

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_WELL = {CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD}
MOST_BYTES = 1 << 20  # of one message; what a kubelet sends has 32 KiB


class Octets(Protocol):
    """The part of http.HttpConnection that a WebSocket needs.

    It carries raw bytes after the HTTP upgrade (101).
    """

    async def read(self) -> bytes:
        """Return the next bytes; none at the end of the connection."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        ...


class Handshake:
    """The headers that open a WebSocket: offered subprotocols, and the check of the answer."""

    def __init__(self, protocols: Sequence[str]) -> None:
        self._protocols = protocols
        self._key = base64.b64encode(os.urandom(16))

    @property
    def headers(self) -> Pairs:
        """Return the HTTP headers of the handshake's request."""
        return (
            ("Accept", "*/*"),  # a kubelet, who gets it too, answers 406 to any other
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", self._key.decode()),
            ("Sec-WebSocket-Protocol", ", ".join(self._protocols)),
        )

    def accepted(self, headers: Mapping[str, str]) -> str:
        """Return the subprotocol that the server chose.

        Raise WebsocketFault for an answer that opens no WebSocket, or names a subprotocol not
        offered.
        """
        if headers.get("sec-websocket-accept") != accept(self._key):
            raise WebsocketFault("it switches to something that is not a WebSocket")
        protocol = headers.get("sec-websocket-protocol", "")
        if protocol not in self._protocols:
            raise WebsocketFault(f"it speaks {protocol!r}, not {' or '.join(self._protocols)}")
        return protocol


def accept(key: bytes) -> str:
    """Return the value of Sec-WebSocket-Accept that a server answers to this key."""
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


class OpenWebsocket:
    """An open WebSocket on an HTTP connection.

    `asking` returns a context that turns a fault of its block into Unavailable.
    """

    def __init__(
        self,
        octets: Octets,
        protocol: str,
        asking: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._octets = octets
        self._protocol = protocol
        self._asking = asking
        self._state = Connection(ConnectionType.CLIENT)

    @property
    def protocol(self) -> str:
        """Return the subprotocol that the server chose."""
        return self._protocol

    async def send(self, message: bytes) -> None:
        """Send a binary message; raise Unavailable when the connection fails."""
        with self._asking():
            await self._octets.write(self._state.send(BytesMessage(message)))

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield whole messages until the server closes; raise Unavailable when it breaks off.

        A text message is yielded empty: the protocols spoken here have none.
        """
        parts = bytearray()
        while True:
            with self._asking():
                data = await self._octets.read()
                if not data:
                    raise WebsocketFault("it closed the connection in the midst")
            self._state.receive_data(data)
            for event in self._state.events():  # one by one: behind a close nothing can be answered
                match event:
                    case Ping():
                        with self._asking():
                            await self._octets.write(self._state.send(event.response()))
                    case CloseConnection():
                        with self._asking():
                            _well_closed(event)
                        return
                    case BytesMessage() | TextMessage():
                        parts += event.data if isinstance(event, BytesMessage) else b""
                        with self._asking():
                            _bound(parts)
                        if event.message_finished:
                            yield bytes(parts)
                            parts.clear()


def _well_closed(event: CloseConnection) -> None:
    """Raise WebsocketFault when a WebSocket was closed with a code that means a failure.

    RFC 6455, section 7.4.1, has the codes.
    """
    if event.code not in _WELL:
        raise WebsocketFault(f"it breaks the WebSocket off: {event.reason or int(event.code)}")


def _bound(parts: bytearray) -> None:
    if len(parts) > MOST_BYTES:
        raise WebsocketFault(f"it sends a message of more than {MOST_BYTES} bytes")
