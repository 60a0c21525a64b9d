"""The node's side of IPAM, running: the one place where this node's pods get their addresses.

The rules decide (rules/ipam/agent); here they get their neighbours and their time. Two watches tell
what the API server has: pools with their boards, and blocks. One task keeps the node's right to
give addresses, one does what no request waits for, and each request is a task of its own, which
nobody cancels: half a request would leave a want on a board.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, kept
from kube_rdma.adapters.cluster import ipam
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL, pool_of
from kube_rdma.adapters.journal.disk import Disk
from kube_rdma.model.ipam import (
    Ask,
    Block,
    Board,
    BootId,
    Cell,
    ContainerId,
    InterfaceName,
    IPPool,
    NodeLease,
    NodeName,
    PoolName,
)
from kube_rdma.programs.controller.mirror import Mirror
from kube_rdma.programs.ipam.ledger import Ledger
from kube_rdma.programs.ipam.pace import IpamTiming
from kube_rdma.programs.ipam.runner import Handler, Runner
from kube_rdma.rules.ipam import agent, effects
from kube_rdma.rules.ipam.blocks import went_back
from kube_rdma.rules.ipam.cells import Zone, zones, zones_for
from kube_rdma.rules.ipam.grant import Granted, describe_loss
from kube_rdma.rules.ipam.node_state import load, lost, spare
from kube_rdma.rules.ipam.pools import refuse_namespace

_TICKS = 20  # at most so many in the time of one, however much happens

T = TypeVar("T")

log = structlog.get_logger()


class IpamDependencies(Frozen):
    """Whom the node needs. `namespace` is where the leases of the nodes are, `disk` the journal's
    folder, /var/lib/kube-rdma/addresses."""

    cluster: Cluster
    namespace: str
    disk: Disk


class _Pool(Frozen):
    value: IPPool
    zones: tuple[Zone, ...]
    board: Board


class NodeAddresses:
    """An AddressProvider: ``async with NodeAddresses(node, boot, doors) as addresses``.

    Entering reads the journal and raises Broken when it cannot be relied on, Unavailable when the
    disk fails; it does not wait for the API server.
    """

    def __init__(
        self, node: NodeName, boot: BootId, doors: IpamDependencies, pace: IpamTiming | None = None
    ) -> None:
        self._node, self._boot, self._doors = node, boot, doors
        self._pace = pace or IpamTiming()
        self._stack = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self._entered = asyncio.Event()
        self._trouble: KubeError | None = None
        self._low = asyncio.Event()  # the stock is, or a pool has changed
        self._notices = Notices()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            ledger = self._ledger = await asyncio.to_thread(Ledger, self._doors.disk)
            stack.callback(ledger.close)
            mine = NodeLease(
                self._node, ledger.journal, self._boot, duration=self._pace.timing.contact
            )
            state = load(self._node, ledger.bookings, self.now())
            self._desk = effects.IpamAgentState(mine, state, self._pace.timing)
            self._desk.is_blind = self._is_blind
            self._blocks: Mirror[Block] | None = None
            self._boards: dict[PoolName, Board] = {}
            self._desk.boards = self._boards
            self._doors.cluster.listeners.append(self._store_went_back)
            stack.callback(self._doors.cluster.listeners.remove, self._store_went_back)
            self._pools = Mirror(IP_POOL, _pool, self._pool_changed)
            own: dict[type[effects.Act], Handler] = {
                effects.Put: ledger.put,
                effects.Remove: ledger.remove,
                effects.ListBlocks: self._list,
            }
            door = ipam.IpamObjects(self._doors.cluster, self._doors.namespace)
            self._runner = Runner(door, self._pace, own)
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            parts: dict[str, Part] = {
                "IP pools": partial(self._pools.follow, self._doors.cluster, self._pace.pause),
                "node lease": self._keep_right,
                "address upkeep": self._keep_order,
            }
            loops = [self._tasks.create_task(kept(*part)) for part in parts.items()]
            stack.push_async_callback(self._end, loops)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions == (error,):
                return False  # nothing of this node failed, so it goes on as it came
            raise

    async def add(self, request: Ask) -> Granted:
        """As AddressProvider.add."""
        self._serving()
        for nic in request.nics:
            if fault := self._pools.faults.get(nic.pool):
                raise fault
        pools = self._pools.values.values()
        refuse_namespace(request, {pool.value.name: pool.value for pool in pools})
        before = self._runner.refusal
        try:
            granted = await self._serve(agent.add(self._desk, request))
        except (Refused, Unavailable) as error:
            refusal = self._runner.refusal
            if refusal and refusal is not before:  # else the pool only looks full
                raise refusal from error
            raise
        if any(self._is_low(nic.pool, nic.rail) for nic in request.nics):
            self._low.set()
        return granted

    async def delete(self, container: ContainerId, interface: InterfaceName | None = None) -> None:
        """As AddressProvider.delete; works without the API server."""
        await self._serve(agent.delete(self._desk, container, interface))

    def now(self) -> float:
        """As AddressProvider.now."""
        return self._pace.clock()

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """As AddressProvider.collect; works without the API server."""
        await self._serve(agent.collect(self._desk, living, since))

    async def check(self) -> tuple[Broken, ...]:
        """As AddressProvider.check."""
        self._serving()
        if self.now() >= self._desk.state.right_until:
            raise self._trouble or Unavailable(f"node {self._node} has lost its right to grant")
        return self._lost()

    def pool(self, name: PoolName) -> IPPool | None:
        """A pool as the watch shows it, by which addresses are given too; None: nothing is known.

        Nor while the watch is interrupted: what it showed before may be old.
        """
        pool = None if self._pools.trouble else self._pools.values.get(name)
        return pool.value if pool else None

    def _serving(self) -> None:
        """Raise why there is no right to give addresses yet."""
        if not self._entered.is_set():
            why = self._trouble or self._pools.trouble or "it waits for its lease"
            kind = Broken if isinstance(why, Broken) else Unavailable
            raise kind(f"node {self._node} gives no addresses yet: {why}")

    async def _serve(self, operation: effects.Talk[T]) -> T:
        task = asyncio.create_task(self._runner.run(operation))
        self._requests.add(task)
        task.add_done_callback(self._served)
        return await asyncio.shield(task)

    def _served(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # the one who asked may be gone
        self._runner.wake()

    async def _keep_right(self) -> None:
        """Renew in time, by a clock that goes on while the machine sleeps.

        At once after an outage: the lease shows whether the server, or this machine, was restored.
        """
        await self._pools.synced.wait()
        failures, due, outages = 0, self.now(), 0
        while True:
            if self._pools.outages != outages and not self._pools.trouble:
                outages, due = self._pools.outages, self.now()
            if self.now() >= due or (self._desk.is_back and not failures):
                sent = self.now()
                done = await self._renew()
                failures = 0 if done else failures + 1
                third = self._pace.timing.contact / 3
                pause = min(third, self._pace.pause(failures))
                due = sent + third if done else self.now() + pause  # the right counts from `sent`
            await asyncio.sleep(self._pace.tick)

    async def _renew(self) -> bool:
        """Enter or renew; False when it has to be tried again soon."""
        try:
            await self._ledger.refuse_foreign()
            if self._entered.is_set():
                await self._runner.run(agent.renew(self._desk))
            else:
                await self._runner.run(agent.enter(self._desk))
                self._entered.set()
                log.info("address assignment enabled", node=self._node)
        except KubeError as error:
            for why in self._notices.news("right", str(error)):
                log.warning("node lease not renewed", node=self._node, why=why)
            self._trouble = error
            return False
        self._trouble = None
        self._notices.over("right")
        if self._desk.is_back:  # anew, by now: the next look enters once more
            return True
        recalls = self._desk.recall_until - self.now()
        if recalls <= 0:
            self._notices.over("recall")
            return True
        for why in self._notices.news(
            "recall", "the API server shows an earlier state than before"
        ):
            log.warning("addresses recalled", node=self._node, why=why, seconds=round(recalls))
        return True

    async def _keep_order(self) -> None:
        """Tick, and tell which addresses were lost."""
        await self._entered.wait()
        while True:
            self._low.clear()
            try:
                await self._runner.run(agent.tick(self._desk))
            except KubeError as error:
                log.debug("address upkeep interrupted", why=str(error))
            for sentence in self._notices.news("lost", *map(str, self._lost())):
                log.error("address lost", why=sentence)
            await asyncio.sleep(self._pace.tick / _TICKS)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pace.tick):
                    await self._low.wait()

    async def _list(self, _: effects.ListBlocks) -> dict[Cell, Block]:
        """Begin to watch the blocks again: the watch's own list is the one that is asked for."""
        if self._watching:
            self._watching.cancel()
        blocks = Mirror(ipam.IP_BLOCK, ipam.block, self._block_changed)
        self._blocks = blocks
        follow = partial(blocks.follow, self._doors.cluster, self._pace.pause)
        self._watching = self._tasks.create_task(kept("IP blocks", follow))
        await blocks.tried.wait()
        if blocks.trouble:
            raise Unavailable(blocks.trouble)
        return {block.cell: block for block in blocks.values.values()}

    def _store_went_back(self) -> None:
        """Whatever shows it: grant nothing more, and enter anew at the next look."""
        self._desk.go_back(self.now())

    def _is_blind(self) -> bool:
        return bool(self._blocks and self._blocks.trouble)

    def _block_changed(self, old: Block | None, new: Block | None) -> None:
        block = new or old
        assert block
        is_garbled = bool(self._blocks and block.cell.name in self._blocks.faults)
        if went_back(old, new) and not is_garbled:
            self._store_went_back()
        self._desk.saw(block.cell, new)
        self._runner.wake()

    def _pool_changed(self, old: _Pool | None, new: _Pool | None) -> None:
        pool = new or old
        assert pool
        name = pool.board.pool
        catalog = {key: value for key, value in self._desk.catalog.items() if key != name}
        self._boards.pop(name, None)
        if new:
            catalog[name] = new.zones
            self._boards[name] = new.board
        self._desk.catalog = catalog
        self._low.set()
        self._runner.wake()

    def _is_low(self, pool: PoolName, rail: int | None) -> bool:
        pool_zones = zones_for(self._desk.catalog.get(pool, ()), rail)
        return any(spare(self._desk.state, zone) < zone.block_size // 2 for zone in pool_zones)

    def _lost(self) -> tuple[Broken, ...]:
        if self.now() < self._desk.recall_until:
            return ()  # who has them now may be about to give them back
        state = self._desk.state
        return tuple(Broken(describe_loss(state, booking, lease)) for booking, lease in lost(state))

    async def _end(self, loops: list[asyncio.Task[None]]) -> None:
        """The program ends: every talk stops where it is, as in a crash."""
        if self._watching:
            loops = [*loops, self._watching]
        requests = tuple(self._requests)
        for task in (*loops, *requests):
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


def _pool(stored: Stored[Any, Any]) -> _Pool:
    value = pool_of(stored)
    return _Pool(value, zones(value), ipam.board(stored))
