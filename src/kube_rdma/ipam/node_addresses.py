"""Runs the node's side of IPAM, which gives the node's pods addresses of IPPools.

The rules decide (ipam/rules/agent); this program gives them the API server and a clock. Two watches
show what the API server has: pools with their borrow queues, and the node's blocks. A third shows
all blocks for a time where the node needs them, as after a restore of etcd. One task keeps the
node's right to give addresses, one does what no request waits for, and each request is a task of
its own. A caller that gives up cancels no request: half of one would leave a borrow request in a
queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from kube_base.backoff import has_happened
from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, kept
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam.effect_runner import AddressJournal, EffectRunner, Handler, IpamTiming
from kube_rdma.ipam.objects import holder_label
from kube_rdma.ipam.rules import agent, effects
from kube_rdma.ipam.rules.blocks import is_rollback
from kube_rdma.ipam.rules.grant import GrantedAddresses, describe_loss
from kube_rdma.ipam.rules.node_state import load, lost, spare
from kube_rdma.ipam.rules.pools import refuse_namespace
from kube_rdma.ipam.rules.subpools import Subpool, subpools, subpools_for
from kube_rdma.lib.mirror import Mirror
from kube_rdma.model import ipam

_TICKS = 20  # rounds of upkeep at most in IpamTiming.tick seconds

T = TypeVar("T")

log = structlog.get_logger()


class IpamDependencies(Frozen):
    """The dependencies of NodeAddresses: the API server and the disk."""

    cluster: Cluster
    namespace: str  # of the nodes' leases
    disk: Folder  # of the journal: /var/lib/kube-rdma/addresses


class _Pool(Frozen):
    value: ipam.IPPool
    subpools: tuple[Subpool, ...]
    queue: ipam.BorrowQueue


class NodeAddresses:
    """The provider of addresses on one node: ``async with NodeAddresses(node, boot, …) as it``.

    Entering reads the journal, and does not wait for the API server. It raises Broken if the
    journal cannot be relied on, Unavailable if the disk fails.
    """

    def __init__(
        self,
        node: ipam.NodeName,
        boot: ipam.BootId,
        dependencies: IpamDependencies,
        timing: IpamTiming | None = None,
    ) -> None:
        self._node, self._boot, self._dependencies = node, boot, dependencies
        self._timing = timing or IpamTiming()
        self._stack = AsyncExitStack()
        self._watching: dict[type[effects.Effect], asyncio.Task[None]] = {}
        self._outages = self._confirmed = 0  # of watches: all, those before the last renewal
        self._urgent = asyncio.Event()  # the right has to be renewed or acquired
        self._requests: set[asyncio.Task[Any]] = set()
        self._ready = asyncio.Event()
        self._trouble: KubeError | None = None
        self._low = asyncio.Event()  # the upkeep may have something to do
        self._listing = 0  # how many operations wait for a list of all blocks
        self._notices = Notices()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            disk = self._dependencies.disk
            journal = self._journal = await asyncio.to_thread(AddressJournal, disk)
            stack.callback(journal.close)
            contact = self._timing.agreed.contact
            identity = ipam.NodeLease(self._node, journal.journal, self._boot, duration=contact)
            state = load(self._node, journal.records, self.now())
            self._agent = effects.IpamAgentState(identity, state, self._timing.agreed)
            self._agent.is_watch_interrupted = self._is_watch_interrupted
            self._blocks: dict[type[effects.Effect], Mirror[ipam.Block]] = {}
            self._queues: dict[ipam.PoolName, ipam.BorrowQueue] = {}
            self._agent.queues = self._queues
            self._dependencies.cluster.listeners.append(self._note_rollback)
            stack.callback(self._dependencies.cluster.listeners.remove, self._note_rollback)
            self._pools = Mirror(kinds.IP_POOL, _pool, self._pool_changed, heard=self._heard)
            own: dict[type[effects.Effect], Handler] = {
                effects.Put: journal.put,
                effects.Remove: journal.remove,
                effects.ListOwnBlocks: self._list_own,
                effects.ListBlocks: self._list_all,
            }
            objects = kinds.IpamObjects(self._dependencies.cluster, self._dependencies.namespace)
            self._runner = EffectRunner(objects, self._timing, own)
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            parts: dict[str, Part] = {
                "IP pools": partial(
                    self._pools.follow, self._dependencies.cluster, self._timing.pause
                ),
                "node lease": self._keep_right,
                "address upkeep": self._keep_up,
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
                return False  # nothing of this node failed, so the caller's error goes on unchanged
            raise

    async def add(self, request: ipam.AddressRequest) -> GrantedAddresses:
        """Allocate all addresses of a request, durably; a container that has some keeps them.

        Raise Refused where a person has to act, as for a pool that is missing or full. Raise it too
        if the API server refuses to write a block. Raise Unavailable where a later try may succeed,
        as without contact to the API server or if the disk fails. Raise Broken if the node has lost
        an address of the container, or its journal. When the caller gives up, the request goes on
        to its end: repeat it, or call `delete`.
        """
        self._refuse_unready()
        for nic in request.nics:
            if fault := self._pools.faults.get(nic.pool):
                raise fault
        pools = self._pools.values.values()
        refuse_namespace(request, {pool.value.name: pool.value for pool in pools})
        before = self._runner.refusal
        if self.now() >= self._agent.state.right_until:  # after a sleep of the machine
            self._urgent.set()
        try:
            granted = await self._serve(agent.add(self._agent, request))
        except (Refused, Unavailable) as error:
            self._low.set()
            refusal = self._runner.refusal
            if refusal and refusal is not before:  # else the pool only looks full
                raise refusal from error
            raise
        if any(nic.owner or self._is_low(nic.pool, nic.rail) for nic in request.nics):
            self._low.set()
        return granted

    async def delete(
        self, container: ipam.ContainerId, interface: ipam.InterfaceName | None = None
    ) -> None:
        """Release the addresses of a container, or of its `interface`; do nothing without any.

        This needs no API server, and a disk that fails does not stop it: see agent.delete.
        """
        await self._serve(agent.delete(self._agent, container, interface))
        self._low.set()

    def now(self) -> float:
        """Return the time for `collect`, in seconds, by the clock of IpamTiming.

        Call this before the runtime lists its containers.
        """
        return self._timing.clock()

    async def collect(self, living: frozenset[ipam.ContainerId], since: float) -> None:
        """Release the addresses of containers that `living` lacks, if recorded before `since`.

        `since` is the time, by `now`, at which the listing of `living` began.
        """
        await self._serve(agent.collect(self._agent, living, since))
        self._low.set()

    async def check(self) -> tuple[Broken, ...]:
        """Return an error for each address of a living container that this node has lost.

        Return none while every node asks back its addresses after a restore of etcd. Raise
        Unavailable or Broken while no address can be given.
        """
        self._refuse_unready()
        if self.now() >= self._agent.state.right_until:
            raise self._trouble or Unavailable(f"node {self._node} has lost its right to grant")
        return self._lost()

    def pools(self) -> Mapping[ipam.PoolName, ipam.IPPool] | None:
        """Return the pools that the watch shows, by which the node gives addresses.

        Return None before the watch has shown all, and while it is interrupted: what it showed may
        be old.
        """
        if self._pools.trouble or not self._pools.synced.is_set():
            return None
        return {ipam.PoolName(name): one.value for name, one in self._pools.values.items()}

    def _refuse_unready(self) -> None:
        """Raise Unavailable or Broken, with the reason, while the node gives no addresses yet."""
        if not self._ready.is_set():
            why = self._trouble or self._pools.trouble or "it waits for its lease"
            kind = Broken if isinstance(why, Broken) else Unavailable
            raise kind(f"node {self._node} gives no addresses yet: {why}")

    async def _serve(self, operation: effects.Effects[T]) -> T:
        task = asyncio.create_task(self._runner.run(operation))
        self._requests.add(task)
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may be gone
        self._runner.wake()

    async def _keep_right(self) -> None:
        """Acquire the node's lease, then renew it in time until cancelled.

        Renew it at once after an outage of a watch: the lease then shows whether etcd or this
        machine was restored to an earlier state.
        """
        await self._pools.synced.wait()
        failures, due, outages = 0, self.now(), 0
        while True:
            self._urgent.clear()
            if self._outages != outages and not self._is_in_trouble():
                outages, due = self._outages, self.now()
            if self.now() >= due or (self._agent.is_rolled_back and not failures):
                sent, known = self.now(), self._outages
                done = await self._renew()
                failures = 0 if done else failures + 1
                third = self._timing.agreed.contact / 3
                pause = min(third, self._timing.pause(failures))
                due = sent + third if done else self.now() + pause  # the right counts from `sent`
                if done:
                    self._confirmed = known
                    self._low.set()
            rest = self._timing.tick if self._agent.is_rolled_back else due - self.now()
            await has_happened(self._urgent, min(rest, self._timing.longest))

    async def _renew(self) -> bool:
        """Acquire or renew the node's lease; return False if it has to be tried again soon."""
        try:
            await self._journal.refuse_foreign()
            if self._ready.is_set():
                await self._runner.run(agent.renew_lease(self._agent))
            else:
                await self._runner.run(agent.acquire_lease(self._agent))
                self._ready.set()
                log.info("address assignment enabled", node=self._node)
        except KubeError as error:
            self._notices.warn(log, "node lease not renewed", "right", str(error), node=self._node)
            self._trouble = error
            return False
        self._trouble = None
        self._notices.over("right")
        # etcd was restored again meanwhile: the next renewal acquires the lease once more.
        if self._agent.is_rolled_back:
            return True
        recalls = self._agent.recall_until - self.now()
        if recalls <= 0:
            self._notices.over("recall")
            return True
        for why in self._notices.news(
            "recall", "the API server shows an earlier state than before"
        ):
            log.warning("addresses recalled", node=self._node, why=why, seconds=round(recalls))
        return True

    async def _keep_up(self) -> None:
        """Run `agent.tick` when it has work, and log which addresses were lost, until cancelled."""
        await self._ready.wait()
        failures = 0
        while True:
            self._low.clear()
            rest = 0.0
            try:
                await self._runner.run(agent.tick(self._agent))
                rest = agent.next_tick(self._agent, self.now()) - self.now()
            except KubeError as error:
                log.debug("address upkeep interrupted", why=str(error))
            for sentence in self._notices.news("lost", *map(str, self._lost())):
                log.error("address lost", why=sentence)
            if self._agent.is_rolled_back:
                self._urgent.set()
            if not self._agent.sees_all and not self._listing:
                self._end_watch(effects.ListBlocks)
            await asyncio.sleep(self._timing.tick / _TICKS)
            failures = 0 if rest > 0 else failures + 1
            rest = rest if rest > 0 else max(self._timing.tick, self._timing.pause(failures))
            await has_happened(self._low, min(rest, self._timing.longest))

    async def _list_own(self, effect: effects.ListOwnBlocks) -> dict[ipam.BlockKey, ipam.Block]:
        """Start a watch of the node's blocks anew; return the blocks of its first list."""
        where = Where(labels=holder_label(effect.node))
        blocks = Mirror(
            kinds.IP_BLOCK, kinds.stored_block, self._own_changed, where, heard=self._heard
        )
        self._watch(effects.ListOwnBlocks, blocks)
        return await _listed(blocks)

    async def _list_all(self, _: effects.ListBlocks) -> dict[ipam.BlockKey, ipam.Block]:
        """Start a watch of all blocks anew, or join one that is starting; return its first list."""
        blocks = self._blocks.get(effects.ListBlocks)
        if blocks is None or blocks.tried.is_set():
            blocks = Mirror(kinds.IP_BLOCK, kinds.stored_block, self._changed, heard=self._heard)
            self._watch(effects.ListBlocks, blocks)
        self._listing += 1
        try:
            return await _listed(blocks)
        finally:
            self._listing -= 1
            self._low.set()  # for the end of the watch

    def _watch(self, what: type[effects.Effect], blocks: Mirror[ipam.Block]) -> None:
        self._end_watch(what)
        self._blocks[what] = blocks
        follow = partial(blocks.follow, self._dependencies.cluster, self._timing.pause)
        self._watching[what] = self._tasks.create_task(kept("IP blocks", follow))

    def _end_watch(self, what: type[effects.Effect]) -> None:
        if self._blocks.pop(what, None):
            self._watching.pop(what).cancel()
            self._heard()

    def _is_in_trouble(self) -> bool:
        blocks = any(mirror.trouble for mirror in self._blocks.values())
        return blocks or bool(self._pools.trouble)

    def _is_watch_interrupted(self) -> bool:
        """Return whether a watch is interrupted, or has been since the lease was last written."""
        return self._is_in_trouble() or self._outages != self._confirmed

    def _heard(self) -> None:
        """Count an outage of a watch; after its end, have the lease and hidden blocks checked.

        Both show whether etcd was restored to an earlier state. Hidden blocks are blocks of the
        node that the watch does not show.
        """
        if self._is_in_trouble():
            self._outages += 1
        elif self._outages != self._confirmed:
            own = self._blocks.get(effects.ListOwnBlocks)
            shown = own.values if own and own.synced.is_set() else {}
            for key in self._agent.state.holdings:
                if key.name not in shown:
                    self._agent.lose_sight(key)
            self._low.set()
            self._urgent.set()

    def _note_rollback(self) -> None:
        """Stop granting addresses, as etcd was restored; have the lease acquired anew at once."""
        self._agent.note_rollback(self.now())
        self._urgent.set()

    def _own_changed(self, old: ipam.Block | None, new: ipam.Block | None) -> None:
        block = new or old
        assert block
        if new or block.key.name in self._blocks[effects.ListOwnBlocks].faults:
            self._changed(old, new)
        else:
            self._agent.lose_sight(block.key)
            self._runner.wake()
            self._low.set()

    def _changed(self, old: ipam.Block | None, new: ipam.Block | None) -> None:
        block = new or old
        assert block
        is_garbled = any(block.key.name in mirror.faults for mirror in self._blocks.values())
        if is_rollback(old, new) and not is_garbled:
            self._note_rollback()
        self._agent.observe(block.key, new)
        if self._agent.is_news(block.key, new):
            self._low.set()
        self._runner.wake()

    def _pool_changed(self, old: _Pool | None, new: _Pool | None) -> None:
        pool = new or old
        assert pool
        name = pool.queue.pool
        catalog = {key: value for key, value in self._agent.catalog.items() if key != name}
        self._queues.pop(name, None)
        if new:
            catalog[name] = new.subpools
            self._queues[name] = new.queue
        self._agent.catalog = catalog
        self._low.set()
        self._runner.wake()

    def _is_low(self, pool: ipam.PoolName, rail: int | None) -> bool:
        pool_subpools = subpools_for(self._agent.catalog.get(pool, ()), rail)
        shared = (subpool for subpool in pool_subpools if subpool.is_shared)
        return any(spare(self._agent.state, one) < one.block_size // 2 for one in shared)

    def _lost(self) -> tuple[Broken, ...]:
        if self.now() < self._agent.recall_until:
            return ()  # the nodes that hold them now may be about to give them back
        state = self._agent.state
        return tuple(Broken(describe_loss(state, record, gone)) for record, gone in lost(state))

    async def _end(self, loops: list[asyncio.Task[None]]) -> None:
        """Cancel all loops and requests: every operation stops where it is, as in a crash."""
        requests = tuple(self._requests)
        for task in (*loops, *self._watching.values(), *requests):
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


def _pool(stored: Stored[Any, Any]) -> _Pool:
    value = kinds.pool_of(stored)
    return _Pool(value, subpools(value), kinds.borrow_queue(stored))


async def _listed(blocks: Mirror[ipam.Block]) -> dict[ipam.BlockKey, ipam.Block]:
    """Return the blocks of a watch once it has listed them; raise Unavailable if it failed."""
    await blocks.tried.wait()
    if blocks.trouble:
        raise Unavailable(blocks.trouble)
    return {block.key: block for block in blocks.values.values()}
