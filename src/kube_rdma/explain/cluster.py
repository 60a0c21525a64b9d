"""Reads at the API server what decides about a pod or a claim, for `kube-rdma explain`.

Each function needs the right to get or list the kinds that it requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from shlex import quote
from typing import Any, TypeAlias

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_client.kinds import EVERYWHERE, Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, extended_requests, status_of
from kube_rdma.adapters.cluster.kinds.resource_api import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    device_class,
    resource_claim,
    resource_slice,
)
from kube_rdma.attach.documents import network_status
from kube_rdma.claims.cluster import taint_rules
from kube_rdma.model.admission import OfferedPool
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import ClaimNode, ClaimWorld
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import ClusterNodePolicy, PoolSpec
from kube_rdma.model.reports import NodeReport
from kube_rdma.pools.kind import NODE_POLICY, policy_of

Keep: TypeAlias = Callable[[str, KubeError], None]
"""A function that notes the name of a part that was not seen, and the error that hid it."""


class OtherPods(Frozen):
    """The resources and cards that the other pods of a node hold."""

    held: tuple[tuple[str, int], ...] = ()  # by resource the shares that they ask for
    cards: tuple[CardId, ...] = ()  # one for each interface of their status annotations


async def others_on(cluster: Cluster, node: str, but: PodName | None = None) -> OtherPods:
    """Return the resources and the cards that other unfinished pods of a node hold.

    The pod `but` is not counted. A quantity that Kubernetes would not take counts 0.
    """
    held: Counter[str] = Counter()
    cards: list[CardId] = []
    for pod in await cluster.list(FULL_POD, Where(fields=f"spec.nodeName={node}")):
        own = but is not None and (pod.namespace, pod.name) == (but.namespace, but.name)
        if own or status_of(pod).is_over:
            continue
        held.update(extended_requests(pod.spec))
        status = network_status.own_attached(pod.annotation(network_status.OWN_ANNOTATION) or "")
        cards += (one.card for one in status if one.card)
    return OtherPods(tuple(sorted(held.items())), tuple(cards))


async def read_node(cluster: Cluster, name: str) -> NodeState | None:
    """Return the state of the Node object of this name, None where there is none."""
    stored = await cluster.get(NODE, name)
    return node_state(stored) if stored else None


def unknown_node(name: str) -> Refused:
    """Return the error for a node that does not exist."""
    return Refused(
        f"there is no node {name}", remedy="Name one of kubectl get nodes", where="--node"
    )


async def all_nodes(cluster: Cluster) -> tuple[NodeState, ...]:
    """Return all nodes of the cluster."""
    return tuple(map(node_state, await cluster.list(NODE)))


async def read_report(cluster: Cluster, name: str) -> NodeReport:
    """Return the NodeReport of a node; raise Unavailable without one."""
    stored = await cluster.get(NODE_REPORT, name)
    if stored is None or stored.status is None:
        raise Unavailable(f"there is no NodeReport {name}, which an agent with role node writes")
    return stored.status


async def offered_pools(cluster: Cluster, keep: Keep) -> tuple[OfferedPool, ...]:
    """Return the pools of all NodePolicies, each with its node selector.

    The pools of a policy with faults are left out, and `keep` is called with the policy's error.
    """
    policies = _policies((await cluster.see(NODE_POLICY)).objects, keep)
    return tuple(OfferedPool(spec, one.selector) for one in policies for spec in one.pools)


async def reported_specs(cluster: Cluster, report: NodeReport, keep: Keep) -> tuple[PoolSpec, ...]:
    """Return the pools of the NodePolicies that a node's report names.

    A report does not repeat all of their settings. `keep` is as in `offered_pools`.
    """
    read = [await cluster.get(NODE_POLICY, policy.name) for policy in report.policies]
    policies = _policies(filter(None, read), keep)
    return tuple(spec for one in policies for spec in one.pools)


def _policies(stored: Iterable[Stored[bytes, Any]], keep: Keep) -> Iterator[ClusterNodePolicy]:
    for one in stored:
        try:
            yield policy_of(one)
        except Refused as error:
            keep(f"the pools of NodePolicy {one.name}", error)


async def claim_world(cluster: Cluster, namespace: str, name: str, node: str | None) -> ClaimWorld:
    """Return a ResourceClaim and all that its allocation depends on, for one node or all nodes.

    It depends on slices, rules of taints, classes, other claims and nodes; an allocated claim comes
    alone. Raise Refused if the claim does not exist, or if it waits and the node does not exist.
    """
    stored = await cluster.get(RESOURCE_CLAIM, name, namespace)
    if stored is None:
        raise Refused(
            f"there is no claim {namespace}/{name}",
            remedy=f"Name one of kubectl -n {quote(namespace)} get resourceclaims",
        )
    claim = resource_claim(stored)
    if claim.allocated is not None:
        return ClaimWorld(claim)
    slices = [resource_slice(one) for one in await cluster.list(RESOURCE_SLICE)]
    classes = [device_class(one) for one in await cluster.list(DEVICE_CLASS)]
    others = [resource_claim(one) for one in await cluster.list(RESOURCE_CLAIM)]
    nodes = await cluster.list(NODE, Where(name=node) if node else EVERYWHERE)
    if node and not nodes:
        raise unknown_node(node)
    return ClaimWorld(
        claim=claim,
        nodes=tuple(ClaimNode(one.name, dict(one.labels)) for one in nodes),
        classes=tuple(classes),
        slices=tuple(slices),
        others=tuple(one for one in others if one.allocated is not None),
        taints=await taint_rules(cluster),
    )
