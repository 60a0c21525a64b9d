"""Says when a node has started, as far as its RDMA resources go: the end of the startup taint.

A node may be registered with a taint that keeps pods away until its cards are there.
agent/node/startup_taint asks with each new state of the Node object and each new offer.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_rdma.model.node import NodeState

EFFECT = "NoSchedule"
STARTING = "kube-rdma.io/starting"
STARTING_FOR_AUTOSCALER = "startup-taint.cluster-autoscaler.kubernetes.io/kube-rdma"
"""With this prefix the cluster-autoscaler counts a node as one that still starts, where any other
taint makes it add a further node: kubernetes/autoscaler@cluster-autoscaler-1.29.0
cluster-autoscaler/utils/taints/taints.go, StartupTaintPrefix."""

KEYS = (STARTING, STARTING_FOR_AUTOSCALER)  # an administrator writes one of them, with any value


def starting(node: NodeState) -> tuple[str, ...]:
    """The keys of the startup taints that the node has."""
    return tuple(key for key in KEYS if (key, EFFECT) in {(t.key, t.effect) for t in node.taints})


def shows(node: NodeState, offered: Mapping[str, int]) -> bool:
    """Whether the Node object's allocatable has what is offered: by resource the healthy shares.

    It is what the scheduler counts with. The kubelet writes there what it took of the lists.
    """
    allocatable = dict(node.allocatable)
    return all(allocatable.get(resource, 0) == count for resource, count in offered.items())
