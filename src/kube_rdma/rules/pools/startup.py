"""Says when a node has started, as far as its RDMA resources go: the end of the startup taint.

A node may be registered with a taint that keeps pods away until its cards are there.
programs/agent/node/startup_taint asks with each new state of the Node object and each new offer.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_rdma.model.node import NodeState

STARTING, EFFECT = "kube-rdma.io/starting", "NoSchedule"  # key and effect; the value is free


def is_starting(node: NodeState) -> bool:
    """Whether the node has the startup taint."""
    return any((taint.key, taint.effect) == (STARTING, EFFECT) for taint in node.taints)


def shows(node: NodeState, offered: Mapping[str, int]) -> bool:
    """Whether the Node object's allocatable has what is offered: by resource the healthy shares.

    It is what the scheduler counts with. The kubelet writes there what it took of the lists.
    """
    allocatable = dict(node.allocatable)
    return all(allocatable.get(resource, 0) == count for resource, count in offered.items())
