"""Serves gRPC over unix sockets with a bound for requests, and keeps connections for calls open.

grpclib itself takes requests of any length and lets what it cannot decode end in a traceback.
Requests is for what the kubelet asks, PluginRegistration for its plugin watcher, RpcConnection for
what is asked again and again; grpc_calls.py has single calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError
from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.server import Server, Stream

from kube_base.errors import Refused
from kube_base.notices import Notices
from kube_rdma.adapters.grpc_calls import CallFailed, answered, judged
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationBase

LONGEST = 4 * 2**20  # bytes of a request; grpc-go, which the kubelet uses, takes no more by default

Request = TypeVar("Request")
Answer = TypeVar("Answer")

_HEADER = 5  # bytes before each message: one flag, its length in network order


class Requests:
    """A reader of gRPC requests; it logs one that cannot be read, once for each cause."""

    def __init__(self, resource: str) -> None:
        self._log = structlog.get_logger().bind(resource=resource)
        self._notices = Notices()

    async def receive(self, stream: Stream[Request, Answer]) -> Request:
        """Return the request of a gRPC call; raise GRPCError if it cannot be read."""
        try:
            return await _receive(stream)
        except GRPCError as error:
            if self._notices.news(error.status, error.status.name):
                self._log.warning("kubelet call not understood", why=error.message)
            raise


async def _receive(stream: Stream[Request, Answer]) -> Request:
    # The public method reads as much as the client claims to send.
    wire, codec, kind = stream._stream, stream._codec, stream._recv_type  # noqa: SLF001
    try:
        header = await wire.recv_data(_HEADER)
        length = int.from_bytes(header[1:], "big")
        if not header:
            raise GRPCError(Status.INVALID_ARGUMENT, "the call carries no request")
        if header[0]:
            raise GRPCError(Status.UNIMPLEMENTED, "the request is compressed")
        if length > LONGEST:
            problem = f"the request has {length} bytes, at most {LONGEST} are read"
            raise GRPCError(Status.RESOURCE_EXHAUSTED, problem)
        message: Request = codec.decode(await wire.recv_data(length), kind)
    except (AssertionError, DecodeError) as error:  # the first when the client ends within it
        raise GRPCError(Status.INVALID_ARGUMENT, f"the request is not a {kind.__name__}") from error
    return message


# A server on a path. One that ends leaves no connection half accepted.

_TURNS_OF_A_CALL = 4  # of the loop: it is seen, taken, made a task, connected


async def listen(server: Server, path: Path) -> None:
    """Start a gRPC server on a socket; raise Refused if that fails. A cancelled start is undone."""
    # asyncio removes a socket that an earlier process left under this name.
    starting = asyncio.ensure_future(server.start(path=str(path)))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):  # it listens already, and nobody else would end that
            await starting
            await connected()
            server.close()
        raise
    except OSError as error:
        raise Refused(
            f"the socket cannot be made ({error.strerror or error})",
            remedy=(
                "Mount the kubelet's folder writable and run as uid 0; a path of a socket "
                "has at most 107 characters"
            ),
            where=str(path),
        ) from error


async def connected() -> None:
    """Let the event loop accept pending connections before the server is closed.

    A connection that the server does not know would hang (_accept_connection2 of asyncio).
    """
    for _ in range(_TURNS_OF_A_CALL):
        await asyncio.sleep(0)


class PluginRegistration(RegistrationBase):
    """The gRPC service by which the kubelet registers one plugin whose socket it found.

    `hear` is called with the outcome of each registration.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        versions: Sequence[str],
        hear: Callable[[pb.RegistrationStatus], None],
    ) -> None:
        # Without an endpoint the kubelet takes the socket that it asked, under the path that it
        # has on the host and not in the agent's mount namespace.
        self._info = pb.PluginInfo(type=kind, name=name, supported_versions=versions)
        self._hear = hear
        self._requests = Requests(name)

    async def GetInfo(  # noqa: N802  names of the wire
        self, stream: Stream[pb.InfoRequest, pb.PluginInfo]
    ) -> None:
        """Return type, name and versions of the plugin to the kubelet."""
        await self._requests.receive(stream)
        await stream.send_message(self._info)

    async def NotifyRegistrationStatus(  # noqa: N802
        self, stream: Stream[pb.RegistrationStatus, pb.RegistrationStatusResponse]
    ) -> None:
        """Pass on whether the kubelet accepted the plugin; the kubelet retries after a failure."""
        self._hear(await self._requests.receive(stream))
        await stream.send_message(pb.RegistrationStatusResponse())


class RpcConnection:
    """A gRPC connection that is reused for many calls, as opening one takes as long as two calls.

    A call must have no effect: it is made again when the connection broke, as by the server's
    restart.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = Channel(path=str(socket))

    def close(self) -> None:
        """Close the connection, and end its calls."""
        self._channel.close()

    async def ask(self, question: Callable[[Channel], Awaitable[Answer]]) -> Answer:
        """Make a call and return its answer; raise CallFailed as grpc_calls.calling does."""
        channel = self._channel
        try:
            with judged():
                return await answered(question(channel))
        except CallFailed as failure:
            if failure.status or isinstance(failure.__cause__, TimeoutError):
                raise
        if channel is self._channel:  # else another call has found out before
            channel.close()
            self._channel = Channel(path=str(self._socket))
        with judged():
            return await answered(question(self._channel))
