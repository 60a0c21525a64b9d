"""The controller's side: rights that have ended, addresses that become free, usage of pools.

A node's right is revoked when the node is gone for the longest cool-down, and its lease silent for
its duration plus a margin. A node is gone without a Node object, or with the out-of-service taint:
whoever set it says that nothing runs there. Both times are measured by the controller itself, from
when it first saw them: after a restart it only waits longer. A holder that never had a lease in the
controller's namespace may belong to another installation. `operations` yields the acts of one round
of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from msgspec import Struct, field

from kube_base.errors import Broken
from kube_base.frozen import Frozen, replace
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.blocks import vacancy
from kube_rdma.ipam.rules.node_state import fence
from kube_rdma.ipam.rules.subpools import Subpool, given, offsets
from kube_rdma.model import ipam

_NEARLY_FULL = 0.9  # share of a pool that nodes hold; from then on its status warns


class NodeObservation(Frozen):
    """The controller's view of a node: its lease and since when, and whether the node is gone."""

    lease: ipam.NodeLease | None
    since: float  # when the lease was first seen so
    gone_since: float | None
    is_own: bool  # the node had a lease, so it belongs to this controller


class Observations(Frozen):
    """The controller's observations, with times; a new process begins with nothing."""

    nodes: Mapping[ipam.NodeName, NodeObservation]
    requests: Mapping[tuple[ipam.PoolName, ipam.BorrowRequest], float]


EMPTY = Observations({}, {})


def observe_leases(
    observations: Observations,
    leases: Mapping[ipam.NodeName, ipam.NodeLease],
    holders: frozenset[ipam.NodeName],
    serving: frozenset[ipam.NodeName],
    now: float,
) -> Observations:
    """Return the observations of all nodes' leases, updated to `now`.

    `serving` are nodes that exist without the out-of-service taint.
    """
    nodes = {}
    for node in sorted(holders | set(leases)):
        before = observations.nodes.get(node)
        lease = leases.get(node)
        since = before.since if before and before.lease == lease else now
        gone: float | None = None
        if node not in serving:
            gone = now
            if before and before.gone_since is not None:
                gone = before.gone_since
        is_own = lease is not None or bool(before and before.is_own)
        nodes[node] = NodeObservation(lease, since, gone, is_own)
    return replace(observations, nodes=nodes)


def expired(
    observations: Observations, timing: ipam.Timing, cooldown: float, now: float
) -> tuple[ipam.NodeName, ...]:
    """Return the nodes whose right is to be revoked.

    They are gone for `cooldown` seconds, and their lease is unchanged for its duration or T,
    whichever is longer, plus the margin. Nodes that never had a lease, or whose right was revoked
    already, are left out.
    """
    return tuple(
        sorted(
            node
            for node, seen in observations.nodes.items()
            if seen.is_own
            and seen.gone_since is not None
            and now - seen.gone_since >= cooldown
            # Its own T counts where it is longer than the controller's.
            and now - seen.since
            >= max(timing.contact, seen.lease.duration if seen.lease else 0.0) + timing.margin
            and not (seen.lease and seen.lease.fenced)
        )
    )


def foreign_nodes(observations: Observations) -> tuple[ipam.NodeName, ...]:
    """Return nodes that are gone, hold addresses, and had no lease here as far as observed."""
    others = ((node, seen) for node, seen in observations.nodes.items() if not seen.is_own)
    return tuple(node for node, seen in others if seen.gone_since is not None)


def without_holder(block: ipam.Block, node: ipam.NodeName) -> ipam.Block | None:
    """Return the block without the addresses that `node` holds; None if it holds none."""
    left = tuple(holding for holding in block.holdings if holding.node != node)
    if left == block.holdings:
        return None
    return replace(block, holdings=left, edition=block.edition + 1)


def labelled(block: ipam.Block) -> ipam.Block:
    """Return the block to write again, with all its labels and in the spelling of agents."""
    return replace(block, edition=block.edition + 1, is_labelled=True, is_plain=True)


def without_stale_requests(
    observations: Observations, queues: Iterable[ipam.BorrowQueue], timing: ipam.Timing, now: float
) -> tuple[Observations, tuple[ipam.BorrowQueue, ...]]:
    """Return new observations, and the queues with too old requests, without these requests.

    They have stood for six times `timing.patience`, so their node probably failed to remove them.
    """
    requests = {}
    changed = []
    for queue in queues:
        left = []
        for request in queue.requests:
            since = observations.requests.get((queue.pool, request), now)
            requests[queue.pool, request] = since
            if now - since < 6 * timing.patience:
                left.append(request)
        if len(left) != len(queue.requests):
            changed.append(replace(queue, requests=tuple(left)))
    return replace(observations, requests=requests), tuple(changed)


