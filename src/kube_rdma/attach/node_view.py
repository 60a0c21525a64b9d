"""Answers of the node, the pod and the cluster to the questions of pod networks.

attach/attach and attach/calls ask in the terms of the rules; the answers come from adapters, the
kubelet's view and watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict, NotInstalled
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.adapters.kernel.pod.gids import crowded
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.attach.documents import network_status
from kube_rdma.attach.rules.claim_networks import granted, granted_share
from kube_rdma.attach.rules.host_links import agree, host_network, may_leave, wanted, with_ways
from kube_rdma.attach.rules.plan import gid_room, gids_wanted
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.lib.phrases import listed
from kube_rdma.model import ipam as model
from kube_rdma.model.admission import USUAL
from kube_rdma.model.attach import attachment
from kube_rdma.model.attach.cni import Call, ConfFile, Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import ClaimDevice
from kube_rdma.model.device import Device
from kube_rdma.model.holdings import ClaimingSandbox, Holding
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, Edits, HeldShare, PodName
from kube_rdma.model.pools import FunctionPlace, FunctionReports, Pool, PoolSpec, ShareId
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rules.allocation import grant, granted_cards, known_pools
from kube_rdma.pools.rules.modes import pooled

if TYPE_CHECKING:
    from kube_rdma.attach.documents.network_definition import NetworkDefinition
    from kube_rdma.ipam.ip_conf import IpamConf

log = structlog.get_logger()

ModeWarnings = Callable[[PodState, PoolSpec], Awaitable[Sequence[str]]]


class NodeContext(Struct):
    """The shared state of one node's pod networks: its owners write it, all others read it."""

    pools: Mapping[str, Pool] | None = None  # offered, by resource; None until the first look
    withdrawn: Sequence[str] = ()  # resources that are offered no more while pods hold their shares
    wiring: Wiring = Wiring.NONE  # who calls the agent for pods
    network: str = ""  # name of the cluster's own network


async def no_mode_warnings(_: PodState, __: PoolSpec) -> Sequence[str]:
    """Return no warnings, whatever the pod and the pool."""
    return ()


async def _not_reported(_: PodName, __: Sequence[attachment.AttachedInterface]) -> None:
    pass


Links = Callable[[Sequence[str] | None], tuple[attachment.SeenLink, ...]]
AskFunctions = Callable[[Sequence[FunctionPlace]], FunctionReports]


class NodeViewDependencies(Frozen):
    """Everything that a NodeView asks; functions that block are called in a thread."""

    cluster: Cluster
    kubelet: KubeletView
    context: NodeContext
    survey: SurveyCache  # blocks
    links: Links  # interfaces of the node's namespace by their names, or all (None); blocks
    confs: Callable[[], tuple[ConfFile, ...]] = tuple  # the node's CNI configuration; blocks
    functions: AskFunctions = lambda _: ()  # settings of virtual functions; blocks
    # IPPools as a watch shows them, None while it shows none
    watched: Callable[[], Mapping[model.PoolName, model.IPPool] | None] = lambda: None
    # the node's routes over links; blocks
    ways: Callable[[Sequence[attachment.SeenLink]], tuple[attachment.LinkWays, ...]] = lambda _: ()
    # given how many addresses each device gets, the GID tables that may be too full; blocks
    gids: Callable[[Mapping[str, int]], tuple[attachment.GidTable, ...]] = crowded
    rail: Callable[[CardId], int | None] = lambda _: None  # number of a card's rail
    # is called with the interfaces that networks made for a pod
    attached: Callable[[PodName, Sequence[attachment.AttachedInterface]], Awaitable[None]] = (
        _not_reported
    )
    # records an Event about a pod: reason, sentence, whether it is a warning
    warn: Callable[[PodState, str, str, bool], None] = lambda *_: None
    # sentences about what in a pod does not suit the mode of a pool; raises KubeError
    mode_warnings: ModeWarnings = no_mode_warnings


