"""A node as the API server knows it, as far as kube-rdma looks: what it is called, what it offers.

adapters/cluster reads it, programs compare it with what the kernel and the kubelet say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods away; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """What one condition of a node says; `status` is True, False or Unknown."""

    status: str
    reason: str  # one word, CamelCase
    message: str


@dataclass(frozen=True, slots=True)
class NodeState:
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


@dataclass(frozen=True, slots=True)
class LabelChange:
    """Labels and annotations of a node that get another value; None takes one away."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
