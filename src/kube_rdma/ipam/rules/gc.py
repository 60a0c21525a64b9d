"""What the controller does, one effect at a time: fence nodes that are gone, free what they held.

Only the leader collects garbage, but two at a time do no harm. Reclaiming depends on its order:
read a block, then check that the lease is still fenced, then write that version of the block. A
node that comes back first unfences its lease and then writes every block that it holds, so one of
the two writes of a block fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.ipam.rules.effects import (
    Clock,
    DropBlock,
    DropLease,
    Effect,
    Effects,
    ReadBlock,
    ReadLease,
    WriteBlock,
    WriteBorrowQueue,
    WriteLease,
)
from kube_rdma.ipam.rules.node_lease import fence
from kube_rdma.ipam.rules.reclaim import (
    EMPTY,
    Observations,
    expired,
    is_empty,
    observe_leases,
    without_holder,
    without_stale_requests,
)
from kube_rdma.model.ipam import Block, BlockKey, BorrowQueue, NodeLease, NodeName, Timing


class ClusterView(Frozen):
    """What the controller's watches show; it may be late.

    `serving` are the nodes that exist and lack the out-of-service taint.
    """

    blocks: Mapping[BlockKey, Block]
    leases: Mapping[NodeName, NodeLease]
    queues: tuple[BorrowQueue, ...]
    serving: frozenset[NodeName]


Operation = tuple[str, str, Effects[None]]
"""Kind and name of the object that it is about, and what is done."""


class GcState(Struct):
    """What the controller remembers between two rounds; `cooldown` is the longest of any pool."""

    cooldown: float
    timing: Timing = field(default_factory=Timing)
    observations: Observations = EMPTY


def collect_garbage(state: GcState, view: ClusterView) -> Effects[None]:
    """Do one round; the program starts one every few seconds, with each object by itself."""
    now: float = yield Clock()
    for _, _, operation in operations(state, view, now):
        yield from operation


def operations(state: GcState, view: ClusterView, now: float) -> Iterator[Operation]:
    """What one round does, in this order; each may fail without the others."""
    holders = frozenset(h.node for block in view.blocks.values() for h in block.holdings)
    observations = state.observations = observe_leases(
        state.observations, view.leases, holders, view.serving, now
    )
    state.observations, queues = without_stale_requests(
        state.observations, view.queues, state.timing, now
    )
    for node in expired(observations, state.timing, state.cooldown, now):
        yield "Node", node, _do(WriteLease(fence(node, observations.nodes[node].lease)))
    for node, seen in observations.nodes.items():
        if seen.lease and seen.lease.fenced and node not in view.serving:
            for block in view.blocks.values():
                if without_holder(block, node) is not None:
                    yield "IPBlock", block.key.name, _reclaim(node, block.key)
            if node not in holders:
                yield "Node", node, _do(DropLease(seen.lease))
    for block in view.blocks.values():
        if is_empty(block):
            yield "IPBlock", block.key.name, _do(DropBlock(block))
    for queue in queues:
        yield "IPPool", queue.pool, _do(WriteBorrowQueue(queue))


def _do(effect: Effect) -> Effects[None]:
    yield effect


def _reclaim(node: NodeName, key: BlockKey) -> Effects[None]:
    """Free what a fenced node holds of a block."""
    block: Block | None = yield ReadBlock(key)
    lease: NodeLease | None = yield ReadLease(node)
    left = without_holder(block, node) if block and lease and lease.fenced else None
    if left:
        yield WriteBlock(left)
