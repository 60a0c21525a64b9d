"""What a NodePolicy of the cluster wishes of the nodes that it selects, and what became of it.

pools/documents/node_policy reads one, pools/rules/node_policies puts those of a node together. What
became of them the node's report says, reports/rules/policies adds that up over the nodes.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen, field
from kube_rdma.model.conditions import Sentence, SparsePart, StatusPart, Word
from kube_rdma.model.functions.function import FunctionsWish
from kube_rdma.model.pools.pool import PoolSpec


class ClusterNodePolicy(Frozen):
    """One policy. Its selector is a set of labels that a node has to have, all of them."""

    name: str
    selector: tuple[tuple[str, str], ...]
    priority: int
    pools: tuple[PoolSpec, ...]
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()
    generation: int = 0  # of the object; 0 for one that no API server has


class NodeWishes(Frozen):
    """What the policies of one node come to; `overlaps` are sentences about those that disagree.

    `policies` are those that select the node, the one that wins over the others first.
    """

    pools: tuple[PoolSpec, ...] = ()
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    policies: tuple[ClusterNodePolicy, ...] = ()


class PolicyOutcome(StrEnum):
    """What became of a policy on one node.

    Overruled: a policy of a higher priority, or the node's own file, says otherwise.
    """

    APPLIED = "applied"
    PENDING = "pending"
    REFUSED = "refused"
    OVERRULED = "overruled"


class PolicyAtNode(SparsePart):
    """A NodePolicy that selects the node, as the agent has seen it, and what became of it."""

    name: Word
    """name is the name of the NodePolicy."""
    generation: int
    """generation is the metadata.generation of the policy that the agent has seen."""
    outcome: PolicyOutcome = field(name="state")
    """state is applied, pending, refused or overruled. pending: it waits. refused: the node cannot
    do it, or a policy of the same priority contradicts it. overruled: a policy of higher priority,
    or the node's own file, says otherwise.
    """
    sentence: Sentence = field(name="message", default="")
    """message is why the policy is not applied. Left out: it is applied."""


class PolicyRemark(StatusPart):
    """A node where the policy is not applied, and why."""

    node: Word
    """node is the name of the node."""
    outcome: PolicyOutcome = field(name="state")
    """state is pending, refused or overruled, as the fields of these names say."""
    sentence: Sentence = field(name="message")
    """message says why the policy is not applied on the node."""


class PolicyRollup(Frozen):
    """A policy over its nodes: how many there are of each outcome, and why, worst first."""

    counts: tuple[tuple[PolicyOutcome, int], ...] = ()
    remarks: tuple[PolicyRemark, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes the policy selects."""
        return sum(count for _, count in self.counts)

    def count(self, outcome: PolicyOutcome) -> int:
        """On how many of them this became of it."""
        return dict(self.counts).get(outcome, 0)
