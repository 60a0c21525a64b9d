"""What the controller does, act by act: fence nodes that are gone, free what they held, tidy up.

Only the leader patrols, but nothing depends on it being alone. The order of reclaiming is the
point: read a block, then see that the lease is still fenced, then write that version of the block.
A node that comes back first unfences its lease and then writes every block that it holds, so one of
the two writes of a block fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.model.ipam import Block, Board, Cell, NodeLease, NodeName, Timing
from kube_rdma.rules.ipam.effects import (
    Clock,
    DropBlock,
    DropLease,
    ReadBlock,
    ReadLease,
    Talk,
    WriteBlock,
    WriteBoard,
    WriteLease,
)
from kube_rdma.rules.ipam.node_lease import fence
from kube_rdma.rules.ipam.reclaim import (
    EMPTY,
    Watch,
    ended,
    is_empty,
    look,
    reclaimed,
    stale_wants,
)


class ClusterView(Frozen):
    """What the controller's watches show; it may be late.

    `serving` are the nodes that exist and lack the out-of-service taint.
    """

    blocks: Mapping[Cell, Block]
    leases: Mapping[NodeName, NodeLease]
    boards: tuple[Board, ...]
    serving: frozenset[NodeName]


class Post(Struct):
    """The one thing that changes: what the patrol remembers. `rest`: the longest of any pool."""

    rest: float
    timing: Timing = field(default_factory=Timing)
    watch: Watch = EMPTY


def patrol(post: Post, scene: ClusterView) -> Talk[None]:
    """One round; the program begins one every few seconds."""
    now: float = yield Clock()
    holders = frozenset(h.node for block in scene.blocks.values() for h in block.holdings)
    watch = post.watch = look(post.watch, scene.leases, holders, scene.serving, now)
    for node in ended(watch, post.timing, post.rest, now):
        yield WriteLease(fence(node, watch.nodes[node].lease))
    for node, seen in watch.nodes.items():
        if seen.lease and seen.lease.fenced and node not in scene.serving:
            yield from _reclaim(node, scene.blocks)
            if node not in holders:
                yield DropLease(seen.lease)
    for block in scene.blocks.values():
        if is_empty(block):
            yield DropBlock(block)
    post.watch, boards = stale_wants(post.watch, scene.boards, post.timing, now)
    for board in boards:
        yield WriteBoard(board)


def _reclaim(node: NodeName, blocks: Mapping[Cell, Block]) -> Talk[None]:
    """Free what a fenced node holds."""
    for cell, shown in blocks.items():
        if reclaimed(shown, node) is None:
            continue
        block: Block | None = yield ReadBlock(cell)
        lease: NodeLease | None = yield ReadLease(node)
        if lease is None or not lease.fenced:
            return
        left = reclaimed(block, node) if block else None
        if left:
            yield WriteBlock(left)
