"""Reads the objects of `kube-rdma resources` from the API server, as values of model/resources.

Each function is one kind and one request, of one namespace where the author's rights end there.
Only fields that are shown are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_client.kinds import ObjectCodec, ObjectKind, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.claim_objects import DEVICE_CLASS
from kube_rdma.adapters.cluster.kinds.node import whole
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, Container, FullPod, status_of
from kube_rdma.ipam.cluster import IP_POOL_TEXT, pool_of_text
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.resources import (
    CardClass,
    HeldShares,
    NamedNetwork,
    NamespaceQuota,
    NetworkPool,
)

_REQUESTS = "requests."


class QuotaStatus(msgspec.Struct, frozen=True):
    """The status of a ResourceQuota: quantities by the name of what is counted."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


_NO_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)
QUOTA = ObjectKind(
    "",
    "v1",
    "ResourceQuota",
    "resourcequotas",
    namespaced=True,
    spec=_NO_SPEC,
    status=ObjectCodec.of(QuotaStatus, writes=False),
)


class _Addresses(msgspec.Struct, frozen=True):
    pool: str = ""
    pools: dict[str, str] = {}


class _NamedPlugin(msgspec.Struct, frozen=True):
    ipam: _Addresses = _Addresses()
    plugins: tuple[_NamedPlugin, ...] = ()


async def pods(cluster: Cluster, namespace: str = "") -> tuple[HeldShares, ...]:
    """Return the shares that pods of a namespace, or of all of them, hold or wait for."""
    stored = await cluster.list(FULL_POD, Where(namespace=namespace))
    return tuple(held for pod in stored if not status_of(pod).is_over for held in _held(pod))


async def quotas(cluster: Cluster, namespace: str) -> tuple[NamespaceQuota, ...]:
    """Return the limits of extended resources by the ResourceQuotas of the namespace."""
    stored = await cluster.list(QUOTA, Where(namespace=namespace))
    return tuple(
        NamespaceQuota(name.removeprefix(_REQUESTS), whole(hard), whole(one.status.used[name]))
        for one in stored
        if one.status
        for name, hard in one.status.hard.items()
        if name.startswith(_REQUESTS) and "/" in name and name in one.status.used
    )


async def networks(cluster: Cluster, namespace: str = "") -> tuple[NamedNetwork, ...]:
    """Return the networks of a namespace, or of all of them."""
    return tuple(
        NamedNetwork(
            one.namespace, one.name, one.annotation(RESOURCE) or "", named_pools(one.spec.config)
        )
        for one in await cluster.list(DEFINITION, Where(namespace=namespace))
    )


async def classes(cluster: Cluster) -> tuple[CardClass, ...]:
    """Return the classes that choose devices of kube-rdma's claim driver."""
    return tuple(
        CardClass(one.name, one.spec.extended_resource_name or "")
        for one in await cluster.list(DEVICE_CLASS)
        if any(DRIVER in selector.cel.expression for selector in one.spec.selectors)
    )


async def ip_pools(cluster: Cluster) -> tuple[NetworkPool, ...]:
    """Return the IPPools; one with a spec that is not understood is for no certain namespace."""
    pools = []
    for stored in (await cluster.see(IP_POOL_TEXT)).objects:
        free = stored.status.free if stored.status else ""
        try:
            namespaces = pool_of_text(stored).namespaces
        except Refused:  # the controller names what is wrong
            namespaces = ()
        pools.append(NetworkPool(stored.name, free, tuple(map(str, namespaces))))
    return tuple(pools)


def _held(pod: FullPod) -> Iterator[HeldShares]:
    """Yield the shares of a pod: of its containers together, or of its greediest init container."""
    spec = pod.spec
    beside: Counter[str] = Counter()
    for container in spec.containers:
        beside.update(_limits(container))
    for container in spec.init_containers:
        beside |= _limits(container)
    for resource, count in beside.items():
        yield HeldShares(pod.namespace, spec.node_name, resource, count)


def _limits(container: Container) -> Counter[str]:
    """Return the extended resources of a container, of which requests equal limits."""
    limits = container.resources.limits
    return Counter({name: whole(str(count)) for name, count in limits.items() if "/" in name})


def named_pools(config: str) -> tuple[str, ...]:
    """Return the pools that a CNI configuration names; none where it is none of kube-rdma."""
    try:
        plugin = decoded(config, _NamedPlugin)
    except Undecodable:
        return ()
    named = [one.ipam for one in (plugin, *plugin.plugins)]
    pools = (pool for ipam in named for pool in (ipam.pool, *ipam.pools.values()) if pool)
    return tuple(dict.fromkeys(pools))
