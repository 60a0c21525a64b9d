"""One resource on a socket of its own, whatever happens to the socket: what both registries share.

A kubelet forgets a plugin in many ways: it restarts, somebody removes the socket, it ends its
ListAndWatch. So nothing here reacts to one of them: woken by any change, `_settle` of the subclass
looks at what is there and does what is missing. After a failure it waits with a jittered backoff;
otherwise it sleeps without a timer.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from grpclib.server import Server

from kube_base.backoff import LONGEST, full_jitter
from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.directory import Identity, identity, watching
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationBase
from kube_rdma.adapters.kubelet.service import Answers, PoolService
from kube_rdma.model.pools.pool import Offer

_CLOSE_SECONDS = 2.0  # how long a stop waits for the kubelet to hang up
_TURNS_OF_A_CALL = 4  # of the loop: it is seen, taken, made a task, connected


class _Stall(Frozen):
    """A server on a socket of its own."""

    server: Server
    service: PoolService
    socket: Identity | None  # None when it was removed at once


class Served(ABC):
    """One resource of this node. `run` serves it; `publish` tells what changed."""

    def __init__(self, directory: Path, offer: Offer, answers: Answers) -> None:
        # A domain has no underscore, so no two resources share a socket.
        self._socket = directory / f"kube-rdma-{offer.resource.replace('/', '_')}.sock"
        self._directory = directory
        self._log = structlog.get_logger().bind(resource=offer.resource)
        self._answers = answers
        self._offer = offer
        self._wake = asyncio.Event()
        self.registered = asyncio.Event()
        """Set from when the kubelet took the resource for the first time."""
        self._stall: _Stall | None = None
        self._ending: _Stall | None = None  # is being closed, perhaps by a call that was cancelled
        self._lost = False  # the last ListAndWatch on the socket has ended
        self._anew = False
        self._failures = 0
        self._retry_at = 0.0  # loop time before which nothing is tried

    @property
    def offer(self) -> Offer:
        """The offer as it was last published."""
        return self._offer

    def publish(self, offer: Offer, *, again: bool = False) -> None:
        """Tell `offer`, a new state of the same resource, from now on; `again` even if it is equal.

        Which calls the kubelet makes is settled at registration, so a change of that registers
        again.
        """
        previous, self._offer = self._offer, offer
        if self._stall and wire.options(previous) == wire.options(offer):
            self._stall.service.publish(offer, again=again)
        elif self._stall:
            self.register_again()

    def register_again(self) -> None:
        """Register with the kubelet again, for it does not have what it was told."""
        self._anew = True
        self._wake.set()

    async def run(self) -> None:
        """Serve until cancelled, then remove the socket.

        Raise Refused when the kubelet's folder cannot be watched; in an exception group raise
        Refused when it cannot be written to and Unavailable when it vanishes.
        """
        with watching(self._directory, self._watched_names()) as changes:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(changes))
                try:
                    await self._keep_up()
                finally:
                    await self._end()

    async def _follow(self, changes: AsyncIterator[None]) -> None:
        async for _ in changes:
            self._wake.set()

    async def _keep_up(self) -> None:
        while True:
            self._wake.clear()
            pause = await self._settle()
            # Not wait_for, which before Python 3.12 loses a cancellation that comes with the wake.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _watched_names(self) -> Sequence[str]:
        """The files of the directory whose coming and going wakes it."""
        return (self._socket.name,)

    @abstractmethod
    async def _settle(self) -> float | None:
        """Do what is missing now; the seconds after which to try again, None for no need to."""

    async def _mind_the_socket(self) -> None:
        """Give up the socket when it was removed or replaced, or has to be registered again."""
        if self._anew:
            await self._close()
        if self._stall and (not self._stall.socket or identity(self._socket) != self._stall.socket):
            self._log.warning("socket removed", socket=str(self._socket))
            await self._close()
            self._set_back()  # two plugins of one resource would else fight at full speed

    async def _serve(self, *further: RegistrationBase) -> None:
        service = PoolService(
            self._offer, self._answers, lambda seconds: self._left(service, seconds)
        )
        server = Server([service, *further])
        # asyncio removes a socket that an earlier process left under this name.
        starting = asyncio.ensure_future(server.start(path=str(self._socket)))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError):  # it listens already, and nobody else would end that
                await starting
                server.close()
            raise
        except OSError as error:
            raise Refused(
                f"the socket cannot be made ({error.strerror or error})",
                remedy=(
                    "Mount the kubelet's folder writable and run as uid 0; a path of a socket "
                    "has at most 107 characters"
                ),
                where=str(self._socket),
            ) from error
        self._stall = _Stall(server, service, identity(self._socket))

    async def _close(self, *, for_good: bool = False) -> None:
        """Stop serving and remove the socket, if it is still its own; once more when cancelled."""
        self._ending, self._stall = self._ending or self._stall, None
        self._lost = self._anew = False
        if (stall := self._ending) is None:
            return
        if stall.socket and identity(self._socket) == stall.socket:
            self._socket.unlink(missing_ok=True)
        # Whoever called until now is the server's some turns of the loop later; one that it does
        # not know when it closes would hang (_accept_connection2 of asyncio).
        for _ in range(_TURNS_OF_A_CALL):
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await stall.service.end(withdrawn=for_good)
        stall.server.close()
        with suppress(TimeoutError):  # from Python 3.12 on it waits for the other side to hang up
            async with asyncio.timeout(_CLOSE_SECONDS):
                await stall.server.wait_closed()
        self._ending = None

    async def _end(self) -> None:
        """Close for good. A pool is withdrawn, the agent ends: two ends, and the last one waits."""
        closing = asyncio.ensure_future(self._close(for_good=True))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    def _left(self, service: PoolService, seconds: float) -> None:
        """The kubelet ended its only ListAndWatch: without one it gives no share away."""
        if self._stall is None or self._stall.service is not service:
            return  # it was ended on this side
        self._lost = True
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
