"""Serves the shim's CNI calls on a unix socket of the agent, and answers them.

Each connection is one call. At most 64 run at once, eight of them ADDs (Limits). A bounded number
waits: calls other than ADD go first, and namespaces take turns. The kernel's queue holds the rest,
so a burst of pods costs time, never memory. Of a waiting call only the environment is in memory.
The configuration, which a pod's author can make megabytes long, is read at the call's turn, a few
at once. Garbage, half a request or a client that hangs up harms nobody else; a client that hangs up
while its call waits is not served. asyncio's streams drop descriptors, so sockets are read
directly.
"""

from __future__ import annotations

import asyncio
import fcntl
import heapq
import os
import re
import select
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Self

import structlog
from msgspec import Struct

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.cni import protocol as wire
from kube_rdma.model.attach.cni import Call, CniResult, Verb

SOCKET = Path("/run/kube-rdma/agent.sock")

_NS_GET_NSTYPE, _CLONE_NEWNET = 0xB703, 0x40000000  # linux/nsfs.h, linux/sched.h
_BACKLOG = 1024
_POD_NAMESPACE = re.compile(rb"K8S_POD_NAMESPACE=([^;\0]*)")
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid

Handler = Callable[[Call], Awaitable[CniResult]]


class Turns:
    """A queue of calls, of which `places` run at once; at most `beginning` of these make something.

    Calls that make nothing go first, then namespaces in turns, then the order of arrival. A
    `beginning` of None is no further limit.
    """

    def __init__(self, places: int, beginning: int | None = None) -> None:
        self._places = places
        self._beginning = places if beginning is None else beginning
        self._taken = {True: 0, False: 0}  # by whether it begins something
        self._waiting: list[tuple[bool, int, int, str, asyncio.Future[None]]] = []
        self._numbers = count()
        # The round of the call that was woken last; a namespace has one turn in each round.
        self._rounds = {True: 0, False: 0}

    @asynccontextmanager
    async def turn(self, *, begins: bool, namespace: str = "") -> AsyncIterator[Place]:
        """Wait for a place in the queue, and hold it for the block."""
        place = Place(self, begins=begins, namespace=namespace)
        await place.take()
        try:
            yield place
        finally:
            place.leave()

    async def wait(self, *, begins: bool, namespace: str = "") -> None:
        """Wait until a place is free, and take it."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = (n for b, n, _, space, _ in self._waiting if (b, space) == (begins, namespace))
        number = 1 + max((self._rounds[begins], *mine))
        heapq.heappush(self._waiting, (begins, number, next(self._numbers), namespace, ready))
        self._call()
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():  # it was called at that very moment
                self.free(begins=begins)
            raise

    def free(self, *, begins: bool) -> None:
        """Give a place back to the queue, and wake the next call."""
        self._taken[begins] -= 1
        self._call()

    def _call(self) -> None:
        """Wake waiting calls while places are free, calls that make nothing first."""
        while self._waiting and sum(self._taken.values()) < self._places:
            begins, number, _, _, ready = self._waiting[0]
            if not ready.done() and begins and self._taken[True] >= self._beginning:
                return
            heapq.heappop(self._waiting)
            if not ready.done():  # else whoever waited has given up
                self._taken[begins], self._rounds[begins] = self._taken[begins] + 1, number
                ready.set_result(None)


class Place:
    """A call's place among those that run at once; it may be left and taken again."""

    def __init__(self, turns: Turns, *, begins: bool, namespace: str) -> None:
        self._turns = turns
        self._begins, self._namespace = begins, namespace
        self._is_taken = False

    async def take(self) -> None:
        """Wait for a place in the queue, and take it."""
        await self._turns.wait(begins=self._begins, namespace=self._namespace)
        self._is_taken = True

    def leave(self) -> None:
        """Give the place to the next call; do nothing if it is not taken."""
        if self._is_taken:
            self._is_taken = False
            self._turns.free(begins=self._begins)


