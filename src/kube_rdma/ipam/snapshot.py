"""What the API server has of addresses at one moment, and what is wrong with it.

For `kube-rdma ip`: it reads all objects once, reports and leaves out garbled ones, and asks the
rules about the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.kind import IP_POOL, pool_of
from kube_rdma.ipam.rules.pools import counted, overlaps
from kube_rdma.ipam.rules.reclaim import conflicts, nearly_full, outside, usage
from kube_rdma.ipam.rules.subpools import Subpool, mask, subpools
from kube_rdma.ipam.views import Holder, PoolState
from kube_rdma.lib.text.ip_words import spans_of
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.ipam import Bits, Block, BorrowQueue, IPPool, NodeLease, NodeName, PoolName


class Snapshot(Frozen):
    """All of it. `subpools` lacks pools that cannot be used; `faults` are sentences, with kinds."""

    pools: Mapping[PoolName, IPPool]
    subpools: Mapping[PoolName, tuple[Subpool, ...]]
    queues: Mapping[PoolName, BorrowQueue]
    blocks: tuple[Block, ...]
    leases: tuple[NodeLease, ...]
    nodes: frozenset[NodeName]
    faults: tuple[Finding, ...]


async def take_snapshot(cluster: Cluster) -> Snapshot:
    """Read pools, blocks, leases and nodes; raise Unavailable or Refused as the API client does."""
    faults: list[Finding] = []
    pools: dict[PoolName, IPPool] = {}
    compiled: dict[PoolName, tuple[Subpool, ...]] = {}
    queues: dict[PoolName, BorrowQueue] = {}
    blocks: list[Block] = []
    leases: list[NodeLease] = []
    nodes = await cluster.see(NODE)
    seen_pools = await cluster.see(IP_POOL)
    for stored in seen_pools.objects:
        pool = pool_of(stored)
        pools[pool.name], queues[pool.name] = pool, ipam.borrow_queue(stored)
        try:
            compiled[pool.name] = subpools(pool)
        except Refused as error:
            faults += [Finding("", line, code="unusable") for line in str(error).splitlines()]
    seen_blocks = await cluster.see(ipam.IP_BLOCK)
    for seen_block in seen_blocks.objects:
        try:
            blocks.append(ipam.block(seen_block))
        except KubeError as error:
            faults.append(Finding("", str(error), code="edited"))
    seen_leases = await cluster.see(ipam.LEASE, ipam.LEASES)
    for seen_lease in seen_leases.objects:
        try:
            leases.append(ipam.lease(seen_lease))
        except KubeError as error:
            faults.append(Finding("", str(error), code="edited"))
    muddled = (*seen_pools.muddled, *seen_blocks.muddled, *seen_leases.muddled)
    faults += [Finding("", why, code="edited") for why in muddled]
    return Snapshot(
        pools,
        compiled,
        queues,
        tuple(blocks),
        tuple(leases),
        frozenset(NodeName(node.name) for node in nodes.objects),
        tuple(faults),
    )


def states(snapshot: Snapshot) -> tuple[PoolState, ...]:
    """Every pool as the views show it."""
    pool_states = []
    for name, pool in sorted(snapshot.pools.items()):
        parts = snapshot.subpools.get(name, ())
        usages = usage(parts, snapshot.blocks)
        notes = tuple(filter(None, map(nearly_full, usages)))
        if not parts:
            notes = tuple(
                each.problem for each in snapshot.faults if f"IPPool {name}" in each.problem
            )
        holders = tuple(_holders(parts, snapshot))
        pool_states.append(PoolState(pool, usages, holders, snapshot.queues.get(name), notes))
    return tuple(pool_states)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """What a person should look at."""
    return (
        *snapshot.faults,
        *_block_findings(snapshot),
        *_node_findings(snapshot),
        *_pool_findings(snapshot),
    )


def _block_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for block in snapshot.blocks:
        here = [
            subpool
            for parts in snapshot.subpools.values()
            for subpool in parts
            if subpool.network == block.key.network
        ]
        for error in conflicts(block):
            yield Finding("", str(error), code="two holders")
        for error in outside(block, here):
            yield Finding("", str(error), severity=Severity.WARNING, code="in no pool")


def _node_findings(snapshot: Snapshot) -> Iterator[Finding]:
    holders: dict[NodeName, int] = {}
    for block in snapshot.blocks:
        for holding in block.holdings:
            count = holding.bits.bit_count()
            holders[holding.node] = holders.get(holding.node, 0) + count
    for node, count in sorted(holders.items()):
        if node not in snapshot.nodes:
            yield Finding(
                "",
                f"node {node} is gone and holds {counted(count)}; the controller frees them "
                "when the node's Lease is old enough, `kube-rdma ip release` frees one now",
                code="node gone",
            )
    for lease in snapshot.leases:
        if lease.node not in snapshot.nodes and lease.node not in holders:
            yield Finding(
                "",
                f"node {lease.node} is gone, and its lease ipam.{lease.node} is left",
                code="node gone",
            )


def _pool_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for parts in snapshot.subpools.values():
        for full in usage(parts, snapshot.blocks):
            if sentence := nearly_full(full):
                yield Finding("", f"IPPool {full.pool}: {sentence}", code="nearly full")
    usable = [snapshot.pools[name] for name in snapshot.subpools]
    for sentence in overlaps(usable):
        yield Finding("", sentence, severity=Severity.WARNING, code="overlap")


def _holders(parts: tuple[Subpool, ...], snapshot: Snapshot) -> Iterator[Holder]:
    counts: dict[NodeName, int] = {}
    spans: dict[NodeName, list[str]] = {}
    for block in sorted(snapshot.blocks, key=lambda each: each.key):
        given = 0
        for subpool in parts:
            given |= mask(subpool, block.key)
        for holding in block.holdings:
            if bits := Bits(holding.bits & given):
                counts[holding.node] = counts.get(holding.node, 0) + bits.bit_count()
                spans.setdefault(holding.node, []).extend(spans_of(block.key, bits))
    for node, count in sorted(counts.items()):
        yield Holder(node, count, tuple(spans[node]), is_gone=node not in snapshot.nodes)
