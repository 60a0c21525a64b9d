"""The effects that the address rules ask for, one at a time, and the state that they share.

Order is what makes the addresses safe: read, write, only then believe. So the order is a rule too.
The operations in agent.py (a node) and reclaim.py (the controller) are generators that yield an
Effect and are sent its result. The program carries out each effect with its adapter; the model test
does it in a world where everything goes wrong. Between two effects an operation works alone, so the
state needs no lock as long as one thread runs all operations on it.

An effect that fails raises Unavailable where it is yielded. A write to the API server never raises.
Its result is the object as stored, or None for everything that is not a plain success (conflict,
timeout, no contact).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Any, TypeVar

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.ipam.rules.blocks import after_rollback, held_by, is_older
from kube_rdma.ipam.rules.grant import Catalog, Shortage
from kube_rdma.ipam.rules.node_state import (
    NodeAddressState,
    confirmed_bits,
    doubt,
    suspend_right,
)
from kube_rdma.model import ipam


class Effect(Frozen):
    """A request of an operation to the program that runs it.

    The docstring of each kind says what the operation is sent as the answer.
    """


class Clock(Effect):
    """Ask for the time; the answer is a float.

    It is in seconds of a clock that also counts while the machine is suspended (CLOCK_BOOTTIME).
    """


class Put(Effect):
    """Write a record into the journal; the answer is None.

    The record then survives a loss of power (fsync).
    """

    record: ipam.AllocationRecord


class Remove(Effect):
    """Remove a container's record from the journal, durably; the answer is None."""

    container: ipam.ContainerId


class ListOwnBlocks(Effect):
    """Read the blocks with the node's label; the answer is a dict of them by key.

    They are as the API server has them now. From then on the program watches these blocks for
    IpamAgentState.
    """

    node: ipam.NodeName


class ListBlocks(Effect):
    """Read all blocks; the answer is a dict of them by key.

    From then on the program watches all blocks, until `IpamAgentState.forget`.
    """


class ListPinned(Effect):
    """Read the blocks whose label names the owner's pod; the answer is a dict of them by key."""

    owner: ipam.Owner


class ReadBlock(Effect):
    """Read a block as the API server has it now; the answer is the block, or None.

    It is None for a missing or garbled block, or where the API server refuses the read.
    """

    key: ipam.BlockKey


class WriteBlock(Effect):
    """Create a block if its version is None, else replace exactly that version.

    The answer is the block as stored; None where it was not written or that is unknown.
    """

    block: ipam.Block


class DropBlock(Effect):
    """Delete a block if it still has this version; the answer tells nothing."""

    block: ipam.Block


class ReadLease(Effect):
    """Read a node's lease as the API server has it now; the answer is None without a lease."""

    node: ipam.NodeName


class WriteLease(Effect):
    """Write a node's lease as WriteBlock writes a block; the answer is the lease, or None."""

    lease: ipam.NodeLease


class DropLease(Effect):
    """Delete a node's lease if it still has this version; the answer tells nothing."""

    lease: ipam.NodeLease


class ReadBorrowQueue(Effect):
    """Read the borrow queue of a pool as the API server has it now; the answer is the queue.

    It is empty where the pool is missing or has no borrow requests.
    """

    pool: ipam.PoolName


class WriteBorrowQueue(Effect):
    """Write the borrow queue of a pool; the answer is the queue as stored, or None.

    It is None where it was not written or that is unknown.
    """

    queue: ipam.BorrowQueue


class Pause(Effect):
    """Wait `seconds`, or until a block or pool changes or a request ends; the answer is None."""

    seconds: float


T = TypeVar("T")
Effects = Generator[Effect, Any, T]
"""An operation: it yields effects, is sent their results, and returns a T."""


