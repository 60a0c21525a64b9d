"""Loads, removes and exchanges drivers node by node, as operator/rules/upgrade decides.

    reconcile: policy, DaemonSets, nodes ─► one look here: pods, holders, reports ─ upgrade_plan ─►
      nodes closed and labelled, holders evicted, drivers' pods deleted ─► condition DriversCurrent

Holders (pods with shares) and NodeReports are read only while a node's drivers have to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from kube_base.errors import KubeError
from kube_base.frozen import Frozen, replace
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, FullPod
from kube_rdma.adapters.cluster.nodes import Nodes, Pods
from kube_rdma.model import operator
from kube_rdma.model.kubernetes import PodState, moment
from kube_rdma.operator.cluster import all_reports, driver_pod, is_ready, using_pods
from kube_rdma.operator.rules.daemon_sets import COMPONENT_LABEL
from kube_rdma.operator.rules.driver_sets import is_share, needs
from kube_rdma.operator.rules.placement import PLACE_LABELS, READY_LABEL, allowed, place_of, places
from kube_rdma.operator.rules.upgrade import is_outdated, upgrade_plan

CLOSED_MARK = "kube-rdma.io/closed-for-upgrade"
STARTING = "driver-not-ready"  # what the mark says where nothing is changed; else since when
_UNREAD = ("for what its NodeReport says, which cannot be read",)
DRIVERS = (operator.ComponentName.DRIVER, operator.ComponentName.PEER_DRIVER)

log = structlog.get_logger()

DaemonSets = Sequence[Stored[Any, Any]]
PolicyNodes = Sequence[operator.PolicyNode]
PodsByName = Mapping[str, FullPod]


class UpgradeOutcome(Frozen):
    """The result of a look at the drivers: the plan, the nodes, and sentences on what was done."""

    plan: operator.UpgradePlan
    nodes: tuple[operator.UpgradeNode, ...] = ()
    done: tuple[str, ...] = ()


class Upgrades:
    """The changes of drivers on the nodes of one cluster, step by step."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes, self._pods = Nodes(cluster), Pods(cluster)

    async def look(
        self,
        policy: operator.ClusterPolicy | None,
        nodes: PolicyNodes,
        daemon_sets: DaemonSets,
        pods: PodsByName,
        now: datetime,
    ) -> UpgradeOutcome:
        """Take the next steps that bring the nodes' drivers nearer to a policy; return the outcome.

        `daemon_sets` are the DaemonSets of drivers.
        """
        seen = _seen(policy, nodes, daemon_sets, pods, now)
        if any(map(is_outdated, seen)):
            seen = await self._with_uses(policy, seen, {node.name: node for node in nodes})
        plan = upgrade_plan(policy.upgrades if policy else operator.UpgradePolicy(), seen)
        done = [sentence for act in plan.acts if (sentence := await self._do(act, pods, now))]
        done += _unreported(plan, seen)
        return UpgradeOutcome(plan, tuple(seen), tuple(done))

    async def label(self, labels: Mapping[str, Mapping[str, str | None]]) -> None:
        """Write labels of nodes; what cannot be written now is tried again at the next look."""
        for node, wanted in labels.items():
            try:
                await self._nodes.label(node, wanted)
            except KubeError as error:
                log.warning("node not labelled", node=node, why=str(error))

    async def _with_uses(
        self,
        policy: operator.ClusterPolicy | None,
        seen: list[operator.UpgradeNode],
        nodes: Mapping[str, operator.PolicyNode],
    ) -> list[operator.UpgradeNode]:
        """Add to the nodes which pods hold shares there, and what the nodes need the cards for."""
        upgrades = policy.upgrades if policy else operator.UpgradePolicy()
        reports, unread = await all_reports(self._cluster, nodes)
        offered = {pool.resource for report in reports.values() for pool in report.pools}
        for plugin in policy.plugins if policy else ():
            offered |= set(plugin.resources)
        holders: dict[str, tuple[operator.ShareHolder, ...]] = {}
        for name, resources, holder in await using_pods(
            self._cluster, upgrades.drains, upgrades.wait_for
        ):
            if any(resource == "" or is_share(resource, offered) for resource in resources):
                holders[name] = (*holders.get(name, ()), holder)
        return [
            replace(
                node,
                holders=holders.get(node.name, ()),
                reported=node.name in reports,
                carries=needs(reports[node.name], nodes[node.name].addresses)
                if node.name in reports
                else _UNREAD[: node.name in unread],
            )
            for node in seen
        ]

    async def _do(self, act: operator.UpgradeAct, pods: PodsByName, now: datetime) -> str:
        """Carry out an act; return a sentence about it, "" if it could not be done now."""
        try:
            match act:
                case operator.Close(node, change):
                    await self._nodes.close(node, CLOSED_MARK, moment(now) if change else STARTING)
                    sentence = f"node {node} takes no pods until its driver runs"
                case operator.Open(node):
                    await self._nodes.close(node, CLOSED_MARK, "")
                    sentence = f"node {node} takes pods again"
                case operator.Evict(node, pod):
                    await self._pods.evict(PodState(pod.namespace, pod.name, pod.uid, node=node))
                    sentence = f"pod {pod} was evicted from node {node}"
                case operator.EndDrivers(node, ended):
                    for driver in ended:
                        # The watch goes on while acts are done: one may have ended by itself.
                        if present := pods.get(driver.name):
                            await self._cluster.delete(FULL_POD, present, unchanged=False)
                    names = ", ".join(driver.name for driver in ended)
                    sentence = f"node {node}: ended {names}"
                case operator.LabelDrivers(node, labels):
                    await self._nodes.label(node, dict(labels))
                    words = (
                        f"{key}={value}" if value else f"{key} taken away" for key, value in labels
                    )
                    sentence = f"node {node}: {', '.join(f'label {word}' for word in words)}"
        except KubeError as error:
            log.warning("upgrade held up", node=act.node, why=str(error))
            return ""
        log.info("driver upgrade", what=sentence)
        return sentence


