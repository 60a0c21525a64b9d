"""On which nodes drivers belong, and which labels of a node say that they are there.

    policy, nodes ─► places ─► operator/rules/upgrade, which alone has labels written

A driver's DaemonSet selects a label that nobody but the operator writes, with the driver's group as
its value. Labels of Node Feature Discovery only say which value a node should have: one that loses
them keeps its driver, for a label that is gone says nothing about cards. A policy that is gone,
leaves the driver out or excludes the node, and another kernel, are meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_rdma.model.operator.cluster_policy import ClusterPolicy, ComponentName, PolicyNode
from kube_rdma.model.operator.driver_upgrade import DriverPlace
from kube_rdma.operator.rules.affinity import allows
from kube_rdma.operator.rules.names import label_value
from kube_rdma.operator.rules.node_groups import (
    ARCHITECTURE_LABEL,
    DISTRIBUTION_LABEL,
    KERNEL_LABEL,
    RELEASE_LABEL,
    NodeGroup,
    driver_groups,
    peer_groups,
)

DRIVER_LABEL, PEER_LABEL = "kube-rdma.io/driver", "kube-rdma.io/peer-driver"
READY_LABEL = "kube-rdma.io/driver-ready"  # device plugin and such may start
PLACE_LABELS: Mapping[ComponentName, str] = {
    ComponentName.DRIVER: DRIVER_LABEL,
    ComponentName.PEER_DRIVER: PEER_LABEL,
}


def value_of(group: NodeGroup) -> str:
    """What the label of a node with a driver of this group says."""
    return label_value(group.tag)


def allowed(policy: ClusterPolicy, nodes: Sequence[PolicyNode]) -> tuple[PolicyNode, ...]:
    """The nodes that a policy is about."""
    return tuple(node for node in nodes if allows(policy.affinity, node.name, dict(node.labels)))


def plugin_nodes(policy: ClusterPolicy, nodes: Sequence[PolicyNode]) -> tuple[PolicyNode, ...]:
    """The nodes that have a device plugin: those with cards, where the driver is there already."""
    return tuple(
        node
        for node in allowed(policy, nodes)
        if node.has_cards and (policy.driver is None or READY_LABEL in dict(node.labels))
    )


def places(policy: ClusterPolicy | None, node: PolicyNode) -> tuple[DriverPlace, DriverPlace]:
    """Which drivers a node has and should have; without a policy none."""
    labels = dict(node.labels)
    has_driver, has_peer = labels.get(DRIVER_LABEL, ""), labels.get(PEER_LABEL, "")
    wants_driver = wants_peer = ""
    if policy and allows(policy.affinity, node.name, labels):
        if policy.driver:
            wants_driver = next(map(value_of, driver_groups([node]).groups), has_driver)
        if policy.peer_driver:
            wants_peer = next(map(value_of, peer_groups([node]).groups), has_peer)
    return (
        DriverPlace(DRIVER_LABEL, has_driver, wants_driver),
        DriverPlace(PEER_LABEL, has_peer, wants_peer, unloads=False),
    )


def place_of(pod: Mapping[str, Any], component: str) -> tuple[str, bool]:
    """Which value a DaemonSet of drivers selects by, and whether it does so by the label already.

    `pod` is the spec of its template. DaemonSets of earlier releases select the labels of Node
    Feature Discovery; their nodes are given the label before they are rewritten.
    """
    selector = pod.get("nodeSelector", {})
    key = PLACE_LABELS[ComponentName(component)]
    if key in selector:
        return selector[key], True
    names = (ARCHITECTURE_LABEL, DISTRIBUTION_LABEL, RELEASE_LABEL, KERNEL_LABEL)
    return value_of(NodeGroup(*(selector.get(name, "") for name in names))), False
