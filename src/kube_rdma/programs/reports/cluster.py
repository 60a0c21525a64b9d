"""Reads what `kube-rdma status` judges: each kind by itself, so that one missing right hides one.

programs/cli/status runs it. The API server alone is asked, never a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kube_base.errors import Refused
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import reports as objects
from kube_rdma.adapters.cluster.reports import SeenWorkload
from kube_rdma.model.reports.cluster import (
    ClusterFacts,
    ProgramPod,
    ProgramRole,
    Unread,
    Workload,
)
from kube_rdma.rules.reports.programs import program_role, says

T = TypeVar("T")

# Without these nothing can be told of a cluster's health.
_ESSENTIAL = frozenset(
    {"nodes", "DaemonSets and Deployments", "pods of agents and controllers", "NodeReport"}
)


class _ClusterReader:
    """One look at a cluster: what was read, and what could not be."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.unread: list[Unread] = []
        self.missing: list[str] = []

    async def part(self, what: str, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """What `read` returns; None where it was refused, which is kept. Unavailable is raised."""
        try:
            return await read(self._cluster)
        except NotInstalled:
            self.missing.append(what)
        except Refused as error:
            self.unread.append(Unread(what, str(error), what in _ESSENTIAL))
        return None


async def take(cluster: Cluster) -> ClusterFacts:
    """Read all of it; raise Unavailable without an answer."""
    reader = _ClusterReader(cluster)
    nodes = await reader.part("nodes", objects.nodes)
    seen = await reader.part("DaemonSets and Deployments", objects.workloads)
    ours = [(each, role) for each in seen or () if (role := program_role(each.template))]
    workloads = tuple(_workload(each, role) for each, role in ours)
    reporting = frozenset(each.namespace for each in workloads if each.reports)
    pods: tuple[ProgramPod, ...] | None = None
    if seen is not None:

        async def of_programs(cluster: Cluster) -> tuple[ProgramPod, ...]:
            lists = [await objects.pods_of(cluster, each) for each, _ in ours]
            return tuple(pod for some in lists for pod in some)

        pods = await reader.part("pods of agents and controllers", of_programs)
    return ClusterFacts(
        nodes=nodes,
        workloads=None if seen is None else workloads,
        pods=pods,
        reports=await reader.part("NodeReport", objects.reports),
        policies=await reader.part("NicClusterPolicy", objects.policies),
        node_policies=await reader.part("NodePolicy", objects.node_policies),
        pools=await reader.part("IPPool", objects.pools),
        waiting=await reader.part("pods that wait", objects.waiting),
        events=await reader.part("Events", objects.events),
        guarded=await reader.part(
            "ValidatingAdmissionPolicyBinding", partial(objects.guarded, namespaces=reporting)
        ),
        missing=tuple(reader.missing),
        unread=tuple(reader.unread),
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
