"""Runs the controller's side of IPAM, and looks at all its objects for `kube-rdma ip`.

`run_gc` runs a round of rules/reclaim every few seconds, from four watches; two controllers at once
do no harm. `take_snapshot` reads all objects once, of which `states` and `findings` are shown.
`find_holders` finds one address, which `free` takes from its holders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls, contained
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam.effect_runner import EffectRunner, IpamTiming
from kube_rdma.ipam.objects import block_labels
from kube_rdma.ipam.rules import reclaim
from kube_rdma.ipam.rules.effects import Effects
from kube_rdma.ipam.rules.pools import counted, overlaps
from kube_rdma.ipam.rules.subpools import Subpool, given, key_of, subpools
from kube_rdma.ipam.views import Holder, PoolState
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.lib.text.words import spans_of
from kube_rdma.model import ipam
from kube_rdma.model.finding import Finding, Severity

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # KEP-2268: nothing of the node runs any more

# The API versions of the kinds of objects that operations are about.
_KINDS = {kind.kind: kind.api_version for kind in (NODE, kinds.IP_BLOCK, kinds.IP_POOL)}

log = structlog.get_logger()


async def run_gc(
    cluster: Cluster, namespace: str, events: Events, timing: IpamTiming | None = None
) -> None:
    """Revoke the rights of nodes that are gone or out-of-service and free their addresses.

    Delete empty blocks, mend labels, and remove stale borrow requests too, until cancelled.
    `namespace` is the namespace of the nodes' leases.
    """
    timing = timing or IpamTiming()
    pools = Mirror(
        kinds.IP_POOL, lambda pool: (kinds.pool_of(pool).cooldown, kinds.borrow_queue(pool))
    )
    blocks = Mirror(kinds.IP_BLOCK, kinds.stored_block)
    leases = Mirror(kinds.LEASE, kinds.lease, where=Where(namespace, labels=kinds.LEASES.labels))
    nodes = Mirror(
        NODE, lambda node: all(taint.key != OUT_OF_SERVICE for taint in node_state(node).taints)
    )
    mirrors: tuple[Mirror[Any], ...] = (pools, blocks, leases, nodes)
    notices = Notices()
    walls = {kind: ObjectWalls(kind) for kind in _KINDS}
    state = reclaim.GcState(cooldown=0.0, timing=timing.agreed)
    runner = EffectRunner(kinds.IpamObjects(cluster, namespace), timing)
    async with asyncio.TaskGroup() as tasks:
        await follow_all(tasks, cluster, timing.pause, *mirrors)
        while True:
            if not any(mirror.trouble for mirror in mirrors):
                # Never less than before: addresses of a deleted pool may still cool down.
                cooldowns = (cooldown for cooldown, _ in pools.values.values())
                state.cooldown = max([state.cooldown, *cooldowns])
                view = reclaim.ClusterView(
                    {block.key: block for block in blocks.values.values()},
                    {lease.node: lease for lease in leases.values.values()},
                    tuple(queue for _, queue in pools.values.values()),
                    frozenset(ipam.NodeName(n) for n, serves in nodes.values.items() if serves),
                )
                with contained("addresses of gone nodes"):  # what was observed is not lost
                    for kind, name, operation in reclaim.operations(state, view, timing.clock()):
                        if any(mirror.trouble for mirror in mirrors):
                            break
                        about = About(kind, name, api_version=_KINDS[kind])
                        do = partial(_do, runner, events, operation, about)
                        await walls[kind].run(about, do)
                for node in notices.news(
                    "foreign nodes", *reclaim.foreign_nodes(state.observations)
                ):
                    why = f"there was never a lease ipam.{node} in namespace {namespace}"
                    log.warning("addresses left", node=node, why=why)
            await asyncio.sleep(timing.gc_interval)


async def _do(
    runner: EffectRunner, events: Events, operation: Effects[None], about: About, fault: str
) -> bool:
    """Run an operation of the controller; return False if a KubeError ended it.

    If there is a `fault`, report it as an Event instead of running the operation: return False.
    """
    if fault:
        return events.failed(about, fault)
    try:
        await runner.run(operation)
    except KubeError as error:
        log.warning("patrol interrupted", why=str(error))
        return False
    return True


# The objects of IPAM, read once.


class Snapshot(Frozen):
    """All IPAM objects of a cluster as they were read once, with nodes and faults.

    `subpools` lacks pools that cannot be used. IPAM objects that cannot be understood are left out.
    `faults` name both.
    """

    pools: Mapping[ipam.PoolName, ipam.IPPool]
    subpools: Mapping[ipam.PoolName, tuple[Subpool, ...]]
    queues: Mapping[ipam.PoolName, ipam.BorrowQueue]
    blocks: tuple[ipam.Block, ...]
    leases: tuple[ipam.NodeLease, ...]
    nodes: frozenset[ipam.NodeName]
    faults: tuple[Finding, ...]


async def take_snapshot(cluster: Cluster) -> Snapshot:
    """Read pools, blocks, leases and nodes once.

    Raise Unavailable if the API server does not answer, Refused if it refuses.
    """
    faults: list[Finding] = []
    pools: dict[ipam.PoolName, ipam.IPPool] = {}
    compiled: dict[ipam.PoolName, tuple[Subpool, ...]] = {}
    queues: dict[ipam.PoolName, ipam.BorrowQueue] = {}
    blocks: list[ipam.Block] = []
    leases: list[ipam.NodeLease] = []
    nodes = await cluster.see(NODE)
    seen_pools = await cluster.see(kinds.IP_POOL)
    for stored in seen_pools.objects:
        pool = kinds.pool_of(stored)
        pools[pool.name], queues[pool.name] = pool, kinds.borrow_queue(stored)
        try:
            compiled[pool.name] = subpools(pool)
        except Refused as error:
            faults += [Finding("", line, code="unusable") for line in str(error).splitlines()]
    seen_blocks = await cluster.see(kinds.IP_BLOCK)
    for seen_block in seen_blocks.objects:
        try:
            blocks.append(kinds.stored_block(seen_block))
        except KubeError as error:
            faults.append(Finding("", str(error), code="edited"))
    seen_leases = await cluster.see(kinds.LEASE, kinds.LEASES)
    for seen_lease in seen_leases.objects:
        try:
            leases.append(kinds.lease(seen_lease))
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
        frozenset(ipam.NodeName(node.name) for node in nodes.objects),
        tuple(faults),
    )


def states(snapshot: Snapshot) -> tuple[PoolState, ...]:
    """Return the state of every pool: usage, holders, borrow requests and notes."""
    pool_states = []
    for name, pool in sorted(snapshot.pools.items()):
        parts = snapshot.subpools.get(name, ())
        usages = reclaim.usage(parts, snapshot.blocks)
        notes = tuple(filter(None, map(reclaim.nearly_full, usages)))
        if not parts:
            problems = (each.problem for each in snapshot.faults)
            notes = tuple(problem for problem in problems if f"IPPool {name}" in problem)
        holders = tuple(_holders(parts, snapshot))
        pool_states.append(PoolState(pool, usages, holders, snapshot.queues.get(name), notes))
    return tuple(pool_states)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return every finding about pools, blocks, leases and nodes, for `kube-rdma ip check`."""
    judged = (_block_findings, _node_findings, _pool_findings)
    return (*snapshot.faults, *(one for judge in judged for one in judge(snapshot)))


