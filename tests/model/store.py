"""An API server that has nothing but compare-and-swap, and the ways in which it is reached.

A request may be lost, applied without an answer, applied twice (the answer is then the second
one's), or held up and applied much later, when its sender is long dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.blocks import held_by
from kube_rdma.model.ipam import Block, BlockKey, BorrowQueue, NodeLease, NodeName, PoolName

_OTHERS = 1000  # versions at most that others use up between two writes here

Stored = Block | NodeLease | BorrowQueue
Write = (
    effects.WriteBlock
    | effects.WriteLease
    | effects.WriteBorrowQueue
    | effects.DropBlock
    | effects.DropLease
)
Key = BlockKey | NodeName | PoolName


class Fate(StrEnum):
    """What becomes of one request."""

    DONE = "done"
    LOST = "lost"
    UNANSWERED = "unanswered"
    TWICE = "twice"
    HELD_UP = "held up"


def is_shown(block: Block | None, node: NodeName) -> bool:
    """The watch of a node's own blocks shows it."""
    return bool(block and block.is_labelled and held_by(block, node))


@dataclass(frozen=True)
class Backup:
    """The objects at one moment."""

    blocks: dict[BlockKey, Block]
    leases: dict[NodeName, NodeLease]
    queues: dict[PoolName, BorrowQueue]
    version: int
    reported: int


@dataclass
class Store:
    """The objects, and requests that are still on their way.

    `log` is what a watch of the blocks tells, with versions; `era` counts how often the server was
    restored, which ends all watches; `begun` is where in the log the last era began, `bumped` how.
    """

    random: Random
    checks: bool = True  # False: the lost compare-and-swap
    blocks: dict[BlockKey, Block] = field(default_factory=dict)
    leases: dict[NodeName, NodeLease] = field(default_factory=dict)
    queues: dict[PoolName, BorrowQueue] = field(default_factory=dict)
    on_their_way: list[Write] = field(default_factory=list)
    version: int = 0
    writes: int = 0
    log: list[tuple[int, BlockKey, Block | None]] = field(default_factory=list)
    era: int = 0
    begun: int = 0
    bumped: bool = False
    fenced: Callable[[NodeName], None] = lambda _: None  # called when a fence is written
    written: Callable[[Block], None] = lambda _: None  # called when a block is
    reported: int = 0  # the version of the latest status of pools, which counts what nodes hold

    def apply(self, effect: Write) -> Stored | None:
        """Do it, or do nothing: None is a conflict."""
        match effect:
            case effects.WriteBlock(block):
                return self._swap(self.blocks, block.key, block)
            case effects.WriteLease(lease):
                return self._swap(self.leases, lease.node, lease)
            case effects.WriteBorrowQueue(queue):
                return self._swap(self.queues, queue.pool, queue)
            case effects.DropBlock(block):
                if self.blocks.get(block.key) == block:
                    self.delete(block.key)
            case effects.DropLease(lease):
                if self.leases.get(lease.node) == lease:
                    del self.leases[lease.node]
        return None

    def _swap(self, kind, key, value):
        there = kind.get(key)
        if self.checks and (there.version if there else None) != value.version:
            return None
        if there == value:
            return there  # the API server does not write an equal object
        self._count()
        kind[key] = replace(value, version=str(self.version))
        if isinstance(value, Block):
            self.log.append((self.version, key, kind[key]))
            self.written(kind[key])
        if isinstance(value, NodeLease) and value.fenced:
            self.fenced(value.node)
        return kind[key]

    def delete(self, key: BlockKey) -> None:
        """Delete a block without a look at its version."""
        del self.blocks[key]
        self._count()
        self.log.append((self.version, key, None))

    def _count(self) -> None:
        """The next version: the store has other objects too, so hardly one comes twice."""
        self.writes += 1
        self.version += self.random.randrange(1, _OTHERS)

    def backup(self) -> Backup:
        """The objects as they are."""
        parts = dict(self.blocks), dict(self.leases), dict(self.queues)
        return Backup(*parts, self.version, self.reported)

    def report(self) -> None:
        """The controller writes the status of pools where blocks have changed since."""
        if self.log and self.log[-1][0] > self.reported:
            self._count()
            self.reported = self.version

    def restore(self, backup: Backup, *, bumped: bool) -> None:
        """Go back; requests that were on their way are lost with the server that was stopped.

        `bumped`: versions go on from above all that were (etcdutl --bump-revision). Else others may
        write more than was lost before any node is back, so that no version shows it either.
        """
        self.blocks, self.leases = dict(backup.blocks), dict(backup.leases)
        self.queues, self.reported = dict(backup.queues), backup.reported
        lost = self.version - backup.version
        others = self.random.choice((0, 0, 2 * lost))
        self.version = self.version + 1_000_000 if bumped else backup.version + others
        self.on_their_way = []
        self.era += 1
        self.begun, self.bumped = len(self.log), bumped

    def after(self, version: int) -> int | None:
        """Where a watch goes on that has shown all up to `version`; None where it has to list.

        A server below that version shows so. One above it goes on in silence, unless the versions
        were bumped, which comes with a compaction.
        """
        if self.bumped or self.version < version:
            return None
        news = enumerate(self.log[self.begun :], self.begun)
        return next((at for at, (other, _, _) in news if other > version), len(self.log))

    def read(self, effect: effects.Effect):
        """The answer to a read that arrives."""
        match effect:
            case effects.ListBlocks():
                return dict(self.blocks)
            case effects.ListOwnBlocks(node):
                return {key: one for key, one in self.blocks.items() if is_shown(one, node)}
            case effects.ListPinned(owner):
                pod = owner.split("/")[:2]
                return {
                    key: one
                    for key, one in self.blocks.items()
                    if one.is_labelled and pod in [pin.owner.split("/")[:2] for pin in one.pins]
                }
            case effects.ReadBlock(key):
                return self.blocks.get(key)
            case effects.ReadLease(node):
                return self.leases.get(node)
            case effects.ReadBorrowQueue(pool):
                return self.queues.get(pool, BorrowQueue(pool))
        raise TypeError(effect)

    def request(self, effect: effects.Effect, cut_off: bool, faults: float):
        """One request of a client, with the fate that the world has for it."""
        fate = Fate.LOST if cut_off else Fate.DONE
        if not cut_off and self.random.random() < faults:
            fate = self.random.choice(list(Fate))
        if not isinstance(effect, Write):
            if fate in (Fate.DONE, Fate.TWICE):
                return self.read(effect)
            raise Unavailable("the API server does not answer")
        if fate is Fate.HELD_UP:
            self.on_their_way.append(effect)
            return None
        if fate is Fate.LOST:
            return None
        answer = self.apply(effect)
        if fate is Fate.TWICE:
            answer = self.apply(effect)
        return None if fate is Fate.UNANSWERED else answer

    def deliver(self) -> None:
        """One of the held up requests arrives at last."""
        if self.on_their_way:
            self.apply(self.on_their_way.pop(self.random.randrange(len(self.on_their_way))))
