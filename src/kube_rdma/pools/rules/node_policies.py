"""Puts together what the NodePolicies of the cluster wish of one node.

Between agent/node/policies, which follows them, and the wishes of the node's own file and
label. Policies add up: each resource is a wish of its own. Of two that name a resource, or both
order rails, the higher priority wins; of equal ones the first by name, and a person is told, for
nobody has decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_rdma.model.pools.node_policy import ClusterNodePolicy, NodeWishes
from kube_rdma.model.pools.pool import PoolSpec


def node_wishes(
    policies: Iterable[ClusterNodePolicy], labels: Iterable[tuple[str, str]]
) -> NodeWishes:
    """What the policies that select a node of these labels wish of it."""
    own = _selecting(policies, frozenset(labels))
    pools: dict[str, tuple[ClusterNodePolicy, PoolSpec]] = {}
    for policy in own:
        for pool in policy.pools:
            pools.setdefault(pool.resource, (policy, pool))
    rails = [policy for policy in own if policy.rails]
    return NodeWishes(
        tuple(pool for _, pool in pools.values()),
        tuple(wish for policy in own for wish in policy.functions),
        rails[0].rails if rails else (),
        (*_overlaps(own, pools), *_rails(rails)),
        tuple(own),
    )


def _selecting(
    policies: Iterable[ClusterNodePolicy], labels: frozenset[tuple[str, str]]
) -> Sequence[ClusterNodePolicy]:
    """Those that select the node, the winner of each pair first."""
    own = (policy for policy in policies if labels.issuperset(policy.selector))
    return sorted(own, key=lambda policy: (-policy.priority, policy.name))


def _overlaps(
    own: Sequence[ClusterNodePolicy], pools: Mapping[str, tuple[ClusterNodePolicy, PoolSpec]]
) -> Iterator[str]:
    for policy in own:
        for pool in policy.pools:
            winner, _ = pools[pool.resource]
            if winner is not policy and winner.priority == policy.priority:
                yield _sentence(winner, policy, f"name the resource {pool.resource}")


def _rails(policies: Sequence[ClusterNodePolicy]) -> Iterator[str]:
    for policy in policies[1:]:
        if policy.priority == policies[0].priority and policy.rails != policies[0].rails:
            yield _sentence(policies[0], policy, "order the rails")


def _sentence(winner: ClusterNodePolicy, policy: ClusterNodePolicy, what: str) -> str:
    return (
        f"NodePolicy {winner.name} and NodePolicy {policy.name} both {what} with priority "
        f"{policy.priority}; {winner.name} counts. Give one of them a higher priority"
    )
