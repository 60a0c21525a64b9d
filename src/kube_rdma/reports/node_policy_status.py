"""The status of a NodePolicy: on how many nodes it is applied, where not, and why.

The controller that leads writes it, by server-side apply of the whole (reports/policies). Its
remarks are limited, the worst first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from kube_base.frozen import replace
from kube_rdma.lib.text.typed import OfPrograms
from kube_rdma.model.kubernetes import Condition, StatusPart, condition, cut, observed, stalled
from kube_rdma.model.pools import PolicyOutcome, PolicyRemark, PolicyRollup
from kube_rdma.pools.documents.node_policy import NodePolicy

MOST_REMARKS = 16  # a policy may be for thousands of nodes


class NodePolicyStatus(StatusPart):
    """The status of a NodePolicy; the counts after `nodes` add up to `nodes`.

    Zeros are written too: they are columns of kubectl.
    """

    observed_generation: int
    """observedGeneration is metadata.generation of the policy that this status is about. -1: no
    controller has looked at the policy.
    """
    nodes: int = 0
    """nodes is the number of nodes that nodeSelector selects."""
    applied: int = 0
    """applied is the number of nodes that do what the policy says."""
    pending: int = 0
    """pending is the number of nodes that still wait, for example for pods to end or for their
    agent to look at the policy.
    """
    refused: int = 0
    """refused is the number of nodes where the policy is impossible, or where another policy of the
    same priority counts.
    """
    overruled: int = 0
    """overruled is the number of nodes where a policy of a higher priority or the node's own file
    counts.
    """
    remarks: Annotated[tuple[PolicyRemark, ...], Meta(max_length=MOST_REMARKS)] = ()
    """remarks say for the first 16 nodes where the policy is not applied why it is not. Refused
    nodes come first.
    """
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16)] = ()
    """conditions are Accepted (the policy is understood), Applied (it selects nodes, and no node
    refuses or waits) and Ready (both). A policy that is not understood has Stalled too.
    """


class NodePolicyObject(NodePolicy):
    """NodePolicy defines which cards nodes offer to pods, and under which resource names."""

    status: OfPrograms[NodePolicyStatus] | None = None
    """status says on how many nodes the policy is applied, where not, and why. kube-rdma writes it.
    """


def node_policy_status(
    old: NodePolicyStatus | None, generation: int, rolled: PolicyRollup | str, now: str
) -> NodePolicyStatus:
    """Return the status of a policy from its rollup or from the reason why it is refused.

    `now` (RFC 3339) is the time of conditions that change.
    """
    refusal, rollup = (rolled, PolicyRollup()) if isinstance(rolled, str) else ("", rolled)
    return NodePolicyStatus(
        observed_generation=generation,
        nodes=rollup.nodes,
        applied=rollup.count(PolicyOutcome.APPLIED),
        pending=rollup.count(PolicyOutcome.PENDING),
        refused=rollup.count(PolicyOutcome.REFUSED),
        overruled=rollup.count(PolicyOutcome.OVERRULED),
        remarks=tuple(
            replace(each, sentence=cut(each.sentence)) for each in rollup.remarks[:MOST_REMARKS]
        ),
        conditions=observed(
            _conditions(old.conditions if old else (), refusal, rollup, now), generation
        ),
    )


def _conditions(
    old: tuple[Condition, ...], refusal: str, rollup: PolicyRollup, now: str
) -> Iterator[Condition]:
    """Yield the conditions Ready, Accepted and Applied, and Stalled where only a new spec helps.

    A policy that others overrule is Ready, for users wanted that.
    """
    taken = ("Refused", cut(refusal)) if refusal else ("Accepted", "it is understood")
    applied = _applied(refusal, rollup)
    ready = applied[0] == "Applied"
    words = taken if refusal else applied
    yield condition(old, now, "Ready", ready, words)
    yield condition(old, now, "Accepted", not refusal, taken)
    yield condition(old, now, "Applied", ready, applied)
    yield from stalled(old, now, taken if refusal else None)


def _applied(refusal: str, rollup: PolicyRollup) -> tuple[str, str]:
    """Return reason and message of the condition Applied of a policy."""
    if refusal:
        return ("NotUnderstood", "nodes keep its previous version")
    if not rollup.nodes:
        return ("NoNodeMatches", "no node has all labels of its nodeSelector")
    for outcome, reason in (
        (PolicyOutcome.REFUSED, "RefusedByNodes"),
        (PolicyOutcome.PENDING, "WaitsForNodes"),
    ):
        if count := rollup.count(outcome):
            first = next(each for each in rollup.remarks if each.outcome is outcome)
            text = f"{outcome} on {count} of {rollup.nodes} nodes. {first.node}: {first.sentence}"
            return (reason, cut(text))
    overruled = rollup.count(PolicyOutcome.OVERRULED)
    words = f"applied on {rollup.count(PolicyOutcome.APPLIED)} of {rollup.nodes} nodes"
    return ("Applied", f"{words}, overruled on {overruled}" if overruled else words)
