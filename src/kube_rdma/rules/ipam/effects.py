"""What the address rules say to the world, one act at a time, and the desk where they work.

Order is what makes the addresses safe: read, write, only then believe. So the order is a rule too:
agent.py (a node) and gc.py (the controller) are generators that yield an Act and are sent its
result. The program carries each act to its adapter; the model test carries it to a world where
everything goes wrong. Between two acts a generator works alone, so a desk needs no lock as long as
one thread runs all generators of a desk.

Acts that cannot be done raise Unavailable where they are yielded. A write to the API server never
raises: its result is the object as stored, or None for everything that is not a plain success
(conflict, timeout, no contact). A write that has been given up must not be answered later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Any, TypeVar

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.model.ipam import (
    Bits,
    Block,
    Board,
    Booking,
    Cell,
    ContainerId,
    NodeLease,
    NodeName,
    Owner,
    PoolName,
    Timing,
)
from kube_rdma.rules.ipam.blocks import is_older, outdated
from kube_rdma.rules.ipam.grant import Catalog, Lack
from kube_rdma.rules.ipam.node_state import NodeAddressState, cut, trusted


class Clock(Frozen):
    """→ float: seconds of a clock that only goes on, suspended or not (CLOCK_BOOTTIME)."""


class Put(Frozen):
    """→ None: the booking is in the journal and survives a loss of power (fsync)."""

    booking: Booking


class Remove(Frozen):
    """→ None: the journal durably has no record of the container."""

    container: ContainerId


class ListBlocks(Frozen):
    """→ dict[Cell, Block]: all blocks, as the API server has them now (no cache)."""


class ReadBlock(Frozen):
    """→ Block | None: as the API server has it now."""

    cell: Cell


class WriteBlock(Frozen):
    """→ Block | None: create where `version` is None, else replace exactly that version."""

    block: Block


class DropBlock(Frozen):
    """→ None: delete exactly this version, if it is still there."""

    block: Block


class ReadLease(Frozen):
    """→ NodeLease | None: as the API server has it now."""

    node: NodeName


class WriteLease(Frozen):
    """→ NodeLease | None: like WriteBlock."""

    lease: NodeLease


class DropLease(Frozen):
    """→ None: like DropBlock."""

    lease: NodeLease


class ReadBoard(Frozen):
    """→ Board: as the API server has it now; empty where the pool has no wants."""

    pool: PoolName


class WriteBoard(Frozen):
    """→ Board | None: like WriteBlock."""

    board: Board


class Pause(Frozen):
    """→ None: go on after `seconds`, or earlier when a block or board changed."""

    seconds: float


Act = (
    Clock
    | Put
    | Remove
    | ListBlocks
    | ReadBlock
    | WriteBlock
    | DropBlock
    | ReadLease
    | WriteLease
    | DropLease
    | ReadBoard
    | WriteBoard
    | Pause
)

T = TypeVar("T")
Talk = Generator[Act, Any, T]


class IpamAgentState(Struct):
    """The one thing that changes: what a node's agent knows now. Its generators share it.

    The program puts in `catalog`, `blocks` and `boards` what its watches tell, which may be late.
    `lease` is the node lease as last written by this process; `mine` says who writes it. `busy`
    are cells with a write under way, `serving` containers with a request under way, `lacking` what
    those lack that wait for others to give back, `awaited` since when owners wait for their last
    address. Until `recall_until` the node claims nothing: the store went back to an earlier hour,
    and every node first asks back what its pods have; infinite until the node has entered again.
    `sure` is what it knew then to be its own. While `is_blind` the watch of the blocks is
    interrupted, by a server that may come back restored: then it claims nothing either.
    """

    mine: NodeLease
    state: NodeAddressState
    timing: Timing = field(default_factory=Timing)
    catalog: Catalog = field(default_factory=dict)
    blocks: dict[Cell, Block] = field(default_factory=dict)
    boards: Mapping[PoolName, Board] = field(default_factory=dict)
    lease: NodeLease | None = None
    busy: set[Cell] = field(default_factory=set)
    serving: set[ContainerId] = field(default_factory=set)
    lacking: dict[ContainerId, tuple[Lack, ...]] = field(default_factory=dict)
    awaited: dict[Owner, float] = field(default_factory=dict)
    recall_until: float = -inf
    sure: Mapping[Cell, Bits] = field(default_factory=dict)
    is_blind: Callable[[], bool] = lambda: False

    def may_claim(self, now: float) -> bool:
        """Whether the node may take addresses that it does not hold."""
        return now >= self.recall_until and not self.is_blind()

    @property
    def is_back(self) -> bool:
        """The store went back, and the node has not entered since."""
        return self.recall_until == inf

    @property
    def rest(self) -> float:
        """The longest rest of any pool, in seconds."""
        return max((zone.rest for pool in self.catalog.values() for zone in pool), default=0.0)

    def go_back(self, now: float, *, alone: bool = False) -> None:
        """The store went back: grant and claim nothing until the node has entered again.

        `alone`: it is this machine that went back, so nothing that it believes is sure.
        """
        if self.is_back:
            self.state = cut(self.state)
            return
        self.recall_until = inf
        is_sure = not alone and now < self.state.right_until
        self.sure = trusted(self.state) if is_sure else {}
        self.state = outdated(self.state, self.blocks)

    def leave(self, cell: Cell, missed: Block | None) -> None:
        """A write of the cell is over; a later one has to know what is `missed`."""
        if missed and cell not in self.blocks:
            self.blocks[cell] = missed
        self.busy.discard(cell)

    def saw(self, cell: Cell, block: Block | None) -> None:
        """A block was read or written; a watch calls it too. Older news change nothing."""
        latest = self.blocks.get(cell)
        if block is None:
            self.blocks.pop(cell, None)
        elif latest is None or self.is_back or not is_older(block, latest):
            self.blocks[cell] = block
