"""The controller's side of IPAM, running: four watches, and a round of gc every few seconds.

Only the leader runs it, but two at a time do no harm (ipam/rules/gc).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import structlog

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls, contained
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.effect_runner import EffectRunner
from kube_rdma.ipam.kind import IP_POOL, pool_of
from kube_rdma.ipam.rules.effects import Effects
from kube_rdma.ipam.rules.gc import ClusterView, GcState, operations
from kube_rdma.ipam.rules.reclaim import foreign_nodes
from kube_rdma.ipam.timing import IpamTiming
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.ipam import BorrowQueue, NodeName

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # KEP-2268: nothing of the node runs any more

_KINDS = {kind.kind: kind.api_version for kind in (NODE, ipam.IP_BLOCK, IP_POOL)}  # of operations

log = structlog.get_logger()


async def run_gc(
    cluster: Cluster, namespace: str, events: Events, timing: IpamTiming | None = None
) -> None:
    """Fence and reclaim until cancelled. `namespace` is where the leases of the nodes are."""
    timing = timing or IpamTiming()
    pools = Mirror(IP_POOL, _cooldown_and_queue)
    blocks = Mirror(ipam.IP_BLOCK, ipam.block)
    leases = Mirror(
        ipam.LEASE,
        ipam.lease,
        where=Where(namespace, labels=ipam.LEASES.labels),
    )
    nodes = Mirror(NODE, _is_serving)
    mirrors: tuple[Mirror[Any], ...] = (pools, blocks, leases, nodes)
    notices = Notices()
    walls = {kind: ObjectWalls(kind) for kind in _KINDS}
    state = GcState(cooldown=0.0, timing=timing.agreed)
    runner = EffectRunner(ipam.IpamObjects(cluster, namespace), timing)
    async with asyncio.TaskGroup() as tasks:
        await follow_all(tasks, cluster, timing.pause, *mirrors)
        while True:
            if not any(mirror.trouble for mirror in mirrors):
                # Never less than before: addresses of a deleted pool may still cool down.
                state.cooldown = max(
                    [state.cooldown, *(cooldown for cooldown, _ in pools.values.values())]
                )
                view = ClusterView(
                    {block.key: block for block in blocks.values.values()},
                    {lease.node: lease for lease in leases.values.values()},
                    tuple(queue for _, queue in pools.values.values()),
                    frozenset(NodeName(n) for n, serves in nodes.values.items() if serves),
                )
                with contained("addresses of gone nodes"):  # what was observed is not lost
                    for kind, name, operation in operations(state, view, timing.clock()):
                        if any(mirror.trouble for mirror in mirrors):
                            break
                        about = About(kind, name, api_version=_KINDS[kind])
                        do = partial(_do, runner, events, operation, about)
                        await walls[kind].run(about, do)
                for node in notices.news("foreign nodes", *foreign_nodes(state.observations)):
                    why = f"there was never a lease ipam.{node} in namespace {namespace}"
                    log.warning("addresses left", node=node, why=why)
            await asyncio.sleep(timing.gc_interval)


async def _do(
    runner: EffectRunner, events: Events, operation: Effects[None], about: About, fault: str
) -> bool:
    """Whether an operation was done; its `fault` is told."""
    if fault:
        return events.failed(about, fault)
    try:
        await runner.run(operation)
    except KubeError as error:
        log.warning("patrol interrupted", why=str(error))
        return False
    return True


def _cooldown_and_queue(stored: Stored[Any, Any]) -> tuple[float, BorrowQueue]:
    return pool_of(stored).cooldown, ipam.borrow_queue(stored)


def _is_serving(node: Stored[Any, Any]) -> bool:
    return all(taint.key != OUT_OF_SERVICE for taint in node_state(node).taints)
