"""Many nodes that need addresses at the same time, with a clock of their own.

The product's operations run as the program runs them (ipam/node_addresses): each pod's
request after the one before, ticks between them, watches that bring changes to all nodes. The API
server answers one request after the other, so a node that plans on what it read races with others.
No message is lost here; this shows how many requests a rush costs, and who waits for whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from kube_base.errors import KubeError
from kube_rdma.ipam.rules import agent as operations
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.node_state import load
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.model.ipam import AddressRequest, Block, IPPool, NicRequest, NodeLease, Timing

from .store import Store, is_shown

_SERVICE = 0.001  # the API server's work on a request, in seconds
_WAY = 0.001  # to it, from it, and of its news
_FSYNC = 0.001
_SPREAD = 0.1  # as effect_runner._SPREAD
_LEAST = 0.05  # between two ticks of a node, as ipam/node_addresses
_AGAIN, _LONGEST = 1.0, 200.0  # as there
_COUNTED = ("WriteBlock", "WriteBorrowQueue")
_READS = (
    *(effects.ReadBlock, effects.ReadLease, effects.ReadBorrowQueue),
    *(effects.ListBlocks, effects.ListOwnBlocks),
)


class Crowd:
    """Nodes, their API server, and the time."""

    def __init__(
        self, nodes: int, pool: IPPool, *, service: float = _SERVICE, way: float = _WAY
    ) -> None:
        self.service, self.way = service, way
        self.random = Random(1)  # noqa: S311 - spreads load
        self.store = Store(self.random)
        self.now = 0.0
        self.requests: Counter[str] = Counter()
        self.refusals = 0
        self._idle_at = 0.0
        self._order, self._events = count(), []
        self.members = [Member(f"n{number}", self, pool) for number in range(nodes)]

    def at(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after so many seconds."""
        heappush(self._events, (self.now + seconds, next(self._order), then))

    def serve(self, pods: int, until: float) -> None:
        """Let every node ask for `pods` addresses, one after the other; at most so long."""
        for member in self.members:
            member.rush(pods)
        while self._events and any(m.waits for m in self.members) and self.now < until:
            self.now, _, then = heappop(self._events)
            then()

    @property
    def writes(self) -> int:
        """Writes of blocks and borrow queues, those too that lost against another."""
        return sum(n for kind, n in self.requests.items() if kind.startswith(_COUNTED))

    def request(self, effect: effects.Effect, answer: Callable[[object], None]) -> None:
        """A request of a node: it waits for its turn at the server."""
        self._idle_at = max(self.now + self.way, self._idle_at) + self.service

        def served() -> None:
            result = self.store.request(effect, False, 0.0)
            kind = type(effect).__name__
            self.requests[kind if result or isinstance(effect, _READS) else f"{kind} lost"] += 1
            self.at(self.way, lambda: answer(result))
            if result and isinstance(effect, effects.WriteBlock | effects.WriteBorrowQueue):
                self.at(self.way, lambda: self._tell(result))

        self.at(self._idle_at - self.now, served)

    def _tell(self, news: object) -> None:
        for member in self.members:
            member.hear(news)


class Member:
    """A node's agent."""

    def __init__(self, name: str, crowd: Crowd, pool: IPPool) -> None:
        self.crowd, self.pool, self.waits = crowd, pool, True
        self.given: list[str] = []
        self.agent = effects.IpamAgentState(
            NodeLease(name, f"journal-{name}", f"boot-{name}"),
            load(name, (), 0.0),
            Timing(),
            {pool.name: subpools(pool)},
        )
        self._pauses: list[Callable[[], None]] = []
        self.told = self._ticks = 0
        self._ticking = self._low = False

    def rush(self, pods: int) -> None:
        """Enter, then ask for so many addresses."""
        self._run(operations.acquire_lease(self.agent), lambda _: self._next(pods))

    def hear(self, news: object) -> None:
        """What the watches bring; old news come too."""
        agent, node = self.agent, self.agent.state.node
        if not isinstance(news, Block):
            agent.queues = {**agent.queues, news.pool: news}
            self._tick_soon()
        elif agent.sees_all or is_shown(news, node):
            agent.observe(news.key, news)
        elif is_shown(agent.blocks.get(news.key), node):
            agent.lose_sight(news.key)
            self._tick_soon()
        else:
            return
        self.told += 1
        self._wake()

    def _next(self, pods: int) -> None:
        if len(self.given) == pods:
            self.waits = False
            self._tick_soon()
            return
        container = f"{self.agent.state.node}-{len(self.given)}"
        request = AddressRequest(
            container, f"uid-{container}", (NicRequest("net1", self.pool.name),)
        )

        def answered(result: object) -> None:
            if isinstance(result, KubeError):
                self.crowd.refusals += 1
                self.crowd.at(0.2, lambda: self._next(pods))
                return
            self.given += [str(allocation.address) for allocation in result.allocations]
            self._tick_soon()
            self._wake()
            self._next(pods)

        self._run(operations.add(self.agent, request), answered)

    def _tick_soon(self) -> None:
        if self._ticking:
            self._low = True
            return
        self._ticking, self._low = True, False

        def over(_: object) -> None:
            def again() -> None:
                self._ticking = False
                if self._low:
                    self._tick_soon()
                else:
                    self._tick_later()

            self.crowd.at(_LEAST, again)

        self._run(operations.tick(self.agent), over)

    def _tick_later(self) -> None:
        self._ticks += 1
        number = self._ticks

        def tick() -> None:
            if number == self._ticks:  # else another came before
                self._tick_soon()

        due = operations.next_tick(self.agent, self.crowd.now) - self.crowd.now
        self.crowd.at(min(due, _LONGEST) if due > 0 else _AGAIN, tick)

    def _wake(self) -> None:
        pauses, self._pauses = self._pauses, []
        for go_on in pauses:
            self.crowd.at(self.crowd.random.uniform(0, _SPREAD), go_on)

    def _run(self, task: effects.Effects, done: Callable[[object], None]) -> None:
        def go_on(answer: object) -> None:
            try:
                effect = task.send(answer)
            except StopIteration as stop:
                done(stop.value)
                return
            except KubeError as error:
                done(error)
                return
            match effect:
                case effects.Clock():
                    go_on(self.crowd.now)
                case effects.Put() | effects.Remove():
                    self.crowd.at(_FSYNC, lambda: go_on(None))
                case effects.Pause(seconds):
                    self._pause(seconds, lambda: go_on(None))
                case _:
                    self.crowd.request(effect, go_on)

        go_on(None)

    def _pause(self, seconds: float, go_on: Callable[[], None]) -> None:
        over = False

        def once() -> None:
            nonlocal over
            if not over:
                over = True
                go_on()

        self._pauses.append(once)
        self.crowd.at(seconds, once)
