"""Who is served next on a node that cannot keep up: what ends before what begins.

For the socket of the shim, and for the threads that work in the kernel (executor of
attach). A DEL frees what an ADD waits for, and a pod that runs or ends must
not wait behind a burst of new ones. And work for a caller that has hung up is dropped while it
still waits: a runtime that gave up an ADD has begun anew, with another sandbox, and would have to
undo all of it.
"""

from __future__ import annotations

import asyncio
import heapq
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import count

from kube_base.errors import Unavailable


class Turns:
    """`places` at once, of which what begins something new may take `beginning` (all, if None).

    Of those that wait, what ends something goes first, then namespaces in turns, then who came
    first.
    """

    def __init__(self, places: int, beginning: int | None = None) -> None:
        self._places = places
        self._beginning = places if beginning is None else beginning
        self._taken = {True: 0, False: 0}  # by whether it begins something
        self._waiting: list[tuple[bool, int, int, str, asyncio.Future[None]]] = []
        self._numbers = count()
        self._rounds = {
            True: 0,
            False: 0,
        }  # of who was called last: a namespace has one turn in each

    @asynccontextmanager
    async def turn(self, *, begins: bool, namespace: str = "") -> AsyncIterator[Place]:
        """Wait for a place, and have it for as long as the scope is open."""
        place = Place(self, begins=begins, namespace=namespace)
        await place.take()
        try:
            yield place
        finally:
            place.leave()

    async def wait(self, *, begins: bool, namespace: str = "") -> None:
        """Return with a place taken."""
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
        """One place is free again."""
        self._taken[begins] -= 1
        self._call()

    def _call(self) -> None:
        """Call those for whom there is a place. What ends comes first, so who is left begins."""
        while self._waiting and sum(self._taken.values()) < self._places:
            begins, number, _, _, ready = self._waiting[0]
            if not ready.done() and begins and self._taken[True] >= self._beginning:
                return
            heapq.heappop(self._waiting)
            if not ready.done():  # else whoever waited has given up
                self._taken[begins], self._rounds[begins] = self._taken[begins] + 1, number
                ready.set_result(None)


class Place:
    """One place; whoever has it may leave it for a while and take one again."""

    def __init__(self, turns: Turns, *, begins: bool, namespace: str) -> None:
        self._turns = turns
        self._begins, self._namespace = begins, namespace
        self._is_taken = False

    async def take(self) -> None:
        """Wait for it."""
        await self._turns.wait(begins=self._begins, namespace=self._namespace)
        self._is_taken = True

    def leave(self) -> None:
        """Let the next one have it; nothing to do without it."""
        if self._is_taken:
            self._is_taken = False
            self._turns.free(begins=self._begins)


class Caller:
    """The process at the other end of a connection, and the place that its call has."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.place: Place | None = None

    @property
    def hung_up(self) -> bool:
        """Whether nobody would hear of a result any more; bytes of his may wait to be read."""
        poll = select.poll()
        try:
            poll.register(self._connection, select.POLLRDHUP)
        except (OSError, ValueError):
            return True  # it is closed
        return bool(poll.poll(0))


CALLER: ContextVar[Caller | None] = ContextVar("CALLER", default=None)
"""For whom the current task works; None for what the agent does by itself."""


def refuse_hung_up() -> None:
    """Raise Unavailable if nobody waits for this work any more."""
    caller = CALLER.get()
    if caller is not None and caller.hung_up:
        raise Unavailable("The container runtime gave up this call before its turn came.")


@asynccontextmanager
async def set_aside() -> AsyncIterator[None]:
    """The call waits for somebody else: its place is another's while the scope is open."""
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
