"""What the controller does, one effect at a time: fence nodes that are gone, free what they held.

Only the leader collects garbage, but two at a time do no harm. Reclaiming depends on its order:
read a block, then check that the lease is still fenced, then write that version of the block. A
node that comes back first unfences its lease and then writes every block that it holds, so one of
the two writes of a block fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kube_base.frozen import Frozen
from kube_rdma.model.ipam import Block, BlockKey, BorrowQueue, NodeLease, NodeName, Timing
from kube_rdma.rules.ipam.effects import (
    Clock,
    DropBlock,
    DropLease,
    Effects,
    ReadBlock,
    ReadLease,
    WriteBlock,
    WriteBorrowQueue,
    WriteLease,
)
from kube_rdma.rules.ipam.node_lease import fence
from kube_rdma.rules.ipam.reclaim import (
    EMPTY,
    Observations,
    expired,
    is_empty,
    observe_leases,
    without_holder,
    without_stale_requests,
)


class ClusterView(Frozen):
    """What the controller's watches show; it may be late.

    `serving` are the nodes that exist and lack the out-of-service taint.
    """

    blocks: Mapping[BlockKey, Block]
    leases: Mapping[NodeName, NodeLease]
    queues: tuple[BorrowQueue, ...]
    serving: frozenset[NodeName]


class GcState(Struct):
    """What the controller remembers between two rounds; `cooldown` is the longest of any pool."""

    cooldown: float
    timing: Timing = field(default_factory=Timing)
    observations: Observations = EMPTY


def collect_garbage(state: GcState, view: ClusterView) -> Effects[None]:
    """Do one round; the program starts one every few seconds."""
    now: float = yield Clock()
    holders = frozenset(h.node for block in view.blocks.values() for h in block.holdings)
    observations = state.observations = observe_leases(
        state.observations, view.leases, holders, view.serving, now
    )
    for node in expired(observations, state.timing, state.cooldown, now):
        yield WriteLease(fence(node, observations.nodes[node].lease))
    for node, seen in observations.nodes.items():
        if seen.lease and seen.lease.fenced and node not in view.serving:
            yield from _reclaim(node, view.blocks)
            if node not in holders:
                yield DropLease(seen.lease)
    for block in view.blocks.values():
        if is_empty(block):
            yield DropBlock(block)
    state.observations, queues = without_stale_requests(
        state.observations, view.queues, state.timing, now
    )
    for queue in queues:
        yield WriteBorrowQueue(queue)


def _reclaim(node: NodeName, blocks: Mapping[BlockKey, Block]) -> Effects[None]:
    """Free what a fenced node holds."""
    for key, shown in blocks.items():
        if without_holder(shown, node) is None:
            continue
        block: Block | None = yield ReadBlock(key)
        lease: NodeLease | None = yield ReadLease(node)
        if lease is None or not lease.fenced:
            return
        left = without_holder(block, node) if block else None
        if left:
            yield WriteBlock(left)
