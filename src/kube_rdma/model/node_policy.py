"""What a NodePolicy of the cluster wishes of the nodes that it selects.

api/node_policy reads one, rules/pools/node_policies puts those of a node together.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube_rdma.model.function import FunctionsWish
from kube_rdma.model.pool import PoolSpec


@dataclass(frozen=True, slots=True)
class ClusterNodePolicy:
    """One policy. Its selector is a set of labels that a node has to have, all of them."""

    name: str
    selector: tuple[tuple[str, str], ...]
    priority: int
    pools: tuple[PoolSpec, ...]
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeWishes:
    """What the policies of one node come to; `overlaps` are sentences about those that disagree."""

    pools: tuple[PoolSpec, ...] = ()
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