def _unreported(plan: operator.UpgradePlan, seen: Sequence[operator.UpgradeNode]) -> list[str]:
    """Return sentences about nodes without a NodeReport that are closed for a change."""
    silent = {node.name for node in seen if not node.reported}
    closed = [act.node for act in plan.acts if isinstance(act, operator.Close) and act.change]
    return [
        f"node {name} has no NodeReport: routes and storage over its cards are not known, "
        "and its driver is changed"
        for name in closed
        if name in silent
    ]


def adopted(
    nodes: PolicyNodes, daemon_sets: DaemonSets, pods: PodsByName
) -> Mapping[str, Mapping[str, str]]:
    """Return the labels to write on nodes where drivers of an earlier release run, by node.

    DaemonSets of that release selected other labels. The DaemonSets are rewritten when no node
    lacks its new label any more.
    """
    has = {node.name: dict(node.labels) for node in nodes}
    lacking: dict[str, dict[str, str]] = {}
    for stored in daemon_sets:
        key, value, placed = _place(stored)
        for pod in () if placed else pods_of(stored, pods):
            if key not in has.get(pod.spec.node_name, {key: ""}):
                lacking.setdefault(pod.spec.node_name, {})[key] = value
    return lacking


def is_used(stored: Stored[Any, Any], nodes: PolicyNodes, pods: PodsByName) -> bool:
    """Return whether a driver's DaemonSet has pods, or a node has the label that it selects."""
    key, value, _ = _place(stored)
    return bool(pods_of(stored, pods)) or any(dict(node.labels).get(key) == value for node in nodes)


def ready_marks(
    policy: operator.ClusterPolicy, nodes: PolicyNodes, pods: PodsByName
) -> Mapping[str, Mapping[str, str | None]]:
    """Return the changes of the label by which device plugins wait for a node's driver, by node.

    A node on which a device plugin runs gets the label too, whatever becomes of its driver.
    """
    if policy.driver is None:
        return {}
    begun = {
        pod.spec.node_name
        for pod in pods.values()
        if pod.label(COMPONENT_LABEL) in operator.PLUGINS
        or (pod.label(COMPONENT_LABEL) == operator.ComponentName.DRIVER and is_ready(pod))
    }
    return {
        node.name: {READY_LABEL: "true"}
        for node in nodes
        if node.name in begun and READY_LABEL not in dict(node.labels)
    }


