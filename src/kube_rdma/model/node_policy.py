"""What a NodePolicy of the cluster wishes of the nodes that it selects.

api/node_policy reads one, rules/pools/node_policies puts those of a node together.
"""

from __future__ import annotations

from kube_rdma.model.frozen import Frozen
from kube_rdma.model.function import FunctionsWish
from kube_rdma.model.pool import PoolSpec


class ClusterNodePolicy(Frozen):
    """One policy. Its selector is a set of labels that a node has to have, all of them."""

    name: str
    selector: tuple[tuple[str, str], ...]
    priority: int
    pools: tuple[PoolSpec, ...]
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()


class NodeWishes(Frozen):
    """What the policies of one node come to; `overlaps` are sentences about those that disagree."""

    pools: tuple[PoolSpec, ...] = ()
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
