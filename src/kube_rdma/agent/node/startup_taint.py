"""Takes the startup taint off this node when every resource is there: ``agent --startup-taint``.

A NodeKeeper. The administrator lets the kubelet register its node with
``kube-rdma.io/starting:NoSchedule``, or the same by the prefix that the cluster-autoscaler knows;
pools/rules/startup compares the Node object with what is
offered. A node that is registered again has the taint again, and loses it again.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from kube_base.backoff import full_jitter
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.node import NodeState
from kube_rdma.pools.rules.pools import offer
from kube_rdma.pools.rules.startup import EFFECT, shows, starting
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace
from kube_rdma.reports.rules.node_report import AgentLook

# Pods wait for it: a right that was missing is tried again soon.
SOON = WritePace(after=lambda _, failures: full_jitter(failures))

log = structlog.get_logger()


class StartupTaint(NodeKeeper[Mapping[str, int]]):
    """The taint of one agent's node, which goes when it shows the healthy shares of each resource.

    What is wanted are these shares.
    """

    part = "startup taint"
    failure = "startup taint not removed"

    def __init__(self, nodes: Nodes, pace: WritePace = SOON) -> None:
        super().__init__(pace)
        self._nodes = nodes

    def _wanted(self, look: AgentLook) -> Mapping[str, int]:
        offers = ((pool.spec.resource, offer(pool)) for pool in look.listed)
        return {name: sum(s.healthy for s in shown.shares) for name, shown in offers}

    def _agrees(self, node: NodeState, wanted: Mapping[str, int]) -> bool:
        return not (starting(node) and shows(node, wanted))

    async def _write(self, node: NodeState, wanted: Mapping[str, int]) -> None:
        for key in starting(node):
            if await self._nodes.remove_taint(node.name, key, EFFECT):
                log.info("startup taint removed", node=node.name, taint=f"{key}:{EFFECT}")