class Caller:
    """The shim at the other end of a connection, with the place of its call in the queue."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.place: Place | None = None

    @property
    def hung_up(self) -> bool:
        """Return whether the caller has closed its end, so that it would not read a result."""
        poll = select.poll()
        try:
            poll.register(self._connection, select.POLLRDHUP)
        except (OSError, ValueError):
            return True  # it is closed
        return bool(poll.poll(0))


CALLER: ContextVar[Caller | None] = ContextVar("CALLER", default=None)
"""The caller of the current task; None for what the agent does by itself."""


def refuse_hung_up() -> None:
    """Raise Unavailable if the caller has hung up."""
    caller = CALLER.get()
    if caller is not None and caller.hung_up:
        raise Unavailable("The container runtime gave up this call before its turn came.")


@asynccontextmanager
async def set_aside() -> AsyncIterator[None]:
    """Give the place of the current call to another one during the block."""
    caller = CALLER.get()
    place = caller.place if caller else None
    if place is None:
        yield
        return
    place.leave()
    try:
        yield
    finally:
        await place.take()


class Limits(Frozen):
    """The numbers of calls that one CNI socket serves at once.

    ADDs share one loop and few threads. With fewer of them at once, the first are done sooner, and
    fewer callers give up. ADDs that wait for CNI plugins of others do not count.
    """

    running: int = 64  # calls
    adding: int = 8  # ADDs among them
    waiting: int = 256  # connections, those of running calls too
    reading: int = 8  # configurations that are read and decoded, 2 MiB each at most
    seconds: float = 10.0  # to send or take bytes


class _Request(Struct):
    """A received call of the shim, whose configuration is not read yet."""

    connection: socket.socket
    environment: bytes
    input: int  # bytes that follow
    descriptors: list[int]


class CniSocket:
    """The socket on which the agent serves the shim's CNI calls.

    ``async with CniSocket(path, handler) as cni: await cni.serve()``. The socket exists from `async
    with` on and replaces an older one at once. serve() and its calls run until it is cancelled.
    """

    def __init__(self, path: Path, handler: Handler, limits: Limits | None = None) -> None:
        self._path = path
        self._handler = handler
        self._limits = limits or Limits()
        self._turns = Turns(self._limits.running, self._limits.adding)
        self._room = asyncio.Semaphore(self._limits.waiting)
        self._reading = asyncio.Semaphore(self._limits.reading)
        self._log = structlog.get_logger().bind(socket=str(path))
        self._socket: socket.socket | None = None
        self._inode = 0

    async def __aenter__(self) -> Self:
        """Make the socket and listen; raise Unavailable when that fails."""
        self._socket = listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        fresh = self._path.with_name(f".{self._path.name}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            listener.listen(_BACKLOG)
            self._inode = fresh.stat().st_ino
            fresh.rename(self._path)  # whoever finds it may connect
        except OSError as error:
            listener.close()
            raise Unavailable(
                f"{self._path} cannot be made ({error.strerror or error}): its folder has to be "
                "the host's, writable."
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:  # else a newer agent's
                self._path.unlink()

    async def serve(self) -> None:
        """Accept and answer calls until cancelled."""
        assert self._socket, "open it with `async with` first"
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as calls:
            while True:
                await self._room.acquire()
                try:
                    connection, _ = await loop.sock_accept(self._socket)
                except OSError as error:
                    # No descriptors are left, most likely: calls that end free some.
                    self._log.warning("CNI connection not accepted", error=error.strerror)
                    self._room.release()
                    await asyncio.sleep(0.1)
                    continue
                calls.create_task(self._serve_connection(connection))

    async def _serve_connection(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            with closing(connection), contained("CNI connection"):
                try:
                    await self._exchange(connection, descriptors)
                except (OSError, TimeoutError) as error:
                    self._log.info("CNI caller disconnected", error=str(error))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            self._room.release()

    async def _exchange(self, connection: socket.socket, descriptors: list[int]) -> None:
        connection.setblocking(False)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, uid, _ = _PEER.unpack(credentials)
        if uid != 0:
            self._log.warning("non-root CNI caller rejected", pid=pid, uid=uid)
            return
        async with asyncio.timeout(self._limits.seconds):
            request = await _receive(connection, descriptors)
        if request is None:
            self._log.warning("malformed shim request rejected", pid=pid)
            return
        caller = Caller(connection)
        # Every other call is about pods that run or end.
        begins = b"CNI_COMMAND=ADD" in request.environment.split(b"\0")
        named = _POD_NAMESPACE.search(request.environment)
        namespace = named[1].decode(errors="replace") if named else ""
        async with self._turns.turn(begins=begins, namespace=namespace) as caller.place:
            if caller.hung_up:  # while it waited: nobody would hear of the result
                self._log.info("CNI call dropped", pid=pid)
                return
            CALLER.set(caller)  # of this connection's task alone
            answer = await self._answer(request)
        if answer is None:
            self._log.warning("malformed shim request rejected", pid=pid)
            return
        async with asyncio.timeout(self._limits.seconds):
            await asyncio.get_running_loop().sock_sendall(connection, wire.answer(*answer))

    async def _answer(self, request: _Request) -> tuple[int, bytes] | None:
        """Return exit code and output for a call; None if the caller hangs up before its end."""
        verb, version = None, ""
        try:
            async with self._reading:
                async with asyncio.timeout(self._limits.seconds):
                    config = await _bytes(request.connection, request.input, request.descriptors)
                if config is None:
                    return None
                try:
                    netns = _network_namespace(request.descriptors)
                    call = wire.decode(request.environment, config, netns)
                except Exception:
                    version = wire.version_of(config)
                    raise
                del config  # the call has what is needed of it
            verb, version = call.verb, call.version
            result = await self._handler(call)
            return 0, _fitting(wire.encode(call, result)) if verb is Verb.ADD else b""
        except KubeError as error:
            return 1, wire.failure(error, version, verb)
        except (OSError, TimeoutError) as error:
            if verb is None:
                raise  # the caller's connection
            return 1, self._fault(error, version, verb)
        except Exception as error:  # noqa: BLE001  one pod's call must not end the agent for others
            return 1, self._fault(error, version, verb)

    def _fault(self, error: Exception, version: str, verb: Verb | None) -> bytes:
        with contained("CNI call"):
            raise error
        return wire.failure(None, version, verb)


def _fitting(output: bytes) -> bytes:
    """Return the result of an ADD; raise Refused if it is too long for the shim."""
    if len(output) > wire.MAX_ANSWER:
        raise Refused(
            f"the result has {len(output)} bytes, of {wire.MAX_ANSWER} that fit",
            remedy="Ask for fewer addresses and routes",
        )
    return output


async def _receive(connection: socket.socket, descriptors: list[int]) -> _Request | None:
    """Return the header and environment of a request; None for other bytes, or an early end.

    The caller closes the descriptors.
    """
    head = await _bytes(connection, wire.REQUEST_HEADER, descriptors)
    announced = wire.request_head(head) if head is not None else None
    if announced is None:
        return None
    environment = await _bytes(connection, announced.environment, descriptors)
    if environment is None:
        return None
    return _Request(connection, environment, announced.input, descriptors)


async def _bytes(connection: socket.socket, count: int, descriptors: list[int]) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        try:
            piece, passed_descriptors, _, _ = socket.recv_fds(
                connection, min(count - len(content), 1 << 16), 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            loop, ready = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(connection, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(connection)
            continue
        for extra in passed_descriptors:
            if descriptors:
                os.close(extra)
            else:
                descriptors.append(extra)
        if not piece:
            return None
        content += piece
    return bytes(content)


def _network_namespace(descriptors: list[int]) -> int | None:
    """Return the descriptor of a network namespace, if any; raise Refused for anything else."""
    if not descriptors:
        return None
    netns = descriptors[0]
    is_netns = False
    if stat.S_ISREG(os.fstat(netns).st_mode):  # no ioctl on a device that a path led to
        with suppress(OSError):
            is_netns = fcntl.ioctl(netns, _NS_GET_NSTYPE) == _CLONE_NEWNET
    if not is_netns:
        raise Refused(
            "CNI_NETNS is not a network namespace",
            remedy="The container runtime has to name the one of the pod",
            where=wire.ENVIRONMENT,
        )
    return netns
