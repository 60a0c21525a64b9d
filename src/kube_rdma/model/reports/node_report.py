"""What one node says of itself: its cards, its pools, what waits and what is wrong.

rules/reports/node_report makes it of each look of the agent, api/reports/node_report writes it
down.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.pools.node_policy import PolicyAtNode


class ReportedPort(Frozen):
    """One port of an RDMA device; states and link layers are spelled as the kernel does."""

    device: str
    number: int
    state: str
    link_layer: str
    rate_gbps: float | None = None
    netdev: str | None = None


class ReportedCard(Frozen):
    """One card; `reasons` are empty exactly when it can be given away.

    `resources` have it; a pool had one that is `gone`, without a word of which. `carries` says what
    the node itself needs its interfaces for, `addresses` are the node's on them.
    """

    id: CardId
    name: str
    resources: tuple[str, ...] = ()
    numa_node: int | None = None
    ports: tuple[ReportedPort, ...] = ()
    reasons: tuple[str, ...] = ()
    gone: bool = False
    carries: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class ReportedPool(Frozen):
    """A resource as the kubelet is told of it."""

    resource: str
    mode: str
    shares: int
    healthy: int
    cards: int


class PendingMode(Frozen):
    """A resource that is to be in another mode; `sentence` says until what it waits."""

    resource: str
    mode: str
    sentence: str


class NodeReport(Frozen):
    """One node at one moment.

    `rejected` are RDMA cards that no pool has and nobody could use. `omitted` cards had no room.
    `refusals` are sentences about configuration that is not understood, `troubles` about the rest.
    """

    version: str  # of the agent
    cards: tuple[ReportedCard, ...] = ()
    rejected: tuple[ReportedCard, ...] = ()
    pools: tuple[ReportedPool, ...] = ()
    pending: tuple[PendingMode, ...] = ()
    refusals: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    omitted: int = 0
    policies: tuple[PolicyAtNode, ...] = ()  # NodePolicies that select the node

    @property
    def pooled(self) -> tuple[ReportedCard, ...]:
        """The cards that pools have or had."""
        return tuple(card for card in self.cards if card.resources or card.gone)

    @property
    def ill(self) -> tuple[ReportedCard, ...]:
        """Those of them that cannot be given away."""
        return tuple(card for card in self.pooled if card.reasons)