def _block_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for block in snapshot.blocks:
        every = (subpool for parts in snapshot.subpools.values() for subpool in parts)
        here = [subpool for subpool in every if subpool.network == block.key.network]
        for error in reclaim.conflicts(block):
            yield Finding("", str(error), code="two holders")
        for error in reclaim.outside(block, here):
            yield Finding("", str(error), severity=Severity.WARNING, code="in no pool")


def _node_findings(snapshot: Snapshot) -> Iterator[Finding]:
    holders: dict[ipam.NodeName, int] = {}
    for block in snapshot.blocks:
        for holding in block.holdings:
            count = holding.bits.bit_count()
            holders[holding.node] = holders.get(holding.node, 0) + count
    for node, count in sorted(holders.items()):
        if node not in snapshot.nodes:
            problem = (
                f"node {node} is gone and holds {counted(count)}; the controller frees them "
                "when the node's Lease is old enough, `kube-rdma ip release` frees one now"
            )
            yield Finding("", problem, code="node gone")
    for lease in snapshot.leases:
        if lease.node not in snapshot.nodes and lease.node not in holders:
            problem = f"node {lease.node} is gone, and its lease ipam.{lease.node} is left"
            yield Finding("", problem, code="node gone")


def _pool_findings(snapshot: Snapshot) -> Iterator[Finding]:
    for name, parts in snapshot.subpools.items():
        for full in reclaim.usage(parts, snapshot.blocks):
            if sentence := reclaim.nearly_full(full):
                yield Finding("", f"IPPool {name}: {sentence}", code="nearly full")
    usable = [snapshot.pools[name] for name in snapshot.subpools]
    for sentence in overlaps(usable):
        yield Finding("", sentence, severity=Severity.WARNING, code="overlap")