class NodeView:
    """The answers of the node to attach/attach and attach/calls: pods, shares, networks, cards."""

    def __init__(self, asked: NodeViewDependencies) -> None:
        self._asked = asked
        self._pods = Pods(asked.cluster)
        self._networks = NetworkObjects(asked.cluster)
        self._made: set[model.PoolName] = set()  # of documents that bring their own
        self._notices = Notices()  # by the network's name, and of pools

    async def pod(self, name: PodName, uid: str) -> PodState | None:
        """Return the pod of this name if it has this uid, else None; "" stands for any uid."""
        pod = await self._pods.read(name.namespace, name.name)
        return pod if pod and uid in ("", pod.runtime_uid) else None

    def has_claims(self, pod: PodName) -> bool:
        """Return whether a claim in the pod's namespace is prepared on this node."""
        booked = self._asked.kubelet.claims.booked
        return any(one.claim.namespace == pod.namespace for one in booked)

    async def settle(self, sandbox: attachment.Sandbox, pod: PodState) -> tuple[Holding, ...]:
        """Write settings files for a pod without networks whose containers hold shares by claims.

        Return what the pod's containers hold; nothing if no claim of the namespace is prepared on
        this node. Raise KubeError if that fails.
        """
        if not self.has_claims(sandbox.pod):
            return ()
        holdings = await self.holdings(sandbox.pod)
        await self.made(sandbox, {}, dict(pod.annotations), holdings)
        return holdings

    async def made(
        self,
        sandbox: attachment.Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding],
    ) -> None:
        """Pass what was made for a pod to its claims; write its containers' settings files."""
        made = ClaimingSandbox(sandbox, holdings, annotations, edits)
        await self._asked.kubelet.claims.settle(made)

    async def ended(self, sandbox: ContainerId) -> None:
        """Remove a sandbox's settings files; forget its pod's interfaces if it was the last."""
        await self._asked.kubelet.claims.detach(sandbox)

    async def claimed(self, pod: PodName) -> tuple[ClaimDevice, ...]:
        """Return the devices of the pod's claims for which it gets interfaces.

        Raise KubeError if the claims cannot be read.
        """
        return await self._asked.kubelet.claims.interfaces_of(pod)

    async def definition(
        self, namespace: str, name: str, resource: str | None = None
    ) -> NetworkDefinition | None:
        """Return a network's document, None if there is none; create its IPPool if missing.

        `resource` is the network's resource where the document names none. Raise Refused with the
        faults of the document, and as `bring` does.
        """
        document = await self._networks.read(namespace, name)
        if document is None:
            return None
        host = None if document.config.strip() else await self.configured_text(name)
        tied = document.resource or resource
        return await self._whole(_load(namespace, name, document.config, tied, host))

    async def written(self, namespace: str, name: str) -> tuple[bytes, str | None] | None:
        """Return a NetworkAttachmentDefinition's text and resource; None without one."""
        try:
            document = await self._networks.read(namespace, name)
        except NotInstalled:
            return None
        return (document.config, document.resource) if document else None

    async def configured(self, namespace: str, name: str) -> NetworkDefinition | None:
        """Return the network in the node's CNI configuration of this name; None without one.

        `namespace` is that of the pod. Create the network's IPPool if missing; raise Refused for
        faults of the configuration, and as `bring` does.
        """
        from kube_rdma.attach.documents import cni_conf

        text = await self.configured_text(name)
        if text is None:
            return None
        return await self._whole(cni_conf.load(namespace, name, text))

    async def configured_text(self, name: str) -> bytes | None:
        """Return the text of the node's CNI configuration of this name, if there is one."""
        from kube_rdma.attach.documents import cni_conf

        return cni_conf.text_of(await asyncio.to_thread(self._asked.confs), name)

    async def configurations(self) -> tuple[str, ...]:
        """Return the names of the node's CNI configurations that pods may name."""
        from kube_rdma.attach.documents import cni_conf

        return cni_conf.names(await asyncio.to_thread(self._asked.confs))

    async def holdings(self, pod: PodName) -> tuple[Holding, ...]:
        """Return the shares that the pod's containers hold, from the kubelet and from claims.

        Raise KubeError if the kubelet does not answer, or the API server about the claims.
        """
        return await self._asked.kubelet.holdings_of(pod)

    def granted(self, holdings: Sequence[Holding]) -> tuple[attachment.GrantedShare, ...]:
        """Return the shares of kube-rdma among the holdings; shares of claims come last.

        Raise Unavailable for one that cannot be looked up now: without it a network would be
        attached to another card, or without its RDMA device. Shares of other plugins are left out.
        """
        pools = self._pools
        by_claim = granted(holdings, self._asked.kubelet.claims.booked, pools)
        claimed = {one.held for one in by_claim}
        for held in holdings:
            pool = pools.get(held.resource)
            if pool is None and held.resource in self._asked.context.withdrawn:
                raise Unavailable(f"{held.resource} is not advertised on this node now.")
            shares = [share for share in held.shares if (held.resource, share) not in claimed]
            lost = [share for share in shares if pool and share not in pool.index]
            if lost:
                names = listed(lost)
                raise Unavailable(f"{held.resource} has no share {names} on this node now.")
        by_plugin = (
            self._granted(pool, held.container, share)
            for held in holdings
            if (pool := pools.get(held.resource)) is not None
            for share in held.shares
            if (held.resource, share) not in claimed
        )
        return (*by_plugin, *by_claim)

    def _granted(self, pool: Pool, container: str, share: ShareId) -> attachment.GrantedShare:
        """Return a share as a grant.

        If its device nodes were given early, the grant has those that Allocate gave, as far as this
        agent knows.
        """
        shares = [pool.index[share]]
        whole = granted_share(container, pool, share, granted_cards(pool, shares))
        if not whole.early:
            return whole
        given = self._asked.kubelet.given(whole.resource, share)
        return replace(whole, char_paths=given or grant(pool, shares).char_paths)

    @property
    def _pools(self) -> Mapping[str, Pool]:
        return known_pools(self._asked.context.pools)

    async def host(
        self,
        entries: Sequence[attachment.MatchedEntry] | None = None,
        granted: Sequence[attachment.GrantedShare] = (),
        before: Callable[[], None] = lambda: None,
    ) -> attachment.HostNetwork:
        """Return the node's links now, as far as these entries need them (None: all).

        RDMA devices are of the last survey where it agrees with these links, else of a new one.
        `before` is called first, in the same thread; raise what it raises.
        """
        host = await asyncio.to_thread(self._host, entries, granted, before)
        if not any(entry.network.rails for entry in entries or ()):
            return host
        numbers = {card.id: self.rail(card.id) for share in granted for card in share.cards}
        return replace(host, rails=tuple((i, n) for i, n in numbers.items() if n is not None))

    def _host(
        self,
        entries: Sequence[attachment.MatchedEntry] | None,
        granted: Sequence[attachment.GrantedShare],
        before: Callable[[], None],
    ) -> attachment.HostNetwork:
        before()
        if entries is not None:
            leaving = may_leave(entries, granted)
            survey = self._asked.survey.last(leaving=leaving)
            names = wanted(entries, granted, survey)
            links = self._asked.links(names) if names is not None else ()
            if names is not None and agree(survey, names, links):
                host = host_network(survey, links)
                return self._whose(with_ways(host, self._asked.ways(links)) if leaving else host)
        links = self._asked.links(None)
        host = host_network(self._asked.survey.take(), links)
        return self._whose(with_ways(host, self._asked.ways(links)))

    def _whose(self, host: attachment.HostNetwork) -> attachment.HostNetwork:
        """Return the host with the cards of its pools."""
        pools = self._pools.values()
        owned, shared = pooled(pools, owns=True), pooled(pools, owns=False)
        return replace(host, owned=owned, shared=shared)

    async def settings(self, functions: Sequence[FunctionPlace]) -> FunctionReports:
        """Return the present settings of these virtual functions.

        Only their physical functions are asked: each answers for all of its virtual ones.
        """
        return await asyncio.to_thread(self._asked.functions, functions) if functions else ()

    async def refuse_full(self, planned: Sequence[attachment.Plan]) -> None:
        """Raise Refused where a GID table has no room for the addresses of these plans."""
        if wanted := gids_wanted(planned):
            for table in await asyncio.to_thread(self._asked.gids, wanted):
                gid_room(table, wanted[table.device])

    async def devices(self, names: Sequence[str]) -> tuple[tuple[Device, ...], str | None]:
        """Return these RDMA devices as they are now, and rdma_cm's device node."""
        if not names:
            return (), None
        return await asyncio.to_thread(self._asked.survey.devices, names)

    def rail(self, card: CardId) -> int | None:
        """Return the rail of the card's physical function, None where it has none.

        Raise Unavailable right after the agent's start, when the cards are not numbered yet.
        """
        return self._asked.rail(card)

    async def has_pool(self, name: model.PoolName) -> bool:
        """Return whether an IPPool of this name exists."""
        return await self._asked.cluster.get(IP_POOL, name) is not None

    async def pool(self, name: model.PoolName) -> model.IPPool:
        """Return an IPPool as it is now, even if a document brought it: people may change it.

        The watch of the address provider answers; else the API server is asked. Raise Unavailable
        if the IPPool does not exist.
        """
        if watched := (self._asked.watched() or {}).get(name):
            return watched
        document = await self._asked.cluster.get(IP_POOL, name)
        if document is None:
            raise Unavailable(f"IPPool {name} was just deleted.")
        return ip_pool.named(document.spec, name)

    async def ip_pools(self) -> Collection[model.IPPool]:
        """Return all readable IPPools as they are now.

        Raise KubeError if there is no watch and the API server does not list them.
        """
        if (watched := self._asked.watched()) is not None:
            return watched.values()
        seen = await self._asked.cluster.see(IP_POOL)
        return [ip_pool.named(one.spec, one.name) for one in seen.objects]

    async def tell(
        self, pod: PodState, interfaces: Sequence[attachment.AttachedInterface], call: Call
    ) -> None:
        """Write the pod's status annotations; the cluster's network comes first.

        Then pass the interfaces to the pod's claims, and call `warn_of_mode`.
        """
        await self._networks.tell(pod, network_status.statuses(pod, interfaces, call))
        await self._asked.attached(PodName(pod.namespace, pod.name), interfaces)
        await self.warn_of_mode(pod)

    async def tell_own(
        self,
        pod: PodState,
        interfaces: Sequence[attachment.AttachedInterface],
        others: frozenset[model.InterfaceName],
    ) -> None:
        """Write kube-rdma's own annotation, and keep its entries about the interfaces `others`.

        Then pass the interfaces to the pod's claims, and call `warn_of_mode`.
        """
        key = network_status.OWN_ANNOTATION
        text = network_status.own_status(interfaces, dict(pod.annotations).get(key, ""), others)
        await self._networks.tell(pod, ((key, text),))
        await self._asked.attached(PodName(pod.namespace, pod.name), interfaces)
        await self.warn_of_mode(pod)

    async def warn_of_mode(self, pod: PodState) -> None:
        """Record a warning for a pod that does not suit the mode of VKE's pool on this node.

        The pod is read only where the pool's mode does not suit all pods.
        """
        modes = (*USUAL.without_vepfs, *USUAL.without_gpus)
        pool = (self._asked.context.pools or {}).get(USUAL.counted)
        if pool is None or pool.spec.mode not in modes:
            return
        try:
            warnings = await self._asked.mode_warnings(pod, pool.spec)
        except KubeError as error:
            name = f"{pod.namespace}/{pod.name}"
            log.warning("pod not judged by its mode", pod=name, why=str(error))
            return
        for warning in warnings:
            self._asked.warn(pod, "UnsuitableMode", warning, True)

    async def _whole(self, definition: NetworkDefinition) -> NetworkDefinition:
        """Return a network; create its IPPool if missing, and log the document's warnings once."""
        for warning in self._notices.news(definition.network.name, *definition.warnings):
            log.warning("network definition warning", warning=warning)
        await self.bring(definition.ipam)
        return definition

    async def bring(self, ipam: IpamConf) -> None:
        """Create the IPPool that a document brings along, if it is missing.

        Raise Refused if it is too large for an agent to make. Raise it too if a pool of this name
        has another network, ranges or excludes, unless its annotations say that it was edited or
        imported. Otherwise any node could give pods of others wrong addresses, as its token may
        create pools.
        """
        if ipam.pool is None:
            return
        if ipam.pool.name not in self._made:
            await self._make(ipam.pool)
        watched = (self._asked.watched() or {}).get(ipam.pool.name)
        if watched is None or ip_pool.content(watched) != ip_pool.content(ipam.pool):
            await self._compare(ipam.pool)

    async def _make(self, pool: model.IPPool) -> None:
        counts = len(pool.ranges), len(pool.excludes)
        is_large = counts[0] > model.MOST_MADE_RANGES or counts[1] > model.MOST_MADE_EXCLUDES
        if is_large and not await self.has_pool(pool.name):
            raise Refused(
                f"it has {counts[0]} ranges and {counts[1]} excludes, and an agent makes pools of "
                f"{model.MOST_MADE_RANGES} and {model.MOST_MADE_EXCLUDES}",
                remedy="Make an IPPool of them, and write "
                '"ipam": {"type": "kube-rdma-ipam", "pool": NAME}',
                where=pool.ranges[0].source,
            )
        try:
            await self._asked.cluster.create(IP_POOL, Wanted(pool.name, spec=pool))
            log.info("IPPool created", pool=pool.name)
        except Conflict:
            pass  # another node was first
        self._made.add(pool.name)

    async def _compare(self, pool: model.IPPool) -> None:
        """Raise Refused if the stored pool has other addresses than the document's.

        Pools that are annotated as edited or imported may differ. Raise Unavailable if the pool was
        just deleted.
        """
        stored = await self._asked.cluster.get(IP_POOL, pool.name)
        if stored is None:
            self._made.discard(pool.name)
            raise Unavailable(f"IPPool {pool.name} was just deleted.")
        other = ip_pool.content(stored.spec)
        differing = [key for key, value in ip_pool.content(pool).items() if value != other[key]]
        is_imported = stored.annotation(model.IMPORTED) is not None
        is_edited = is_imported or stored.annotation(model.EDITED) == "true"
        if is_edited or not differing:
            self._notices.over(("pool", pool.name))
            return
        refusal = Refused(
            f"its {listed(differing)} differ from those of the network's configuration, of which "
            "an agent makes it",
            remedy="Delete it if no administrator wrote it; else annotate it with "
            f"{model.EDITED}=true",
            where=f"IPPool {pool.name}",
        )
        self._notices.warn(log, "IPPool refused", ("pool", pool.name), str(refusal), pool=pool.name)
        raise refusal


@lru_cache(256)  # many pods have one network
def _load(
    namespace: str, name: str, config: bytes, resource: str | None, host: bytes | None
) -> NetworkDefinition:
    from kube_rdma.attach.documents import network_definition

    return network_definition.load(namespace, name, config, resource, host)
