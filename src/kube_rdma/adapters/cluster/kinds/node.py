"""Describes Nodes: the few fields that are read of each, and the model value that they make.

An object that was decoded in part cannot be written back whole; `Cluster.patch` can change single
labels.
"""

from __future__ import annotations

import msgspec

from kube_client.kinds import ObjectCodec, ObjectKind, Stored
from kube_rdma.model.kubernetes import NodeCondition, NodeState, Taint, quantity

CARDS_HEALTHY = "kube-rdma.io/CardsHealthy"  # type of the condition that is read and written


class NodeObjectSpec(msgspec.Struct, frozen=True):
    """The fields of a Node's spec that kube-rdma reads."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Info(msgspec.Struct, rename="camel"):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _Address(msgspec.Struct):
    type: str
    address: str


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Node's status that kube-rdma reads."""

    allocatable: dict[str, str] = {}
    node_info: _Info = msgspec.field(default_factory=_Info)
    conditions: tuple[_Condition, ...] = ()
    addresses: tuple[_Address, ...] = ()


_SPEC = ObjectCodec.of(NodeObjectSpec, writes=False)
_STATUS = ObjectCodec.of(NodeStatus, writes=False)
NODE = ObjectKind("", "v1", "Node", "nodes", namespaced=False, spec=_SPEC, status=_STATUS)


class _TaintedSpec(msgspec.Struct, frozen=True):
    """A Node's taints with all of their fields, because the list is written as a whole."""

    taints: tuple[dict[str, object], ...] = ()


TAINTED_NODE = NODE.read_as(ObjectCodec.of(_TaintedSpec, writes=False), _STATUS)


def node_state(node: Stored[NodeObjectSpec, NodeStatus]) -> NodeState:
    """Return the model value of a Node object."""
    status = node.status or NodeStatus()
    conditions = {each.type: each for each in status.conditions}
    ready, cards = conditions.get("Ready"), conditions.get(CARDS_HEALTHY)
    return NodeState(
        name=node.name,
        uid=node.uid,
        labels=node.labels,
        annotations=node.annotations,
        allocatable=tuple(sorted((name, units(n)) for name, n in status.allocatable.items())),
        kubelet_version=status.node_info.kubelet_version,
        runtime_version=status.node_info.container_runtime_version,
        unschedulable=node.spec.unschedulable,
        taints=node.spec.taints,
        ready={"True": True, "False": False}.get(ready.status) if ready else None,
        cards=NodeCondition(cards.status, cards.reason, cards.message) if cards else None,
        addresses=tuple((one.type, one.address) for one in status.addresses),
    )


def whole(text: str) -> int:
    """Return the whole units of a quantity: 1k is 1000, 3920m is 3.

    Raise ValueError for a text that is no quantity.
    """
    return int(quantity(text))


def units(text: str) -> int:
    """Return the whole units of a quantity; 0 for a text that is no quantity."""
    try:
        return whole(text)
    except ValueError:
        return 0