def _holders(parts: tuple[Subpool, ...], snapshot: Snapshot) -> Iterator[Holder]:
    counts: dict[ipam.NodeName, int] = {}
    spans: dict[ipam.NodeName, list[str]] = {}
    for block in sorted(snapshot.blocks, key=lambda each: each.key):
        pooled = given(parts, block.key)
        for holding in block.holdings:
            if bits := ipam.Bits(holding.bits & pooled):
                counts[holding.node] = counts.get(holding.node, 0) + bits.bit_count()
                spans.setdefault(holding.node, []).extend(spans_of(block.key, bits))
    for node, count in sorted(counts.items()):
        yield Holder(node, count, tuple(spans[node]), is_gone=node not in snapshot.nodes)


# One address that a person frees: `kube-rdma ip release`.


class HeldAddress(Frozen):
    """An IP address with its block and the nodes that hold it; `risk` warns of freeing it."""

    address: ipam.Address
    bit: ipam.Bits
    stored: Stored[ipam.Block, None]
    nodes: tuple[ipam.NodeName, ...]
    risk: str


async def find_holders(cluster: Cluster, network: str, address: ipam.Address) -> HeldAddress:
    """Return an IP address with its block and the nodes that hold it.

    Raise Refused where no node holds it, Broken if its IPBlock has another block's name.
    """
    key, bit = key_of(ipam.NetworkName(network), address)
    stored = await cluster.get(kinds.IP_BLOCK, key.name)
    holdings = kinds.stored_block(stored).holdings if stored else ()
    holders = [h.node for h in holdings if h.bits & bit]
    if stored is None or not holders:
        raise Refused(
            f"no node holds {address} of network {network}",
            remedy="Look at `kube-rdma ip show POOL` for what is held, or name another --network",
        )
    sentences = []
    for node in holders:
        if await cluster.get(NODE, node):
            sentences.append(
                f"{address} of network {network} is held by node {node}, which exists. If a pod "
                "on it has the address, a second pod may get it and both lose traffic; its agent "
                "asks for it back as long as no other node has it. Delete the pod instead."
            )
        else:
            sentences.append(
                f"{address} of network {network} is held by node {node}, which is no longer a node "
                "of this cluster. If that machine still runs, its pods still use the address: "
                "make sure that it is off."
            )
    return HeldAddress(address, bit, stored, tuple(holders), "\n".join(sentences))


async def free(cluster: Cluster, held: HeldAddress) -> None:
    """Free an address in its block, whichever nodes hold it.

    Raise Conflict (an Unavailable) where the block has changed since it was read.
    """
    spec = held.stored.spec
    left = [replace(h, bits=ipam.Bits(h.bits & ~held.bit)) for h in spec.holdings]
    holdings = tuple(each for each in left if each.bits)
    written = replace(spec, holdings=holdings, edition=spec.edition + 1)
    labels = block_labels(written)
    await cluster.replace(kinds.IP_BLOCK, replace(held.stored, spec=written, labels=labels))