class IpamAgentState(Struct):
    """The knowledge of a node's IPAM agent: one changing value that all its operations share.

    The program writes what its watches show into `catalog`, `blocks` and `queues`, perhaps late.
    `blocks` has the node's blocks and others that it read: any other block may be free.
    """

    identity: ipam.NodeLease  # who writes the lease
    state: NodeAddressState
    timing: ipam.Timing = field(default_factory=ipam.Timing)
    catalog: Catalog = field(default_factory=dict)
    blocks: dict[ipam.BlockKey, ipam.Block] = field(default_factory=dict)
    sees_all: bool = False  # until `seen_until`: its watch shows all blocks
    seen_until: float = -inf
    # Blocks of the node that its watch shows no more: deleted, or without its label.
    unseen: set[ipam.BlockKey] = field(default_factory=set)
    queues: Mapping[ipam.PoolName, ipam.BorrowQueue] = field(default_factory=dict)
    lease: ipam.NodeLease | None = None  # of this journal, as last written or read
    busy: set[ipam.BlockKey] = field(default_factory=set)  # with a write under way
    serving: set[ipam.ContainerId] = field(default_factory=set)  # with a request under way
    # What requests lack that wait for other nodes; since when owners wait for their last address.
    waiting: dict[ipam.ContainerId, tuple[Shortage, ...]] = field(default_factory=dict)
    awaited_since: dict[ipam.Owner, float] = field(default_factory=dict)
    # When the node gives back addresses of a pool, if other nodes still request some.
    lends_at: dict[ipam.PoolName, float] = field(default_factory=dict)
    # Until then the node acquires nothing: etcd was restored to an earlier state, and every node
    # first asks back what its pods have. Infinite until the node has acquired its lease again.
    recall_until: float = -inf
    # What was surely the node's when etcd was found restored.
    trusted: Mapping[ipam.BlockKey, ipam.Bits] = field(default_factory=dict)
    # While it returns True the node acquires nothing: etcd may have been restored meanwhile.
    is_watch_interrupted: Callable[[], bool] = lambda: False

    def may_acquire(self, now: float) -> bool:
        """Return whether the node may take addresses that it does not hold yet."""
        return now >= self.recall_until and not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Return whether etcd may have been restored to an earlier state.

        That is so while a watch is interrupted, then until the lease was written. It is also so
        while a block of the node is not shown.
        """
        return bool(self.unseen) or self.is_watch_interrupted()

    @property
    def is_rolled_back(self) -> bool:
        """Return whether etcd was restored, and the node has not acquired its lease since."""
        return self.recall_until == inf

    @property
    def cooldown(self) -> float:
        """Return the longest cool-down of any pool, in seconds."""
        every = (subpool for pool in self.catalog.values() for subpool in pool)
        return max((subpool.cooldown for subpool in every), default=0.0)

    def note_rollback(self, now: float, *, of_machine: bool = False) -> None:
        """Stop granting and acquiring addresses until the node has acquired its lease again.

        Call it when etcd was restored to an earlier state. `of_machine` says that this machine was,
        not etcd: then nothing that the node believes is sure.
        """
        if self.is_rolled_back:
            self.state = suspend_right(self.state)
            return
        self.recall_until = inf
        is_sure = not of_machine and now < self.state.right_until
        self.trusted = confirmed_bits(self.state) if is_sure else {}
        self.state = after_rollback(self.state, self.blocks, self.trusted)

    def observe(self, key: ipam.BlockKey, block: ipam.Block | None) -> None:
        """Keep a block as it was read, written or watched, unless a newer version is known.

        Drop the known block if `block` is None. While etcd counts as restored, keep older versions
        too.
        """
        latest = self.blocks.get(key)
        self.unseen.discard(key)
        if block is None:
            self.blocks.pop(key, None)
        elif latest is None or self.is_rolled_back or not is_older(block, latest):
            self.blocks[key] = block

    def is_news(self, key: ipam.BlockKey, block: ipam.Block | None) -> bool:
        """Return whether a watched block differs from what the node believes that it holds there.

        Changed pins do not count: two living pods of one owner would have their nodes write in
        turns.
        """
        holding = self.state.holdings.get(key)
        return held_by(block, self.state.node) != (holding.confirmed if holding else 0)

    def lose_sight(self, key: ipam.BlockKey) -> None:
        """Note that the watch of the node's blocks does not show this block any more.

        The node confirms its holding before it grants addresses of the block again. The API server
        reports a block that lost its label like one that is gone (apiserver,
        cacher/cache_watcher.go, convertToWatchEvent).
        """
        if key in self.state.holdings:
            self.unseen.add(key)
            if self.state.holdings[key].confirmed:  # else addresses in it may be reported as lost
                self.state = doubt(self.state, key)
        elif not self.sees_all:
            self.blocks.pop(key, None)

    def forget(self) -> None:
        """Forget that all blocks are watched, and the blocks in which the node has no holding."""
        node, holdings = self.state.node, self.state.holdings
        self.sees_all, self.seen_until = False, -inf
        self.blocks = {
            key: one for key, one in self.blocks.items() if key in holdings or held_by(one, node)
        }
