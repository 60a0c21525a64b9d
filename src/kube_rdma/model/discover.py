"""Nodes with their hardware as `kube-rdma discover` groups them, and the installation it proposes.

discover/cluster and discover/written make SeenNodes, discover/rules groups them, discover/views
shows the Proposal. The hardware of a group is written into an annotation of its NodePolicy, so
that nodes can be compared with it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_base.frozen import Frozen, field
from kube_rdma.model.card import CardId
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.kubernetes import SparsePart
from kube_rdma.model.reports import NodeReport


class HardwareCard(SparsePart):
    """A physical card; a field has its default where the node does not tell it at present."""

    id: CardId
    gbps: float | None = None  # of its fastest active port
    link: LinkLayer = LinkLayer.UNKNOWN
    driver: str = ""
    numa_node: int | None = None

    def agrees(self, other: HardwareCard | None) -> bool:
        """Return whether `other` is a card, and no field that both know differs; ids may differ."""
        if other is None:
            return False
        unknown = (None, "", LinkLayer.UNKNOWN)
        fields = ("gbps", "link", "driver", "numa_node")
        pairs = ((getattr(self, name), getattr(other, name)) for name in fields)
        return all(one == two or one in unknown or two in unknown for one, two in pairs)


class Hardware(SparsePart):
    """The physical cards of a node, sorted by id, and the number of its GPUs."""

    cards: tuple[HardwareCard, ...]
    gpus: int = 0


class SeenNode(Frozen):
    """A node of the cluster or of files, with its report.

    A node of files has the labels that an agent would write.
    """

    name: str
    report: NodeReport
    labels: Mapping[str, str]
    gpus: int = 0
    in_cluster: bool = False


class LeftOutCard(Frozen):
    """A card that a proposal does not offer to pods, and why."""

    card: str
    why: str


class Deviation(Frozen):
    """A difference between an installation and its nodes; `nodes` is empty if it is about none."""

    sentence: str
    nodes: tuple[str, ...]


class HardwareGroup(Frozen):
    """Nodes with nearly the same hardware, and the pool that is proposed for them.

    All `layouts` have the same title and pool. `selector` is empty where the cluster has no other
    group. `is_labelled`: the nodes have the labels of the selector.
    """

    name: str  # of its NodePolicy
    title: str  # for people
    nodes: tuple[str, ...]
    layouts: tuple[Hardware, ...]
    pool: Mapping[str, Any] | None  # as NodePolicies write one; None: no card can be offered
    offered: int = 0  # cards
    left_out: tuple[LeftOutCard, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    is_labelled: bool = True


class Proposal(Frozen):
    """An installation that fits the nodes of a cluster."""

    values: Mapping[str, Any]  # as Helm and `kube-rdma render` take them
    groups: tuple[HardwareGroup, ...]
    rails: int = 0  # networks that need addresses
    cardless: tuple[str, ...] = ()  # nodes without an RDMA card
    unreported: tuple[str, ...] = ()  # nodes without a NodeReport


class RecordedPolicy(Frozen):
    """A NodePolicy of an installation, with the hardware that it was proposed for."""

    name: str
    selector: Mapping[str, str]
    layouts: tuple[Hardware, ...]


class Installed(Frozen):
    """An installation that nodes are compared with; `values` is None where they are not known."""

    policies: tuple[RecordedPolicy, ...]
    values: Mapping[str, Any] | None = None