def waiting(
    policy: operator.ClusterPolicy, nodes: PolicyNodes, upgraded: UpgradeOutcome
) -> Mapping[operator.ComponentName, str]:
    """Return by part of a policy why it is not on all of its nodes yet."""
    sentences = {stage.node: stage.sentence for stage in upgraded.plan.stages}
    reasons: dict[operator.ComponentName, str] = {}
    for component, key in PLACE_LABELS.items():
        wanted = [
            (node.name, place)
            for node in upgraded.nodes
            for place in node.places
            if place.key == key and place.wants
        ]
        lacking = [name for name, place in wanted if place.has != place.wants]
        if lacking:
            why = next((text for name in lacking if (text := sentences[name])), "")
            count = f"{len(lacking)} of {len(wanted)} nodes have no driver yet"
            reasons[component] = f"{count}: {why}" if why else count
    if policy.driver:
        cards = [node for node in allowed(policy, nodes) if node.has_cards]
        behind = [node for node in cards if READY_LABEL not in dict(node.labels)]
        if behind:
            count = f"{len(behind)} of {len(cards)} nodes wait for their driver"
            reasons |= dict.fromkeys(operator.PLUGINS, count)
    return reasons


def _place(stored: Stored[Any, Any]) -> tuple[str, str, bool]:
    return place_of(stored.spec["template"]["spec"], stored.label(COMPONENT_LABEL) or "")


def pods_of(stored: Stored[Any, Any], pods: PodsByName) -> list[FullPod]:
    """Return the pods of a DaemonSet that are placed on a node."""
    name = stored.spec["template"]["metadata"]["labels"]["name"]
    return [pod for pod in pods.values() if pod.label("name") == name and pod.spec.node_name]


def _seen(
    policy: operator.ClusterPolicy | None,
    nodes: PolicyNodes,
    daemon_sets: DaemonSets,
    pods: PodsByName,
    now: datetime,
) -> list[operator.UpgradeNode]:
    """Return the nodes that have or want drivers, and those closed for one.

    Holders of shares are not looked up yet.
    """
    by_node: dict[str, list[tuple[Stored[Any, Any], FullPod]]] = {}
    for stored in daemon_sets:
        for pod in pods_of(stored, pods):
            by_node.setdefault(pod.spec.node_name, []).append((stored, pod))
    seen = []
    for node in nodes:
        own, wanted = by_node.get(node.name, []), places(policy, node)
        if node.ours or own or any(place.has or place.wants for place in wanted):
            seen.append(_node(node, wanted, own, now))
    return seen


def _node(
    node: operator.PolicyNode,
    wanted: Sequence[operator.DriverPlace],
    own: Sequence[tuple[Stored[Any, Any], FullPod]],
    now: datetime,
) -> operator.UpgradeNode:
    has = {place.key: place.has for place in wanted}
    drivers: list[operator.DriverPod] = []
    running: set[str] = set()
    for stored, pod in own:
        key, value, by_label = _place(stored)
        placed = not by_label or has[key] == value
        unloads = key == PLACE_LABELS[operator.ComponentName.DRIVER]
        drivers.append(driver_pod(pod, stored.spec["template"], unloads=unloads, placed=placed))
        running |= {key} if placed else set()
    return operator.UpgradeNode(
        node.name,
        tuple(drivers),
        missing=any(value and key not in running for key, value in has.items()),
        closed=node.closed,
        ours=node.ours,
        changing=node.changing,
        places=tuple(wanted),
        away=node.away,
        closed_seconds=_age(node.closed_since, now),
    )


def _age(since: str, now: datetime) -> float:
    """Return the seconds since a time of RFC 3339; 0 for any other text."""
    try:
        return (now - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
