"""The status of a NodePolicy: on how many nodes it is applied, where not, and why.

The controller that leads writes it, by server-side apply of the whole (programs/policy_status).
Lists have an end, and what is worst stands first in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from kube_rdma.api.conditions import Condition, StatusPart, condition
from kube_rdma.api.dialect import Many
from kube_rdma.api.node_policy import NodePolicy
from kube_rdma.api.node_report_models import Outcome, Sentence, Word, cut
from kube_rdma.model.node_policy import PolicyOutcome, PolicyRemark, PolicyRollup

MOST_REMARKS = 16  # a policy may be for thousands of nodes


class RemarkEntry(StatusPart):
    """A node where the policy is not applied, and why."""

    node: Word
    state: Outcome
    message: Sentence


class NodePolicyStatus(StatusPart):
    """The whole. The four numbers add up to `nodes`; `remarks` are about the first nodes alone."""

    observed_generation: int
    nodes: int = 0
    applied: int = 0
    pending: int = 0
    refused: int = 0
    overruled: int = 0
    remarks: Annotated[Many[RemarkEntry], Field(max_length=MOST_REMARKS)] = ()
    conditions: Annotated[Many[Condition], Field(max_length=16)] = ()


class NodePolicyObject(NodePolicy):
    """The whole object."""

    status: NodePolicyStatus | None = None


def node_policy_status(
    old: NodePolicyStatus | None, generation: int, rolled: PolicyRollup | str, now: str
) -> NodePolicyStatus:
    """The status that says what became of a policy, or why no agent understands it.

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
        remarks=tuple(_remarks(rollup.remarks[:MOST_REMARKS])),
        conditions=tuple(_conditions(old.conditions if old else (), refusal, rollup, now)),
    )


def decode(data: bytes) -> NodePolicyStatus:
    """Read a status; ValueError for another shape."""
    return NodePolicyStatus.model_validate_json(data)


def encode(status: NodePolicyStatus) -> bytes:
    """Write a status, numbers of nothing too: they are columns of kubectl."""
    return status.model_dump_json(by_alias=True).encode()


def _remarks(remarks: tuple[PolicyRemark, ...]) -> Iterator[RemarkEntry]:
    for remark in remarks:
        yield RemarkEntry(
            node=remark.node, state=remark.outcome.value, message=cut(remark.sentence)
        )


def _conditions(
    old: tuple[Condition, ...], refusal: str, rollup: PolicyRollup, now: str
) -> Iterator[Condition]:
    """Ready, and its two parts; where a higher priority overrules, all is as people meant it."""
    taken = ("Refused", cut(refusal)) if refusal else ("Accepted", "it is understood")
    applied = _applied(refusal, rollup)
    ready = applied[0] == "Applied"
    words = taken if refusal else applied
    yield condition(old, now, "Ready", ready, words)
    yield condition(old, now, "Accepted", not refusal, taken)
    yield condition(old, now, "Applied", ready, applied)


def _applied(refusal: str, rollup: PolicyRollup) -> tuple[str, str]:
    """Reason and message of the condition Applied."""
    if refusal:
        return ("NotUnderstood", "nodes keep what it said before")
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
