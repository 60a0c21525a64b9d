"""What pod networks ask about the node, the pod and the cluster, answered by the real neighbours.

Between programs/agent/networks, which asks in the terms of the rules, and the adapters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from kube_rdma.adapters.cluster.errors import Conflict
from kube_rdma.adapters.cluster.ip import IP_POOL
from kube_rdma.adapters.cluster.kinds import Wanted
from kube_rdma.adapters.cluster.networks import Networks
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.pods import Pods
from kube_rdma.api import ip_pool, network_definition, network_status
from kube_rdma.api.network_definition import Definition
from kube_rdma.model.attachment import (
    Attached,
    GrantedShare,
    HostLink,
    HostNetwork,
)
from kube_rdma.model.binding import PodName
from kube_rdma.model.card import CardId
from kube_rdma.model.cni import Call
from kube_rdma.model.device import Device
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.ip import IPPool, PoolName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pod_view import SeenLink
from kube_rdma.model.pool import Pool
from kube_rdma.model.survey import Survey
from kube_rdma.programs.agent.kubelet import KubeletView
from kube_rdma.rules.allocation import granted_cards
from kube_rdma.rules.attach_cards import soft_links
from kube_rdma.rules.cards import cards
from kube_rdma.rules.discovery import judge
from kube_rdma.rules.modes import terms

log = structlog.get_logger()


@dataclass(frozen=True)
class Asked:
    """The neighbours. `pools` are those that the kubelet is offered now; what blocks is called in a
    thread: `survey`, and `links`, the interfaces of the node's namespace."""

    cluster: Cluster
    kubelet: KubeletView
    pools: Callable[[], Mapping[str, Pool]]
    survey: Callable[[], Survey]
    links: Callable[[], tuple[SeenLink, ...]]


class NetworkNode:
    """This node, for programs/agent/networks."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._pods = Pods(asked.cluster)
        self._networks = Networks(asked.cluster)
        self._made: set[PoolName] = set()  # of documents that bring their own

    async def pod(self, name: PodName, uid: str) -> PodState | None:
        """The pod's object, if it is this very one."""
        found = await self._pods.read(name.namespace, name.name)
        return found if found and uid in ("", found.uid) else None

    async def definition(self, namespace: str, name: str) -> Definition | None:
        """A network's document; a pool that it brings along is made where it is missing."""
        found = await self._networks.read(namespace, name)
        if found is None:
            return None
        made = network_definition.load(namespace, name, found.config, found.resource)
        if made.ipam.pool and made.ipam.pool.name not in self._made:
            await self._make(made.ipam.pool)
        return made

    async def granted(self, pod: PodName) -> tuple[GrantedShare, ...]:
        """The shares of the pod's containers, container by container."""
        holdings = await self._asked.kubelet.holdings()
        if holdings is None:
            raise Unavailable("The kubelet does not tell which shares the pod holds.")
        pools = self._asked.pools()
        return tuple(
            GrantedShare(
                container=held.container,
                resource=held.resource,
                share=share,
                cards=granted_cards(pool, [pool.index[share]]),
                mode=pool.spec.mode,
                bind=terms(pool.spec).bind,
            )
            for held in holdings
            if (held.namespace, held.pod) == (pod.namespace, pod.name)
            if (pool := pools.get(held.resource)) is not None
            for share in held.shares
            if share in pool.index
        )

    async def host(self) -> HostNetwork:
        """Links and RDMA of the node now."""
        survey = await asyncio.to_thread(self._asked.survey)
        links = await asyncio.to_thread(self._asked.links)
        return host_network(survey, links)

    async def devices(self, names: Sequence[str]) -> tuple[tuple[Device, ...], str | None]:
        """These RDMA devices as they are now, and the connection manager's node."""
        if not names:
            return (), None
        survey = await asyncio.to_thread(self._asked.survey)
        found = tuple(device for device in survey.devices if device.name in names)
        return found, survey.rdma_cm.path if survey.rdma_cm else None

    def rail(self, card: CardId) -> int | None:
        """The card's number among the physical RDMA cards that are offered, by address, from 0."""
        known = {
            one.id for pool in self._asked.pools().values() for one in pool.cards if one.devices
        }
        ordered = sorted(known | {card})
        return ordered.index(card)

    async def pool(self, name: PoolName) -> IPPool:
        """As the API server has it, one that a document brought too: people may change it."""
        found = await self._asked.cluster.get(IP_POOL, name)
        if found is None:
            raise Unavailable(f"IPPool {name} was just deleted.")
        return ip_pool.named(found.spec, name)

    async def tell(self, pod: PodState, found: Sequence[Attached], call: Call) -> None:
        """Write the pod's status annotations, the cluster's network first."""
        before = dict(pod.annotations).get(network_status.ANNOTATION, "")
        await self._networks.tell(
            pod,
            (
                (
                    network_status.ANNOTATION,
                    network_status.status(found, before, call.network, call.previous),
                ),
                (network_status.OWN_ANNOTATION, network_status.own_status(found)),
            ),
        )

    async def _make(self, pool: IPPool) -> None:
        try:
            await self._asked.cluster.create(IP_POOL, Wanted(pool.name, spec=pool))
            log.info("a pool was made", pool=pool.name)
        except Conflict:
            pass  # another node was first
        self._made.add(pool.name)


def host_network(survey: Survey, links: Sequence[SeenLink]) -> HostNetwork:
    """The node's interfaces, each with the function below it; virtual ones of pods are left out."""
    netdevs = {
        netdev.name: (function.seat.pci, netdev)
        for function in survey.functions
        for netdev in function.netdevs
    }
    found = []
    for link in links:
        pci, netdev = netdevs.get(link.name, (link.pci, None))
        found.append(
            HostLink(
                index=link.index,
                name=link.name,
                mtu=link.mtu,
                mac=link.mac,
                up=link.up,
                pci=pci,
                link_type=netdev.link_type if netdev else "ether",
                default_route=netdev.default_route is not False if netdev else False,
            )
        )
    kinds = [kind for card in cards(survey, judge(survey)) for _, kind in soft_links(card)]
    return HostNetwork(tuple(found), survey.namespace_mode, kinds[0] if kinds else None)