def usage(subpools: Iterable[Subpool], blocks: Iterable[ipam.Block]) -> tuple[ipam.Usage, ...]:
    """Return the usage of each subpool of a pool by the holdings in `blocks`."""
    by_key = {block.key: block for block in blocks}
    usages = []
    for subpool in subpools:
        free, nodes = vacancy(by_key, subpool)
        usages.append(
            ipam.Usage(
                family=subpool.family.title,
                rail=subpool.rail,
                size=subpool.size,
                held=subpool.size - free,
                free=free,
                nodes=nodes,
            )
        )
    return tuple(usages)


def nearly_full(full: ipam.Usage) -> str:
    """Return a warning about a nearly full pool; "" where it is not."""
    if full.held < _NEARLY_FULL * full.size:
        return ""
    rail = "" if full.rail is None else f" of rail {full.rail}"
    return (
        f"{full.held} of {full.size} {full.family} addresses{rail} are held by "
        f"{full.nodes} nodes: add a range before the pool is full"
    )


def conflicts(block: ipam.Block) -> tuple[Broken, ...]:
    """Return an error for each two nodes that hold the same addresses of a block."""
    return tuple(
        Broken(
            f"IPBlock {block.key.name}, spec.holdings: {_listed(block, both)} held "
            f"by node {first.node} and node {second.node}; take it from the one that has "
            "no pod with it"
        )
        for first, second in combinations(block.holdings, 2)
        if (both := first.bits & second.bits)
    )


def outside(block: ipam.Block, subpools: Iterable[Subpool]) -> tuple[Broken, ...]:
    """Return an error for each node with addresses in `block` that are in no subpool."""
    pooled = given(subpools, block.key)
    return tuple(
        Broken(
            f"IPBlock {block.key.name}, spec.holdings: {_listed(block, bits)} held by node "
            f"{holding.node}, but no IPPool of network {block.key.network} gives it"
        )
        for holding in block.holdings
        if (bits := holding.bits & ~pooled)
    )


def _listed(block: ipam.Block, bits: int) -> str:
    """Return how a sentence about addresses of a block begins: with three at most, and a verb."""
    addresses = [str(block.key.address(offset)) for offset in offsets(bits)]
    more = f" and {len(addresses) - 3} more" if len(addresses) > 3 else ""
    return f"{', '.join(addresses[:3])}{more} {'are' if len(addresses) > 1 else 'is'}"


# The rounds of the controller.


class ClusterView(Frozen):
    """The cluster as the controller's watches show it, perhaps late."""

    blocks: Mapping[ipam.BlockKey, ipam.Block]
    leases: Mapping[ipam.NodeName, ipam.NodeLease]
    queues: tuple[ipam.BorrowQueue, ...]
    serving: frozenset[ipam.NodeName]  # nodes that exist without the out-of-service taint


Operation = tuple[str, str, effects.Effects[None]]
"""Kind and name of the object that it is about, and what is done."""


class GcState(Struct):
    """The values that the controller keeps from one round to the next."""

    cooldown: float  # the longest of any pool
    timing: ipam.Timing = field(default_factory=ipam.Timing)
    observations: Observations = EMPTY


def operations(state: GcState, view: ClusterView, now: float) -> Iterator[Operation]:
    """Yield the operations of one round of the controller, with kind and name of their objects.

    Each may fail without the others. `state` keeps what was observed.
    """
    holders = frozenset(h.node for block in view.blocks.values() for h in block.holdings)
    before, leases = state.observations, view.leases
    observations = observe_leases(before, leases, holders, view.serving, now)
    observations, queues = without_stale_requests(observations, view.queues, state.timing, now)
    state.observations = observations
    for node in expired(observations, state.timing, state.cooldown, now):
        yield "Node", node, _do(effects.WriteLease(fence(node, observations.nodes[node].lease)))
    for node, seen in observations.nodes.items():
        if seen.lease and seen.lease.fenced and node not in view.serving:
            for block in view.blocks.values():
                if without_holder(block, node) is not None:
                    yield "IPBlock", block.key.name, _reclaim(node, block.key)
            if node not in holders:
                yield "Node", node, _do(effects.DropLease(seen.lease))
    for block in view.blocks.values():
        if not block.holdings and not block.pins:
            yield "IPBlock", block.key.name, _do(effects.DropBlock(block))
        elif not (block.is_labelled and block.is_plain):
            yield "IPBlock", block.key.name, _do(effects.WriteBlock(labelled(block)))
    for queue in queues:
        yield "IPPool", queue.pool, _do(effects.WriteBorrowQueue(queue))


def _do(effect: effects.Effect) -> effects.Effects[None]:
    yield effect


def _reclaim(node: ipam.NodeName, key: ipam.BlockKey) -> effects.Effects[None]:
    """Remove from a block the addresses of a node whose right was revoked."""
    block: ipam.Block | None = yield effects.ReadBlock(key)
    lease: ipam.NodeLease | None = yield effects.ReadLease(node)
    left = without_holder(block, node) if block and lease and lease.fenced else None
    if left:
        yield effects.WriteBlock(left)
