"""The controller's side of IPAM, running: four watches and, every few seconds, one patrol.

Only the leader runs it, but two at a time do no harm (rules/ipam/gc).
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import ipam
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL, pool_of
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.model.ipam import Board, NodeName
from kube_rdma.programs.controller.mirror import Mirror
from kube_rdma.programs.ipam.pace import IpamTiming
from kube_rdma.programs.ipam.runner import Runner
from kube_rdma.rules.ipam.gc import ClusterView, Post, patrol
from kube_rdma.rules.ipam.reclaim import strangers

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # KEP-2268: nothing of the node runs any more

log = structlog.get_logger()


async def run_patrol(cluster: Cluster, namespace: str, pace: IpamTiming | None = None) -> None:
    """Fence, reclaim and tidy up until cancelled. `namespace`: of the nodes' leases."""
    pace = pace or IpamTiming()
    pools = Mirror(IP_POOL, _rest_and_board)
    blocks = Mirror(ipam.IP_BLOCK, ipam.block)
    leases = Mirror(
        ipam.LEASE,
        ipam.lease,
        where=Where(namespace, labels=ipam.LEASES.labels),
    )
    nodes = Mirror(NODE, _is_serving)
    mirrors: tuple[Mirror[Any], ...] = (pools, blocks, leases, nodes)
    notices = Notices()
    post = Post(rest=0.0, timing=pace.timing)
    runner = Runner(ipam.IpamObjects(cluster, namespace), pace)
    async with asyncio.TaskGroup() as tasks:
        for mirror in mirrors:
            tasks.create_task(mirror.follow(cluster, pace.pause))
        for mirror in mirrors:
            await mirror.synced.wait()
        while True:
            if not any(mirror.trouble for mirror in mirrors):
                # Never less than before: a pool that was taken away may have addresses that rest.
                post.rest = max([post.rest, *(rest for rest, _ in pools.values.values())])
                scene = ClusterView(
                    {block.cell: block for block in blocks.values.values()},
                    {lease.node: lease for lease in leases.values.values()},
                    tuple(board for _, board in pools.values.values()),
                    frozenset(NodeName(n) for n, serves in nodes.values.items() if serves),
                )
                try:
                    await runner.run(patrol(post, scene))
                except KubeError as error:
                    log.warning("patrol interrupted", why=str(error))
                for node in notices.news("strangers", *strangers(post.watch)):
                    why = f"there was never a lease ipam.{node} in namespace {namespace}"
                    log.warning("addresses left", node=node, why=why)
            await asyncio.sleep(pace.patrol)


def _rest_and_board(stored: Stored[Any, Any]) -> tuple[float, Board]:
    return pool_of(stored).rest, ipam.board(stored)


def _is_serving(node: Stored[Any, Any]) -> bool:
    return all(taint.key != OUT_OF_SERVICE for taint in node_state(node).taints)
