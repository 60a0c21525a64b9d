"""A node as the API server knows it, as far as kube-rdma looks: what it is called, what it offers.

adapters/cluster reads it, programs compare it with what the kernel and the kubelet say.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen


class Taint(Frozen):
    """What keeps pods away; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class NodeCondition(Frozen):
    """What one condition of a node says; `status` is True, False or Unknown."""

    status: str
    reason: str  # one word, CamelCase
    message: str


class NodeState(Frozen):
    """One Node object. Labels, annotations and allocatable are sorted by name.

    `allocatable` counts whole units of the resource: cores, bytes, shares; a fraction is cut off.
    `ready` is None while nothing is known of the kubelet, `cards` while nobody judged them.
    """

    name: str
    uid: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()
    kubelet_version: str = ""  # v1.36.3
    runtime_version: str = ""  # containerd://2.4.2
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool | None = None
    cards: NodeCondition | None = None  # kube-rdma.io/CardsHealthy
    addresses: tuple[tuple[str, str], ...] = ()  # type and address, as ("InternalIP", "10.0.0.7")


class LabelChange(Frozen):
    """Labels and annotations of a node that get another value; None takes one away."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
