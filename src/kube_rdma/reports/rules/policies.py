"""Judges the cluster's NodePolicies: on one node, and over all nodes that a policy selects.

An agent asks `at_node` for its report; the controller that leads asks `rollup`, which reads those
reports, and writes the policy's status. A node whose report knows an older generation, or has none
at all, is pending: nobody can tell more about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_rdma.model import pools

Labels = frozenset[tuple[str, str]]
Sourced = Iterable[tuple[str, str]]
"""Sentences, each behind the source of the pool that it is about."""

_WORST_FIRST = (
    pools.PolicyOutcome.REFUSED,
    pools.PolicyOutcome.PENDING,
    pools.PolicyOutcome.OVERRULED,
    pools.PolicyOutcome.APPLIED,
)
_NO_REPORT = "no agent of this node has written a report"
_NOT_SEEN = "the agent of this node has not looked at it yet"


def at_node(
    policies: Sequence[pools.ClusterNodePolicy],
    taken: Mapping[str, str],
    refused: Sourced,
    waits: Sourced,
) -> tuple[pools.PolicyAtNode, ...]:
    """Return the worst outcome of each policy on a node, with the first sentence about it.

    `taken` says by resource the source of the pool that the node has, or waits to get.
    """
    priorities = {pool.source: each.priority for each in policies for pool in each.pools}
    refusals, pending = tuple(refused), tuple(waits)
    return tuple(_at_node(policy, priorities, taken, refusals, pending) for policy in policies)


def rollup(
    policy: pools.ClusterNodePolicy,
    nodes: Mapping[str, Labels],
    reports: Mapping[str, Sequence[pools.PolicyAtNode]],
) -> pools.PolicyRollup:
    """Count a policy's outcomes on the nodes that it selects; both mappings are by node."""
    outcomes = [
        _remark(policy, name, reports.get(name))
        for name, labels in sorted(nodes.items())
        if labels.issuperset(policy.selector)
    ]
    counts = [sum(each.outcome is outcome for each in outcomes) for outcome in _WORST_FIRST]
    return pools.PolicyRollup(
        tuple(zip(_WORST_FIRST, counts, strict=True)),
        tuple(
            each
            for outcome in _WORST_FIRST
            for each in outcomes
            if each.outcome is outcome is not pools.PolicyOutcome.APPLIED
        ),
    )


def _at_node(
    policy: pools.ClusterNodePolicy,
    priorities: Mapping[str, int],
    taken: Mapping[str, str],
    refused: Sequence[tuple[str, str]],
    waits: Sequence[tuple[str, str]],
) -> pools.PolicyAtNode:
    own = {pool.source for pool in policy.pools} | {each.source for each in policy.functions}
    lost = [
        (pool, taken[pool.resource])
        for pool in policy.pools
        if taken.get(pool.resource, pool.source) != pool.source
    ]
    sentences = {
        pools.PolicyOutcome.REFUSED: [
            *(sentence for source, sentence in refused if source in own),
            *(
                f"{pool.resource} is as {source} says, with the same priority; "
                "give one of the two a higher one"
                for pool, source in lost
                if priorities.get(source) == policy.priority
            ),
        ],
        pools.PolicyOutcome.PENDING: [
            *(sentence for source, sentence in waits if source in own),
            *(
                f"{pool.resource} is not advertised yet"
                for pool in policy.pools
                if pool.resource not in taken
            ),
        ],
        pools.PolicyOutcome.OVERRULED: [
            f"{pool.resource} is as {source} says" for pool, source in lost
        ],
    }
    for outcome, some in sentences.items():
        if some:
            return pools.PolicyAtNode(policy.name, policy.generation, outcome, some[0])
    return pools.PolicyAtNode(policy.name, policy.generation, pools.PolicyOutcome.APPLIED)


def _remark(
    policy: pools.ClusterNodePolicy, node: str, report: Sequence[pools.PolicyAtNode] | None
) -> pools.PolicyRemark:
    """Return a policy's outcome on one node; it is pending without a report on this generation."""
    if report is None:
        return pools.PolicyRemark(node, pools.PolicyOutcome.PENDING, _NO_REPORT)
    seen = next((each for each in report if each.name == policy.name), None)
    if seen is None or seen.generation != policy.generation:
        return pools.PolicyRemark(node, pools.PolicyOutcome.PENDING, _NOT_SEEN)
    return pools.PolicyRemark(node, seen.outcome, seen.sentence)
