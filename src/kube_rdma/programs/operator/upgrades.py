"""Exchanges drivers' pods of an older image, node by node, as rules/operator/upgrade decides.

    reconcile: policy, DaemonSets, nodes ─► one look here: pods, holders, reports ─ upgrade_plan ─►
      nodes closed, holders evicted, drivers' pods deleted ─► the condition DriversCurrent

Holders and reports are read only while some driver is of an older image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from kube_rdma.adapters.cluster.driver_objects import (
    USING_POD,
    StoredPod,
    all_reports,
    driver_pod,
    using_pods,
)
from kube_rdma.adapters.cluster.kinds import Stored
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.pods import Pods
from kube_rdma.model.cluster_policy import ClusterPolicy, ComponentName, PolicyNode
from kube_rdma.model.driver_upgrade import (
    Close,
    DriverPod,
    EndDrivers,
    Evict,
    Open,
    ShareHolder,
    UpgradeAct,
    UpgradeNode,
    UpgradePlan,
)
from kube_rdma.model.errors import KubeRdmaError
from kube_rdma.model.frozen import Frozen
from kube_rdma.model.pod import PodState
from kube_rdma.rules.operator.daemon_sets import COMPONENT_LABEL
from kube_rdma.rules.operator.node_groups import selected_by
from kube_rdma.rules.operator.upgrade import is_outdated, is_share, needs, upgrade_plan

CLOSED_MARK = "kube-rdma.io/closed-for-upgrade"
DRIVERS = (ComponentName.DRIVER, ComponentName.PEER_DRIVER)

log = structlog.get_logger()


class Upgraded(Frozen):
    """What a look came to: what was planned, and sentences about what was done."""

    plan: UpgradePlan
    done: tuple[str, ...] = ()


class Upgrades:
    """The drivers of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes, self._pods = Nodes(cluster), Pods(cluster)

    async def look(
        self,
        policy: ClusterPolicy | None,
        nodes: Sequence[PolicyNode],
        daemon_sets: Sequence[Stored[Any, Any]],
        pods: Mapping[str, StoredPod],
    ) -> Upgraded:
        """Bring the nodes nearer to the images of `daemon_sets`, which are the policy's."""
        seen = _nodes(nodes, daemon_sets, pods)
        if policy is not None and any(map(is_outdated, seen)):
            seen = await self._with_uses(policy, seen, {node.name: node for node in nodes})
        plan = upgrade_plan(policy.upgrades if policy else None, seen)
        done = [sentence for act in plan.acts if (sentence := await self._do(act, pods))]
        return Upgraded(plan, tuple(done))

    async def _with_uses(
        self, policy: ClusterPolicy, seen: list[UpgradeNode], nodes: Mapping[str, PolicyNode]
    ) -> list[UpgradeNode]:
        """The same with who holds shares, and what the nodes need their cards for."""
        reports = await all_reports(self._cluster, nodes)
        offered = {pool.resource for report in reports.values() for pool in report.pools}
        offered |= set(policy.device_plugin.resources) if policy.device_plugin else set()
        holders: dict[str, tuple[ShareHolder, ...]] = {}
        for name, resources, holder in await using_pods(self._cluster):
            if any(is_share(resource, offered) for resource in resources):
                holders[name] = (*holders.get(name, ()), holder)
        return [
            replace(
                node,
                holders=holders.get(node.name, ()),
                carries=needs(reports[node.name], nodes[node.name].addresses)
                if node.name in reports
                else (),
            )
            for node in seen
        ]

    async def _do(self, act: UpgradeAct, pods: Mapping[str, StoredPod]) -> str:
        """Carry an act out; a sentence about it, "" where it could not be done now."""
        try:
            match act:
                case Close(node):
                    await self._nodes.close(node, CLOSED_MARK, closed=True)
                    sentence = f"node {node} takes no pods until its driver is exchanged"
                case Open(node):
                    await self._nodes.close(node, CLOSED_MARK, closed=False)
                    sentence = f"node {node} takes pods again"
                case Evict(node, pod):
                    await self._pods.evict(PodState(pod.namespace, pod.name, pod.uid, node=node))
                    sentence = f"pod {pod} was evicted from node {node}"
                case EndDrivers(node, ended):
                    for driver in ended:
                        await self._cluster.delete(USING_POD, pods[driver.name], unchanged=False)
                    names = ", ".join(driver.name for driver in ended)
                    sentence = f"node {node}: ended {names}"
        except KubeRdmaError as error:
            log.warning("upgrade held up", node=act.node, why=str(error))
            return ""
        log.info("driver upgrade", what=sentence)
        return sentence


def _nodes(
    nodes: Sequence[PolicyNode],
    daemon_sets: Sequence[Stored[Any, Any]],
    pods: Mapping[str, StoredPod],
) -> list[UpgradeNode]:
    """The nodes with their drivers' pods; who uses them is not looked up yet."""
    placed: dict[tuple[str, str | None], list[StoredPod]] = {}
    for pod in pods.values():
        placed.setdefault((pod.spec.node_name, pod.label("name")), []).append(pod)
    return [_node(node, daemon_sets, placed) for node in nodes if node.has_cards or node.ours]


def _node(
    node: PolicyNode,
    daemon_sets: Sequence[Stored[Any, Any]],
    placed: Mapping[tuple[str, str | None], Sequence[StoredPod]],
) -> UpgradeNode:
    drivers: list[DriverPod] = []
    missing = False
    labels = selected_by(node).items()
    for stored in daemon_sets:
        template = stored.spec["template"]
        own = placed.get((node.name, template["metadata"]["labels"]["name"]), ())
        image = template["spec"]["containers"][0]["image"]
        unloads = stored.label(COMPONENT_LABEL) == ComponentName.DRIVER
        drivers += (driver_pod(pod, image, unloads=unloads) for pod in own)
        missing |= not own and template["spec"]["nodeSelector"].items() <= labels
    return UpgradeNode(
        node.name, tuple(drivers), missing=missing, closed=node.closed, ours=node.ours
    )
