"""Reads at the API server the nodes with their reports, and the policies of an installation."""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_client.objects import Cluster
from kube_rdma.model.admission import USUAL
from kube_rdma.model.discover import Hardware, RecordedPolicy, SeenNode
from kube_rdma.model.pools import HARDWARE
from kube_rdma.reports import cluster as objects


async def seen_nodes(cluster: Cluster) -> tuple[tuple[SeenNode, ...], tuple[str, ...]]:
    """Return the nodes that have a NodeReport, and the names of those that have none."""
    reports = await objects.reports(cluster)
    nodes = await objects.nodes(cluster)
    seen = (
        SeenNode(
            node.name,
            reports[node.name],
            dict(node.labels),
            sum(count for name, count in node.allocatable if name in USUAL.gpus),
            in_cluster=True,
        )
        for node in nodes
        if node.name in reports
    )
    return tuple(seen), tuple(node.name for node in nodes if node.name not in reports)


async def recorded_policies(cluster: Cluster) -> tuple[RecordedPolicy, ...]:
    """Return the cluster's NodePolicies that record hardware."""
    policies = []
    for stored in await cluster.list(objects.NODE_POLICY_STATUS):
        policy = objects.seen_policy(stored).policy
        selector = dict(policy.selector) if policy else {}
        policies.append(recorded_policy(stored.name, selector, dict(stored.annotations)))
    return tuple(filter(None, policies))


def recorded_policy(
    name: str, selector: Mapping[str, str], annotations: Mapping[str, object]
) -> RecordedPolicy | None:
    """Return a NodePolicy with its recorded hardware; None for one without.

    Raise Refused where the annotation is no record.
    """
    if HARDWARE not in annotations:
        return None
    try:
        return RecordedPolicy(
            name, selector, decoded(str(annotations[HARDWARE]), tuple[Hardware, ...])
        )
    except Undecodable as error:
        raise Refused(
            f"annotation {HARDWARE}: {error.why}",
            remedy="Take the annotation out, or apply the policy again that discover proposes",
            where=f"NodePolicy {name}",
        ) from error
