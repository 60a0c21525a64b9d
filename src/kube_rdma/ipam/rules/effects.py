"""The effects that the address rules ask for, one at a time, and the state that they share.

Order is what makes the addresses safe: read, write, only then believe. So the order is a rule too:
the operations in agent.py (a node) and reclaim.py (the controller) are generators that yield an
Effect and are sent its result. The program carries out each effect with its adapter; the model test
does it in a world where everything goes wrong. Between two effects an operation works alone, so the
state needs no lock as long as one thread runs all operations on it.

An effect that fails raises Unavailable where it is yielded. A write to the API server never raises:
its result is the object as stored, or None for everything that is not a plain success (conflict,
timeout, no contact). A write that has been given up must not be answered later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Any, TypeVar

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.ipam.rules.blocks import after_rollback, is_older
from kube_rdma.ipam.rules.grant import Catalog, Shortage
from kube_rdma.ipam.rules.node_state import NodeAddressState, confirmed_bits, suspend_right
from kube_rdma.model import ipam


class Effect(Frozen):
    """A request of an operation to its program; each kind says → what the operation is sent."""


class Clock(Effect):
    """→ float: seconds of a clock that only goes on, suspended or not (CLOCK_BOOTTIME)."""


class Put(Effect):
    """→ None: the record is in the journal and survives a loss of power (fsync)."""

    record: ipam.AllocationRecord


class Remove(Effect):
    """→ None: the journal durably has no record of the container."""

    container: ipam.ContainerId


class ListBlocks(Effect):
    """→ dict[BlockKey, Block]: all blocks, as the API server has them now (no cache)."""


class ReadBlock(Effect):
    """→ Block | None: as the API server has it now."""

    key: ipam.BlockKey


class WriteBlock(Effect):
    """→ Block | None: create where `version` is None, else replace exactly that version."""

    block: ipam.Block


class DropBlock(Effect):
    """→ None: delete exactly this version, if it is still there."""

    block: ipam.Block


class ReadLease(Effect):
    """→ NodeLease | None: as the API server has it now."""

    node: ipam.NodeName


class WriteLease(Effect):
    """→ NodeLease | None: like WriteBlock."""

    lease: ipam.NodeLease


class DropLease(Effect):
    """→ None: like DropBlock."""

    lease: ipam.NodeLease


class ReadBorrowQueue(Effect):
    """→ BorrowQueue: as the API server has it now; empty where the pool has no borrow requests."""

    pool: ipam.PoolName


class WriteBorrowQueue(Effect):
    """→ BorrowQueue | None: like WriteBlock."""

    queue: ipam.BorrowQueue


class Pause(Effect):
    """→ None: go on after `seconds`, or earlier when a block or borrow queue changed."""

    seconds: float


T = TypeVar("T")
Effects = Generator[Effect, Any, T]
"""An operation: it yields effects, is sent their results, and returns a T."""


class IpamAgentState(Struct):
    """The knowledge of a node's agent: the one value that changes, shared by its operations.

    The program writes what its watches show into `catalog`, `blocks` and `queues`, perhaps late.
    """

    identity: ipam.NodeLease  # who writes the lease
    state: NodeAddressState
    timing: ipam.Timing = field(default_factory=ipam.Timing)
    catalog: Catalog = field(default_factory=dict)
    blocks: dict[ipam.BlockKey, ipam.Block] = field(default_factory=dict)
    queues: Mapping[ipam.PoolName, ipam.BorrowQueue] = field(default_factory=dict)
    lease: ipam.NodeLease | None = None  # as last written by this process
    busy: set[ipam.BlockKey] = field(default_factory=set)  # with a write under way
    serving: set[ipam.ContainerId] = field(default_factory=set)  # with a request under way
    # Lacks of requests that wait for other nodes; times since owners wait for their last address.
    waiting: dict[ipam.ContainerId, tuple[Shortage, ...]] = field(default_factory=dict)
    awaited_since: dict[ipam.Owner, float] = field(default_factory=dict)
    # Until then the node acquires nothing: the store went back, and every node first asks back what
    # its pods have. Infinite until the node has acquired its lease again.
    recall_until: float = -inf
    trusted: Mapping[ipam.BlockKey, ipam.Bits] = field(default_factory=dict)  # at the rollback
    # While true it acquires nothing either: the server may come back restored.
    is_watch_interrupted: Callable[[], bool] = lambda: False

    def may_acquire(self, now: float) -> bool:
        """Return whether the node may take addresses that it does not hold."""
        return now >= self.recall_until and not self.is_watch_interrupted()

    @property
    def is_rolled_back(self) -> bool:
        """Return whether the store went back and the node has not acquired its lease since."""
        return self.recall_until == inf

    @property
    def cooldown(self) -> float:
        """Return the longest cool-down of any pool, in seconds."""
        every = (subpool for pool in self.catalog.values() for subpool in pool)
        return max((subpool.cooldown for subpool in every), default=0.0)

    def note_rollback(self, now: float, *, of_machine: bool = False) -> None:
        """Grant and acquire nothing until the node has acquired its lease again.

        `of_machine`: this machine went back, not the store, so nothing that it believes is sure.
        """
        if self.is_rolled_back:
            self.state = suspend_right(self.state)
            return
        self.recall_until = inf
        is_sure = not of_machine and now < self.state.right_until
        self.trusted = confirmed_bits(self.state) if is_sure else {}
        self.state = after_rollback(self.state, self.blocks, self.trusted)

    def observe(self, key: ipam.BlockKey, block: ipam.Block | None) -> None:
        """Keep a block that was read, written or shown by a watch, unless it is older."""
        latest = self.blocks.get(key)
        if block is None:
            self.blocks.pop(key, None)
        elif latest is None or self.is_rolled_back or not is_older(block, latest):
            self.blocks[key] = block
