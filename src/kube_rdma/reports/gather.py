"""Reads what `kube-rdma status` judges: each kind by itself, so that one missing right hides one.

cli/status runs it. The API server alone is asked, never a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kube_base.errors import Refused
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.reports import ClusterFacts, ProgramPod, ProgramRole, Workload
from kube_rdma.reports import cluster as objects
from kube_rdma.reports.cluster import SeenWorkload
from kube_rdma.reports.rules.cluster import program_role, says

T = TypeVar("T")


async def take(cluster: Cluster) -> ClusterFacts:
    """Read all of it; raise Unavailable without an answer."""
    reader = PartReader(hidden_by=(Refused,))
    missing: list[str] = []

    async def part(what: str, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        async def installed() -> T | None:
            try:
                return await read(cluster)
            except NotInstalled:
                missing.append(what)
                return None

        return await reader.asked(what, installed)

    nodes = await part("nodes", objects.nodes)
    seen = await part("DaemonSets and Deployments", objects.workloads)
    ours = [(each, role) for each in seen or () if (role := program_role(each.template))]
    workloads = tuple(_workload(each, role) for each, role in ours)
    reporting = frozenset(each.namespace for each in workloads if each.reports)
    pods: tuple[ProgramPod, ...] | None = None
    if seen is not None:

        async def of_programs(cluster: Cluster) -> tuple[ProgramPod, ...]:
            lists = [await objects.pods_of(cluster, each) for each, _ in ours]
            return tuple(pod for some in lists for pod in some)

        pods = await part("pods of agents and controllers", of_programs)
    return ClusterFacts(
        nodes=nodes,
        workloads=None if seen is None else workloads,
        pods=pods,
        reports=await part("NodeReport", objects.reports),
        policies=await part("NicClusterPolicy", objects.policies),
        node_policies=await part("NodePolicy", objects.node_policies),
        pools=await part("IPPool", objects.pools),
        networks=await part("NetworkAttachmentDefinition", objects.definitions),
        waiting=await part("pods that wait", objects.waiting),
        events=await part("Events", objects.events),
        guarded=await part(
            "ValidatingAdmissionPolicyBinding", partial(objects.guarded, namespaces=reporting)
        ),
        missing=tuple(missing),
        not_seen=tuple(reader.not_seen),
    )


def _workload(seen: SeenWorkload, role: ProgramRole) -> Workload:
    words, counts = seen.template.words, seen.counts
    return Workload(
        role,
        seen.namespace,
        seen.name,
        counts.desired,
        counts.ready,
        counts.updated,
        seen.template.image,
        networks=says(words, "--networks"),
        reports=says(words, "--role", "node"),
    )
