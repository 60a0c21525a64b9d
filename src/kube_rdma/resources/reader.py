"""Reads what `kube-rdma resources` shows: each kind by itself, with the rights of who asks.

cli/resources runs it. A right that is missing hides one part, which the view names. The
API server alone is asked, never a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kube_base.errors import Refused
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.reports import ProgramRole
from kube_rdma.model.resources import AuthorFacts, NamedNetwork
from kube_rdma.reports import cluster as reports
from kube_rdma.reports.rules.cluster import everybodys, program_role
from kube_rdma.resources import cluster as objects

ROLE = "kube-rdma-view"
_FORBIDDEN = "the API server forbids to "
_SHARED = ("default", "kube-system")  # whose networks pods may name where agents isolate

T = TypeVar("T")


async def read(cluster: Cluster, namespace: str) -> AuthorFacts:
    """Return the facts for pods of a namespace; raise Unavailable without an answer."""
    look = _AuthorReader(cluster)
    return AuthorFacts(
        namespace,
        own_pods=await look.at(
            f"what pods of {namespace} hold", partial(objects.pods, namespace=namespace)
        ),
        quotas=await look.at(
            f"the quotas of {namespace}", partial(objects.quotas, namespace=namespace)
        ),
        networks=await _networks(look, namespace),
        everybodys=await look.at(
            "whether networks are kept to their namespaces", everybodys_of_agents
        ),
        reports=await look.at("the modes and healthy shares of nodes", reports.reports),
        nodes=await look.at("the shares that nodes list", reports.nodes),
        pods=await look.at("what is free, which pods of all namespaces tell", objects.pods),
        classes=await look.at("the classes of claims", objects.classes),
        ip_pools=await look.at("the free addresses of networks", objects.ip_pools),
        not_seen=tuple(look.reader.not_seen),
    )


class _AuthorReader:
    """A cluster, and what of it could not be seen."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.reader = PartReader(hidden_by=(Refused,), worded=_why)

    async def at(self, what: str, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """Return what `read` returns; None where it is forbidden or there is no such kind."""
        return await self.reader.asked(what, partial(self.of_kind, read))

    async def of_kind(self, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """Return the same, and Refused is raised."""
        try:
            return await read(self._cluster)
        except NotInstalled:
            return None


async def _networks(look: _AuthorReader, namespace: str) -> tuple[NamedNetwork, ...] | None:
    """Return the networks of all namespaces, else of those that may be read."""
    try:
        return await look.of_kind(objects.networks)
    except Refused as error:
        look.reader.keep("the networks of other namespaces", error)
    networks = await look.at(
        f"the networks of {namespace}", partial(objects.networks, namespace=namespace)
    )
    for shared in _SHARED:
        if shared != namespace:
            read = partial(objects.networks, namespace=shared)
            with suppress(Refused):  # it is said once, of all other namespaces
                networks = (*(networks or ()), *(await look.of_kind(read) or ()))
    return networks


async def everybodys_of_agents(cluster: Cluster) -> tuple[str, ...] | None:
    """Return the namespaces whose networks all pods may name, by the strictest of the agents.

    A pod may come to any of them.
    """
    agents = [
        everybodys(one.template.words)
        for one in await reports.workloads(cluster)
        if program_role(one.template) is ProgramRole.AGENT
    ]
    kept = [set(names) for names in agents if names is not None]
    return tuple(sorted(set.intersection(*kept))) if kept else None


def _why(error: Exception) -> str:
    """Return one sentence for who lacks a right, and cannot give it to himself."""
    problem = error.problem if isinstance(error, Refused) else str(error)
    if not problem.startswith(_FORBIDDEN):
        return problem
    act = problem.partition(": ")[0].removeprefix(_FORBIDDEN)
    return f"You may not {act}; an administrator can bind the ClusterRole {ROLE} to you"
