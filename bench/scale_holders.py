"""What thousands of nodes leave in the cluster, without the nodes: for the last part of `scale`.

They would take hours of this machine. Their rules choose which addresses each acquires
(ipam/rules/blocks) and the agent's codec writes it, a lease beside; no journal is kept and nothing
is watched. Each knows of those before it what it meets on its way: of all blocks, 5,000 nodes would
have looked at 12 million. Their NodeReports are copies of a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import scale_site as site
from bench.scale_node import CARDS, POOL
from kube_client.kinds import Wanted
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, IpamObjects, pool_of, stored_block
from kube_rdma.ipam.rules.blocks import ahead_limit, choose_addresses, plan
from kube_rdma.ipam.rules.node_state import load
from kube_rdma.ipam.rules.subpools import Subpool, subpools
from kube_rdma.model.ipam import Block, BlockKey, BootId, JournalId, NodeLease, NodeName


def hold(kubeconfig: Path, names: Sequence[str]) -> int:
    """Let each node hold the addresses of its first pod, and return their number."""
    return asyncio.run(_hold(kubeconfig, names))


async def _hold(kubeconfig: Path, names: Sequence[str]) -> int:
    async with connect(kubeconfig) as cluster:
        stored = await cluster.get(IP_POOL, POOL)
        assert stored
        (subpool,) = subpools(pool_of(stored))
        objects = IpamObjects(cluster, site.SPACE)
        blocks = {one.spec.key: stored_block(one) for one in await cluster.list(IP_BLOCK)}
        held = 0
        for first in range(0, len(names), site.AT_ONCE):
            group = names[first : first + site.AT_ONCE]
            planned = [one for name in group for one in _acquired(NodeName(name), blocks, subpool)]
            latest = {block.key: block for block in planned}  # a second node writes after the first
            leases = [objects.write_lease(_lease(NodeName(name))) for name in group]
            written = [objects.write_block(block) for block in latest.values()]
            done, _ = await asyncio.gather(asyncio.gather(*written), asyncio.gather(*leases))
            blocks.update({block.key: block for block in done if block})
            held += sum(_count(block, group) for block in latest.values())
        return held


def _acquired(node: NodeName, blocks: dict[BlockKey, Block], subpool: Subpool) -> Iterator[Block]:
    """The blocks as this node writes them; `blocks` has them from then on."""
    state, met = load(node, (), 0.0), dict[BlockKey, Block]()
    while True:
        count = max(CARDS, ahead_limit(state, met, subpool, sees_all=False))
        chosen = choose_addresses(state, met, subpool, count)
        new = {key: blocks[key] for key, _ in chosen if key in blocks and key not in met}
        if not new:
            break
        met |= new
    for key, bits in chosen:
        before = blocks.get(key)
        _, block = plan(state, key, before, acquire=bits)
        blocks[key] = block
        yield block


def _count(block: Block, names: Sequence[str]) -> int:
    return sum(one.bits.bit_count() for one in block.holdings if one.node in names)


def _lease(node: NodeName) -> NodeLease:
    return NodeLease(node, JournalId(f"journal of {node}"), BootId(f"boot of {node}"), heartbeat=1)


def report(kubeconfig: Path, names: Sequence[str], model: str) -> None:
    """Let each node have the NodeReport of the node `model`."""
    asyncio.run(_report(kubeconfig, names, model))


async def _report(kubeconfig: Path, names: Sequence[str], model: str) -> None:
    slots = asyncio.Semaphore(site.AT_ONCE)
    async with connect(kubeconfig) as cluster:
        stored = await cluster.get(NODE_REPORT, model)
        assert stored
        assert stored.status
        status = stored.status

        async def write(name: str) -> None:
            async with slots:
                await cluster.apply(NODE_REPORT, Wanted(name), force=True)
                await cluster.apply_status(NODE_REPORT, name, "", status, force=True)

        await asyncio.gather(*map(write, names))
