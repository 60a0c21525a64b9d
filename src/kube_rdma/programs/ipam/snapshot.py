"""What the API server knows of addresses at one moment, and what is wrong with it.

For `kube-rdma ip`: objects are read once, garbled ones are told and left out, rules say the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import ipam
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL, pool_of
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.api.ipam.ip_words import spans_of
from kube_rdma.model.ipam import (
    Bits,
    Block,
    Board,
    IPPool,
    NodeLease,
    NodeName,
    PoolName,
)
from kube_rdma.rules.ipam.cells import Zone, mask, zones
from kube_rdma.rules.ipam.pools import counted, overlaps
from kube_rdma.rules.ipam.reclaim import conflicts, near_dry, outside, usage
from kube_rdma.views.ipam import Finding, Holder, PoolState


class Snapshot(Frozen):
    """All of it. `zones` lacks pools that cannot be used; `faults` are sentences, with kinds."""

    pools: Mapping[PoolName, IPPool]
    zones: Mapping[PoolName, tuple[Zone, ...]]
    boards: Mapping[PoolName, Board]
    blocks: tuple[Block, ...]
    leases: tuple[NodeLease, ...]
    nodes: frozenset[NodeName]
    faults: tuple[Finding, ...]


async def take(cluster: Cluster) -> Snapshot:
    """Read pools, blocks, leases and nodes; raise Unavailable or Refused as the door does."""
    faults: list[Finding] = []
    pools: dict[PoolName, IPPool] = {}
    compiled: dict[PoolName, tuple[Zone, ...]] = {}
    boards: dict[PoolName, Board] = {}
    blocks: list[Block] = []
    leases: list[NodeLease] = []
    nodes = await cluster.see(NODE)
    seen_pools = await cluster.see(IP_POOL)
    for stored in seen_pools.objects:
        pool = pool_of(stored)
        pools[pool.name], boards[pool.name] = pool, ipam.board(stored)
        try:
            compiled[pool.name] = zones(pool)
        except Refused as error:
            faults += [Finding("unusable", line) for line in str(error).splitlines()]
    seen_blocks = await cluster.see(ipam.IP_BLOCK)
    for stored_block in seen_blocks.objects:
        try:
            blocks.append(ipam.block(stored_block))
        except KubeError as error:
            faults.append(Finding("edited", str(error)))
    seen_leases = await cluster.see(ipam.LEASE, ipam.LEASES)
    for stored_lease in seen_leases.objects:
        try:
            leases.append(ipam.lease(stored_lease))
        except KubeError as error:
            faults.append(Finding("edited", str(error)))
    for seen in (seen_pools, seen_blocks, seen_leases):
        faults += [Finding("edited", why) for why in seen.muddled]
    return Snapshot(
        pools,
        compiled,
        boards,
        tuple(blocks),
        tuple(leases),
        frozenset(NodeName(node.name) for node in nodes.objects),
        tuple(faults),
    )


def states(snapshot: Snapshot) -> tuple[PoolState, ...]:
    """Every pool as the views show it."""
    pool_states = []
    for name, pool in sorted(snapshot.pools.items()):
        parts = snapshot.zones.get(name, ())
        usages = usage(parts, snapshot.blocks)
        notes = tuple(filter(None, map(near_dry, usages)))
        if not parts:
            notes = tuple(
                each.sentence for each in snapshot.faults if f"IPPool {name}" in str(each)
            )
        holders = tuple(_holders(parts, snapshot))
        pool_states.append(PoolState(pool, usages, holders, snapshot.boards.get(name), notes))
    return tuple(pool_states)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """What somebody should look at."""
    return (
        *snapshot.faults,
        *_block_findings(snapshot),
        *_node_findings(snapshot),
        *_pool_findings(snapshot),
    )


def _block_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for block in snapshot.blocks:
        here = [
            zone
            for parts in snapshot.zones.values()
            for zone in parts
            if zone.network == block.cell.network
        ]
        for error in conflicts(block):
            yield Finding("two holders", str(error))
        for error in outside(block, here):
            yield Finding("in no pool", str(error), is_warning=True)


def _node_findings(snapshot: Snapshot) -> Iterator[Finding]:
    holders: dict[NodeName, int] = {}
    for block in snapshot.blocks:
        for holding in block.holdings:
            count = holding.bits.bit_count()
            holders[holding.node] = holders.get(holding.node, 0) + count
    for node, count in sorted(holders.items()):
        if node not in snapshot.nodes:
            yield Finding(
                "node gone",
                f"node {node} is gone and holds {counted(count)}; the controller frees them once "
                "its lease was silent for long enough, `kube-rdma ip release` frees one now",
            )
    for lease in snapshot.leases:
        if lease.node not in snapshot.nodes and lease.node not in holders:
            yield Finding(
                "node gone", f"node {lease.node} is gone, and its lease ipam.{lease.node} is left"
            )


def _pool_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for parts in snapshot.zones.values():
        for full in usage(parts, snapshot.blocks):
            if sentence := near_dry(full):
                yield Finding("nearly full", f"IPPool {full.pool}: {sentence}")
    usable = [snapshot.pools[name] for name in snapshot.zones]
    for sentence in overlaps(usable):
        yield Finding("overlap", sentence, is_warning=True)


def _holders(parts: tuple[Zone, ...], snapshot: Snapshot) -> Iterator[Holder]:
    counts: dict[NodeName, int] = {}
    spans: dict[NodeName, list[str]] = {}
    for block in sorted(snapshot.blocks, key=lambda each: each.cell):
        given = 0
        for zone in parts:
            given |= mask(zone, block.cell)
        for holding in block.holdings:
            if bits := Bits(holding.bits & given):
                counts[holding.node] = counts.get(holding.node, 0) + bits.bit_count()
                spans.setdefault(holding.node, []).extend(spans_of(block.cell, bits))
    for node, count in sorted(counts.items()):
        yield Holder(node, count, tuple(spans[node]), is_gone=node not in snapshot.nodes)
