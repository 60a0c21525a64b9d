"""Keeps one resource registered with the kubelet, whatever the kubelet does.

Each resource has its own socket. The kubelet forgets us in three ways: it restarts (and removes all
sockets), somebody removes our socket, or it ends its ListAndWatch. So nothing here reacts to one of
them: woken by any change, `_settle` looks at what is there and does what is missing. After a
failure it waits with a jittered backoff; otherwise it sleeps without a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.exceptions import ProtocolError, StreamTerminatedError
from grpclib.server import Server

from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.backoff import LONGEST, full_jitter
from kube_rdma.adapters.kubelet.directory import KUBELET_SOCKET, Identity, identity, watching
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import RegistrationStub
from kube_rdma.adapters.kubelet.service import Allocate, PoolService
from kube_rdma.model.errors import Refused
from kube_rdma.model.pool import Pool

_REGISTER_SECONDS = 15.0  # the kubelet dials us back within this call, for up to 10 s
_CLOSE_SECONDS = 2.0  # how long a stop waits for the kubelet to hang up


@dataclass(frozen=True)
class _Offer:
    """A server on a socket of ours."""

    server: Server
    service: PoolService
    socket: Identity | None  # None when it was removed at once


class DevicePlugin:
    """One resource of this node. `run` serves it; `publish` tells what changed."""

    def __init__(self, directory: Path, pool: Pool, allocate: Allocate) -> None:
        # A domain has no underscore, so no two resources share a socket.
        endpoint = f"kube-rdma-{pool.resource.replace('/', '_')}.sock"
        self._directory = directory
        self._kubelet = directory / KUBELET_SOCKET
        self._socket = directory / endpoint
        self._request = pb.RegisterRequest(
            version=wire.VERSION,
            endpoint=endpoint,
            resource_name=pool.resource,
            options=wire.options(),
        )
        self._log = structlog.get_logger().bind(resource=pool.resource)
        self._allocate = allocate
        self._pool = pool
        self._wake = asyncio.Event()
        self._offer: _Offer | None = None
        self._seen: Identity | None = None  # the kubelet's socket when we last looked
        self._registered = False
        self._failures = 0
        self._retry_at = 0.0  # loop time before which nothing is tried

    @property
    def pool(self) -> Pool:
        """The pool as it was last published."""
        return self._pool

    def publish(self, pool: Pool) -> None:
        """Offer `pool`, a new state of the same resource, from now on."""
        self._pool = pool
        if self._offer:
            self._offer.service.publish(pool)

    async def run(self) -> None:
        """Serve until cancelled, then remove the socket.

        Raise Refused when the kubelet's folder cannot be watched; in an exception group raise
        Refused when it cannot be written to and Unavailable when it vanishes.
        """
        names = (KUBELET_SOCKET, self._socket.name)
        with watching(self._directory, names) as changes:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(changes))
                try:
                    await self._keep_up()
                finally:
                    await self._close()

    async def _follow(self, changes: AsyncIterator[None]) -> None:
        async for _ in changes:
            self._wake.set()

    async def _keep_up(self) -> None:
        if identity(self._kubelet) is None:
            self._log.info("waiting for the kubelet", socket=str(self._kubelet))
        while True:
            self._wake.clear()
            pause = await self._settle()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    async def _settle(self) -> float | None:
        """Do what is missing now; the seconds after which to try again, None for no need to."""
        kubelet = identity(self._kubelet)
        if kubelet != self._seen:
            await self._greet(kubelet)
        if kubelet is None:
            return None
        if self._offer and identity(self._socket) != self._offer.socket:
            self._log.warning("our socket was removed", socket=str(self._socket))
            await self._close()
            self._set_back()  # two plugins of one resource would else fight at full speed
        if self._offer and self._registered:
            return None
        if (pause := self._pause()) > 0:
            return pause
        if self._offer is None:
            await self._serve()
        await self._register()
        return None if self._registered else self._pause()

    async def _greet(self, kubelet: Identity | None) -> None:
        """Take note that a kubelet came, went or was replaced, and start from nothing."""
        if kubelet is None:
            self._log.warning("the kubelet is gone", socket=str(self._kubelet))
        elif self._seen or self._offer:
            self._log.info("the kubelet is back")
        self._seen = kubelet
        self._failures = 0
        self._retry_at = 0.0
        if kubelet is not None:
            await self._close()  # it has removed our socket and knows nothing of us

    async def _serve(self) -> None:
        service = PoolService(self._pool, self._allocate, self._unwatched)
        server = Server([service])
        try:
            # asyncio removes a socket that an earlier process left under this name.
            await server.start(path=str(self._socket))
        except OSError as error:
            raise Refused(
                f"the socket cannot be made ({error.strerror or error})",
                remedy=(
                    "Mount the kubelet's folder writable and run as uid 0; a path of a socket "
                    "has at most 107 characters"
                ),
                where=str(self._socket),
            ) from error
        self._offer = _Offer(server, service, identity(self._socket))

    async def _register(self) -> None:
        channel = Channel(path=str(self._kubelet))
        try:
            await RegistrationStub(channel).Register(self._request, timeout=_REGISTER_SECONDS)
        except (OSError, GRPCError, StreamTerminatedError, ProtocolError) as error:
            self._set_back()
            reason = error.message if isinstance(error, GRPCError) else str(error)
            self._log.warning(
                "registration failed, trying again",
                reason=reason or type(error).__name__,
                seconds=round(self._pause(), 1),
            )
        else:
            self._registered = True
            self._log.info("registered", shares=len(self.pool.shares), socket=str(self._socket))
        finally:
            channel.close()

    async def _close(self) -> None:
        """Stop serving and remove our socket, if it is still ours."""
        offer, self._offer = self._offer, None
        self._registered = False
        if offer is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(offer.service.end(), _CLOSE_SECONDS)
        offer.server.close()
        with suppress(TimeoutError):  # from Python 3.12 on it waits for the other side to hang up
            await asyncio.wait_for(offer.server.wait_closed(), _CLOSE_SECONDS)
        if identity(self._socket) == offer.socket:
            self._socket.unlink(missing_ok=True)

    def _unwatched(self, seconds: float) -> None:
        """The kubelet ended its only ListAndWatch: without one it gives no share away."""
        if self._offer is None or not self._registered:
            return  # we ended it ourselves
        self._registered = False
        if seconds > LONGEST:
            self._failures = 0  # it was no failure to register
        self._set_back()
        self._wake.set()

    def _set_back(self) -> None:
        self._retry_at = asyncio.get_running_loop().time() + full_jitter(self._failures)
        self._failures += 1

    def _pause(self) -> float:
        """Seconds until the next try, 0 or less for now."""
        return self._retry_at - asyncio.get_running_loop().time()
