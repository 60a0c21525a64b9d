"""Reads what `kube-rdma resources` shows: each kind by itself, with the rights of whoever asks.

cli/resources runs it. A right that is missing hides one part, which the view names. The API server
alone is asked, never a node. Each function below `read` asks for one kind (`agents` for two);
authors may have rights in a single namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_client.errors import NotInstalled
from kube_client.kinds import ObjectCodec, ObjectKind, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import whole
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, extended_requests, status_of
from kube_rdma.adapters.cluster.kinds.resource_api import DEVICE_CLASS
from kube_rdma.admission.rules.shares import uncounted
from kube_rdma.ipam.cluster import IP_POOL_TEXT, pool_of_text
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model import resources
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.reports import ProgramRole
from kube_rdma.names.cluster import published_names
from kube_rdma.reports import cluster as reports
from kube_rdma.reports.rules.cluster import global_namespaces, has_preflight, programs

ROLE = "kube-rdma-view"
_FORBIDDEN = "the API server forbids to "
_REQUESTS = "requests."  # before the name of a resource in a ResourceQuota
_SHARED = ("default", "kube-system")  # whose networks pods may name where agents isolate

T = TypeVar("T")


async def read(cluster: Cluster, namespace: str) -> resources.AuthorFacts:
    """Read what pods of a namespace may use; raise Unavailable if the server is silent."""
    look = _AuthorReader(cluster)
    return resources.AuthorFacts(
        namespace,
        own_pods=await look.at(
            f"what pods of {namespace} hold", partial(pods, namespace=namespace)
        ),
        quotas=await look.at(f"the quotas of {namespace}", partial(quotas, namespace=namespace)),
        networks=await _networks(look, namespace),
        agents=await look.at("whether networks are kept to their namespaces", agents),
        reports=await look.at("the modes and healthy shares of nodes", reports.reports),
        nodes=await look.at("the shares that nodes list", reports.nodes),
        pods=await look.at("what is free, which pods of all namespaces tell", pods),
        classes=await look.at("the classes of claims", classes),
        ip_pools=await look.at("the free addresses of networks", ip_pools),
        names=await look.at(
            "the names of pods' addresses", partial(published_names, namespace=namespace)
        ),
        not_seen=tuple(look.reader.not_seen),
    )


class _AuthorReader:
    """A reader of a cluster that notes which parts it could not see."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.reader = PartReader(hidden_by=(Refused,), worded=_why)

    async def at(self, what: str, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """Return what `read` returns; None if it is forbidden or its kind is not installed."""
        return await self.reader.asked(what, partial(self.of_kind, read))

    async def of_kind(self, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """Return what `read` returns, None if its kind is not installed; raise Refused."""
        try:
            return await read(self._cluster)
        except NotInstalled:
            return None


async def _networks(
    look: _AuthorReader, namespace: str
) -> tuple[resources.NamedNetwork, ...] | None:
    """Return the networks of all namespaces; without that right, of the author's and _SHARED."""
    try:
        return await look.of_kind(networks)
    except Refused as error:
        look.reader.keep("the networks of other namespaces", error)
    found = await look.at(f"the networks of {namespace}", partial(networks, namespace=namespace))
    for shared in _SHARED:
        if shared != namespace:
            of_shared = partial(networks, namespace=shared)
            with suppress(Refused):  # it is said once, of all other namespaces
                found = (*(found or ()), *(await look.of_kind(of_shared) or ()))
    return found


async def agents(cluster: Cluster) -> resources.AgentFacts:
    """Return how agents isolate namespaces, whether all attach networks, and the image of one.

    A pod may run on any node, so the strictest agent counts. Of a controller it is read whether
    gangs can measure before they start.
    """
    found = programs(await reports.workloads(cluster))
    found_agents = [one for one in found if one.role is ProgramRole.AGENT]
    every = [global_namespaces(one.words) for one in found_agents]
    kept = [set(names) for names in every if names is not None]
    return resources.AgentFacts(
        tuple(sorted(set.intersection(*kept))) if kept else None,
        found_agents[0].image if found_agents else "",
        bool(found_agents) and all(one.networks for one in found_agents),
        any(map(has_preflight, found)),
    )


def _why(error: Exception) -> str:
    """Return an error's sentence; for a missing right it names the ClusterRole to bind."""
    problem = error.problem if isinstance(error, Refused) else str(error)
    if not problem.startswith(_FORBIDDEN):
        return problem
    act = problem.partition(": ")[0].removeprefix(_FORBIDDEN)
    return f"You may not {act}; an administrator can bind the ClusterRole {ROLE} to you"


class QuotaStatus(msgspec.Struct, frozen=True):
    """The status of a ResourceQuota: quantities by the name of the counted resource."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


_NO_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)
_STATUS = ObjectCodec.of(QuotaStatus, writes=False)
QUOTA = ObjectKind(
    "", "v1", "ResourceQuota", "resourcequotas", namespaced=True, spec=_NO_SPEC, status=_STATUS
)


class _Addresses(msgspec.Struct, frozen=True):
    pool: str = ""
    pools: dict[str, str] = {}


class _NamedPlugin(msgspec.Struct, frozen=True):
    ipam: _Addresses = _Addresses()
    plugins: tuple[_NamedPlugin, ...] = ()


async def pods(cluster: Cluster, namespace: str = "") -> tuple[resources.HeldShares, ...]:
    """Return the shares that pods hold or wait for, in one namespace or in all."""
    stored = await cluster.list(FULL_POD, Where(namespace=namespace))
    return tuple(
        resources.HeldShares(pod.namespace, pod.spec.node_name, resource, count)
        for pod in stored
        if not status_of(pod).is_over
        for resource, count in extended_requests(pod.spec).items()
    )


async def quotas(cluster: Cluster, namespace: str) -> tuple[resources.NamespaceQuota, ...]:
    """Return a namespace's limits of extended resources, as its ResourceQuotas set them."""
    return tuple(
        resources.NamespaceQuota(
            (uncounted(name) or name).removeprefix(_REQUESTS),
            whole(hard),
            whole(one.status.used.get(name, "0")),
            f"{name} of ResourceQuota {one.name}" if uncounted(name) else "",
        )
        for one in await cluster.list(QUOTA, Where(namespace=namespace))
        if one.status
        for name, hard in one.status.hard.items()
        if "/" in name and (name in one.status.used or uncounted(name))
    )


async def networks(cluster: Cluster, namespace: str = "") -> tuple[resources.NamedNetwork, ...]:
    """Return the networks of a namespace, or of all of them."""
    return tuple(
        resources.NamedNetwork(
            one.namespace, one.name, one.annotation(RESOURCE) or "", named_pools(one.spec.config)
        )
        for one in await cluster.list(DEFINITION, Where(namespace=namespace))
    )


async def classes(cluster: Cluster) -> tuple[resources.CardClass, ...]:
    """Return the DeviceClasses with a selector that names kube-rdma's DRA driver."""
    return tuple(
        resources.CardClass(one.name, one.spec.extended_resource_name or "")
        for one in await cluster.list(DEVICE_CLASS)
        if any(DRIVER in selector.cel.expression for selector in one.spec.selectors)
    )


async def ip_pools(cluster: Cluster) -> tuple[resources.NetworkPool, ...]:
    """Return the IPPools; one with an invalid spec has no namespaces."""
    pools = []
    for stored in (await cluster.see(IP_POOL_TEXT)).objects:
        free = stored.status.free if stored.status else ""
        try:
            namespaces = pool_of_text(stored).namespaces
        except Refused:  # the controller names what is wrong
            namespaces = ()
        pools.append(resources.NetworkPool(stored.name, free, tuple(map(str, namespaces))))
    return tuple(pools)


def named_pools(config: str) -> tuple[str, ...]:
    """Return the IPPools that a CNI configuration names; none if it has another form."""
    try:
        plugin = decoded(config, _NamedPlugin)
    except Undecodable:
        return ()
    named = [one.ipam for one in (plugin, *plugin.plugins)]
    pools = (pool for ipam in named for pool in (ipam.pool, *ipam.pools.values()) if pool)
    return tuple(dict.fromkeys(pools))
