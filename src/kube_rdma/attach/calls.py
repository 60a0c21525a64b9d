"""The endpoints of CNI calls: one socket, three kinds of callers, and the router to them.

The runtime calls the agent behind the cluster's own plugin, for all networks of a pod at once
(SandboxNetworks). Interfaces are reported to the pod, by its annotations, and not to the runtime.
The runtime gets the result of the cluster's network, as the earlier plugins made it. GC and STATUS
come from it too, and late ADDs from repair.py. A meta-plugin calls for one network and gets its
whole result (DelegatedNetworks). Other CNI plugins ask for addresses of interfaces that they make
(PluginAddresses, by the name kube-rdma-ipam).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_interface
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.attach import annotated_networks
from kube_rdma.attach.attach import (
    AttachDependencies,
    AttachPipeline,
    AttachRequest,
    AttachResult,
    RepeatedAdd,
    RequestedNetworks,
    sandbox_of,
)
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.rules import delegated, requests
from kube_rdma.attach.rules.addresses import owner
from kube_rdma.attach.rules.claim_networks import ask_of, with_claims
from kube_rdma.attach.rules.conflist import Role, role, stranded, turned
from kube_rdma.attach.rules.placement import is_link
from kube_rdma.attach.rules.procedure import NetworkRequest
from kube_rdma.model.attach.attachment import (
    AttachedInterface,
    Attachment,
    AttachmentKey,
    NetworkAsk,
)
from kube_rdma.model.attach.cni import (
    Call,
    CniAttachment,
    CniResult,
    LinkAddress,
    LinkRoute,
    Verb,
    Wiring,
)
from kube_rdma.model.attach.steps import PluginConf
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import ClaimDevice
from kube_rdma.model.ipam import FIRST, NicRequest, PodUid, PoolName, is_default
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import DeviceInfo
from kube_rdma.model.preflight import REQUEST

if TYPE_CHECKING:
    from kube_rdma.attach.node_view import NodeView

log = structlog.get_logger()

SWEEP_SECONDS = 300.0


async def _pod(call: Call, name: PodName, needs: AttachDependencies) -> PodState:
    """Return the pod that a call is for; raise Unavailable if the API server lacks it yet.

    Raise Refused if it would start without the preflight that it asks for.
    """
    pod = await needs.node.pod(name, call.uid)
    if pod is None:
        raise Unavailable(f"The API server has no pod {name} with uid {call.uid} yet.")
    requests.refuse_unmeasured(pod)
    return pod


class _Endpoint:
    is_within = False

    def __init__(self, dependencies: AttachDependencies, pipeline: AttachPipeline) -> None:
        self._needs = dependencies
        self._pipeline = pipeline


class SandboxNetworks(_Endpoint):
    """The endpoint of the container runtime's calls, for all networks of a pod."""

    async def answer(self, call: Call) -> CniResult:
        """Answer a call of the runtime: ADD, CHECK, DEL, STATUS or GC.

        Raise KubeError if it fails.
        """
        key = AttachmentKey(call.container)
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.DEL:
                return await self._pipeline.delete(call, key)
            case Verb.CHECK if self._needs.attachments.has(key):
                return await self._pipeline.check(call, key)
            case Verb.GC:
                await self._gc(call)
            case Verb.STATUS:
                await self._status(call)
        return CniResult()

    async def request(self, call: Call) -> AttachRequest | None:
        """Return the request for networks of a pod's annotation and claims; None without any.

        Without any, write settings of its claims and limits of its shares.
        """
        if call.pod is None or call.netns is None:
            return None  # no pod of Kubernetes
        pod = await _pod(call, call.pod, self._needs)
        await _refuse_replaced(pod, call.network, self._needs.node)
        asked = annotated_networks.asking(pod, call.network)
        devices = await self._needs.node.claimed(call.pod)
        node = self._needs.node
        if not asked.asks and asked.annotation == requests.POD_NETWORKS:
            # Without a block for kube-rdma the pod is refused if it holds shares that need one.
            requests.refuse_count((), node.granted(await node.holdings(call.pod)))
        if not asked.asks and not devices:
            held = await node.settle(sandbox_of(call, self._needs.inode)[0], pod)
            if held and self._needs.limits:  # of a claim that another pod brought here
                await self._needs.limits.hold(pod.runtime_uid, node.granted(held))
            return None
        requests.refuse_host_network(pod, asked.asks, asked.annotation)
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(pod.uid),
            pod=pod,
            again=RepeatedAdd.ANSWERED,
            networks=partial(_asked, asked, devices, self._needs),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """Write the pod's status annotations; see CniEndpoint.report."""
        assert request.pod
        await self._needs.node.tell(request.pod, result.interfaces, call)
        return CniResult()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Return all attachments of whole pods in the journal."""
        by_key = self._needs.attachments.by_key
        return tuple(one for key, one in by_key.items() if key.interface is None)

    @property
    def foreign(self) -> frozenset[ContainerId]:
        """Return the sandboxes whose records this version of kube-rdma does not understand."""
        keys = self._needs.attachments.journal.foreign
        return frozenset(key.container for key in keys if key.interface is None)

    def now(self) -> float:
        """Return the present time for `collect`; call it before the runtime lists its sandboxes."""
        return self._needs.giver.now()

    async def end_lost(self, container: ContainerId) -> None:
        """Remove an attachment whose sandbox is gone; raise KubeError if that fails now."""
        await self._pipeline.end(AttachmentKey(container))

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free the addresses of sandboxes that are gone; see AttachPipeline.collect."""
        await self._pipeline.collect(living, since)

    async def _gc(self, call: Call) -> None:
        """Answer GC: remove whole pods' attachments whose sandbox the runtime does not list.

        If one fails, the others are removed all the same. An attachment whose ADD is not answered
        stays: it may be in progress, or the agent's next start removes it (AttachPipeline.recover).
        Then free addresses of such sandboxes.
        """
        since = self.now()
        living = frozenset(one.container for one in call.valid)
        failed: list[KubeError] = []
        for attachment in self.attachments:
            container = attachment.sandbox.container
            if container not in living and attachment.complete:
                log.info("orphaned attachment detected", pod=str(attachment.sandbox.pod))
                try:
                    await self.end_lost(container)
                except KubeError as error:
                    failed.append(error)
        await self.collect(living, since)
        if failed:
            raise failed[0]

    async def _status(self, call: Call) -> None:
        """Answer STATUS: raise KubeError while IPAM can give no addresses, or has lost some.

        A call by kube-rdma's entry in the cluster's own conflist gets no error, for that could make
        the node NotReady for all pods.
        """
        from kube_rdma.attach.documents.cni_conf import ipam_plugin

        if call.marked:
            return
        if problems := await self._needs.giver.check():
            raise Broken(" ".join(map(str, problems)))
        if plugin := ipam_plugin(call):
            await self._needs.attachments.status(PluginConf(plugin, call.config))


async def _asked(
    annotated: annotated_networks.AnnotatedNetworks,
    devices: Sequence[ClaimDevice],
    needs: AttachDependencies,
) -> RequestedNetworks:
    """Return a pod's networks by annotation and claims; create IPPools that these bring."""
    asks, definitions = await annotated_networks.meant(
        annotated, needs.node, needs.global_namespaces
    )
    if devices:
        claimed = tuple(map(ask_of, devices))
        requests.refuse_isolated(annotated.namespace, claimed, needs.global_namespaces)
        definitions |= await annotated_networks.claimed_definitions(devices, needs.node)
        asks = with_claims(asks, claimed)
    networks = tuple(one.network for one in definitions.values())
    ipam = {name: one.ipam for name, one in definitions.items()}
    return RequestedNetworks(NetworkRequest(asks, networks), ipam)


async def _refuse_replaced(pod: PodState, cluster: str, node: NodeView) -> None:
    """Raise Refused for a pod that wants another network in place of the cluster's.

    Multus calls the network in the annotation v1.multus-cni.io/default-network first. Behind the
    cluster's network only the cluster's own can be named there.
    """
    from kube_rdma.attach.documents import networks

    if not requests.names_default(pod.annotations):
        return
    text = dict(pod.annotations)[requests.DEFAULT_NETWORK]
    wanted = networks.asks(text, requests.SHARED, requests.DEFAULT_NETWORK)
    if len(wanted) != 1:
        raise Refused(
            f"it names {len(wanted)} networks, and a pod has one default network",
            remedy="Keep one of them",
            where=f"pod {pod.namespace}/{pod.name}: {requests.DEFAULT_NETWORK}",
        )
    if not await _is_cluster_network(wanted[0], cluster, node):
        raise requests.default_refused(pod, f"{wanted[0].namespace}/{wanted[0].network}", cluster)


async def _is_cluster_network(ask: NetworkAsk, cluster: str, node: NodeView) -> bool:
    """Return whether an entry means the cluster's network, whose name is `cluster`.

    Without a document, the entry has to name it in kube-system. An empty document has to be called
    `cluster`; any other has to have the name and the plugin of the node's configuration.
    """
    from kube_rdma.attach.documents.cni_conf import network_name, plugin_type

    document = await node.written(ask.namespace, ask.network)
    if document is None:
        return (ask.namespace, ask.network) == (requests.SHARED, cluster)
    config, _ = document
    if not config.strip():
        return ask.network == cluster
    if (network_name(config) or ask.network) != cluster:
        return False
    return plugin_type(config) == plugin_type(await node.configured_text(cluster) or b"")


class DelegatedNetworks(_Endpoint):
    """The endpoint of meta-plugins' calls, each of which is for one network of a pod."""

    async def answer(self, call: Call) -> CniResult:
        """Answer a meta-plugin's ADD, CHECK or DEL for one network; raise KubeError if it fails."""
        key = AttachmentKey(call.container, call.interface)
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.CHECK:
                return await self._pipeline.check(call, key)
            case _:
                return await self._pipeline.delete(call, key)

    async def request(self, call: Call) -> AttachRequest | None:
        """Return the request for the one network in the call; see CniEndpoint.request."""
        if call.pod is None:
            raise Refused(
                "the call names no pod of Kubernetes",
                remedy="The caller has to pass CNI_ARGS on as the runtime gave them",
                where=f"network {call.network}",
            )
        pod = await _pod(call, call.pod, self._needs)
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container, call.interface),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(pod.uid),
            pod=pod,
            again=RepeatedAdd.ANEW,
            networks=partial(_delegate_asked, call, pod, self._needs),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """Write kube-rdma's own annotation, and return the full result; see CniEndpoint.report."""
        (interface,), (plan,) = result.interfaces, result.plans
        await self._describe_device(call, interface)
        others = frozenset(one.interface for one in result.beside)
        assert request.pod
        await self._needs.node.tell_own(request.pod, result.interfaces, others)
        return delegated.result(plan, interface, call.netns_path)

    async def _describe_device(self, call: Call, interface: AttachedInterface) -> None:
        """Write the device info file that the caller asks for, if any; only log a failed write."""
        from kube_rdma.attach.documents.cni_conf import device_info_file

        path = device_info_file(call)
        if path and self._needs.infos and interface.pci:
            names = (interface.rdma_device,) if interface.rdma_device else ()
            info = DeviceInfo(interface.pci, names, interface.physical)
            try:
                await asyncio.to_thread(self._needs.infos.write_for_plugin, path, info)
            except Unavailable as error:
                log.warning("device info file not written", why=str(error))


async def _delegate_asked(
    call: Call, pod: PodState, needs: AttachDependencies
) -> RequestedNetworks:
    from kube_rdma.attach.documents import cni_conf

    node = needs.node
    came = await origin(call, pod, node)
    definition, ask = cni_conf.network(call, came.name, came.resource)
    # This holds whatever networks the meta-plugin lets pods name.
    requests.refuse_isolated(pod.namespace, (ask,), needs.global_namespaces)
    if cni_conf.is_built_in(call.config):
        pool = await node.has_pool(PoolName(cni_conf.DEFAULT_NETWORK))
        definition = cni_conf.built_in(ask.namespace, pool=pool)
    await node.bring(definition.ipam)
    network = definition.network
    request = NetworkRequest((ask,), (network,), called=True, table=came.table)
    return RequestedNetworks(request, {network.name: definition.ipam})


class Origin(Frozen):
    """The network that a meta-plugin's call is about, and how its traffic is routed."""

    name: str  # with its namespace
    resource: str | None = None  # where it is tied to one
    table: int | None = None  # by which the caller routes what comes from the interface's addresses


async def origin(call: Call, pod: PodState, node: NodeView) -> Origin:
    """Return the network that a meta-plugin's call is about.

    Raise KubeError if the API server or the node's CNI configuration cannot be read.
    """
    from kube_rdma.attach.documents import cni_conf, networks, pod_networks

    annotations = dict(pod.annotations)
    asks: tuple[NetworkAsk, ...] = ()
    with suppress(Refused):  # the caller has understood it
        asks = networks.asks(annotations.get(networks.ANNOTATION, ""), pod.namespace)
    with suppress(Refused):  # likewise
        first = networks.asks(annotations.get(requests.DEFAULT_NETWORK, ""), requests.SHARED)
        asks += tuple(replace(one, interface=FIRST) for one in first)
    if by_definition := await _of_definition(call, asks, node):
        return by_definition
    name = f"{pod.namespace}/{call.network}"
    resource = cni_conf.resource(call.config)
    for block in cni_conf.blocks(annotations.get(pod_networks.ANNOTATION, "")):
        if (block.interface, block.network) == (call.interface, call.network):
            if resource is None and (text := await node.configured_text(call.network)):
                resource = cni_conf.resource(text)
            return Origin(name, resource, block.table)
    return Origin(name, resource)


async def _of_definition(call: Call, asks: Sequence[NetworkAsk], node: NodeView) -> Origin | None:
    """Return the network whose definition or configuration has the call's name; None without one.

    The interface alone does not identify it, as a caller may number networks of its own before
    the annotation's. A deleted document has no name, so there the interface decides.
    """
    from kube_rdma.attach.documents.cni_conf import network_name

    documents: dict[str, tuple[bytes, str | None] | None] = {}
    for ask in sorted(asks, key=lambda ask: ask.interface != call.interface):
        name = f"{ask.namespace}/{ask.network}"
        if name not in documents:
            documents[name] = await node.written(ask.namespace, ask.network)
        if document := documents[name]:
            config, resource = document
            if call.network in (ask.network, network_name(config)):
                return Origin(name, resource or None)
    gone = [name for name, document in documents.items() if document is None]
    mine = [f"{ask.namespace}/{ask.network}" for ask in asks if ask.interface == call.interface]
    return next((Origin(name) for name in mine if name in gone), None)


class PluginAddresses(_Endpoint):
    """The endpoint of other CNI plugins' calls for addresses of their interfaces."""

    is_within = True

    async def answer(self, call: Call) -> CniResult:
        """Answer another plugin's call, ADD with addresses and routes.

        Raise KubeError if it fails.
        """
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.DEL:
                key = AttachmentKey(call.container, call.interface)
                return await self._pipeline.delete(call, key, within=True)
            case Verb.CHECK | Verb.STATUS:
                await self._check(call)
        return CniResult()

    async def request(self, call: Call) -> AttachRequest | None:
        """Return the request for addresses of the call's ipam block; see CniEndpoint.request."""
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container, call.interface),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(call.uid),
            pod=None,
            again=RepeatedAdd.KEPT,
            nics=(await self._nic(call),),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """Return addresses, routes and DNS, without the interface, which the plugin makes."""
        from kube_rdma.attach.documents import cni_conf

        conf, _, _ = cni_conf.addresses(call)
        (given,) = result.given
        routes = (*conf.routes, *(LinkRoute(one.to, one.via) for one in given.routes))
        if call.interface != FIRST:  # the plugin would put them into the pod's main table
            routes = tuple(one for one in routes if not is_default(one.to))
        addresses = tuple(
            LinkAddress(ip_interface((one.address, one.prefix)), one.gateway)
            for one in given.addresses
        )
        return CniResult(addresses=addresses, routes=routes, dns=conf.dns)

    async def _nic(self, call: Call) -> NicRequest:
        """Return the request for addresses in an ipam block; raise Refused with all faults."""
        from kube_rdma.attach.documents import cni_conf
        from kube_rdma.ipam.ip_conf import nic_request

        conf, wanted, device = cni_conf.addresses(call)
        by_rail = any(rail is not None for rail, _ in conf.pools)
        rail = await self._rail(call, device) if by_rail else None
        pod = await self._needs.node.pod(call.pod, call.uid) if call.pod else None
        if pod:
            requests.refuse_unmeasured(pod)
        owned = owner(pod, call.interface) if pod else None
        if nic := nic_request(conf, call.interface, rail, wanted, owned):
            return nic
        raise Refused(
            "the ipam block names no pool",
            remedy='Write "ipam": {"type": "kube-rdma-ipam", "pool": "rail-0"}',
            where=f"network {call.network}",
        )

    async def _check(self, call: Call) -> None:
        """Raise Broken for lost addresses: any of the node for STATUS, the container's for CHECK.

        Raise KubeError while the node can give none.
        """
        problems = [str(one) for one in await self._needs.giver.check()]
        if call.verb is Verb.CHECK:
            problems = [one for one in problems if call.container in one]
        if problems:
            raise Broken(" ".join(problems))

    async def _rail(self, call: Call, device: str | None) -> int | None:
        """Return the rail of the card that the plugin works on; raise Refused without one."""
        links = (await self._needs.node.host()).links
        link = next((one for one in links if device and is_link(one, device)), None)
        rail = self._needs.node.rail(CardId(link.pci)) if link and link.pci else None
        if rail is not None:
            return rail
        raise Refused(
            f"the ipam block has a pool for each rail, and {device or 'nothing'} is not "
            "the interface of a card with a rail on this node",
            remedy='Add "master": "ens2f0" or the resource of the cards, or name one "pool"',
            where=f"network {call.network}",
        )


class CniRouter:
    """All endpoints of one node; each call goes to the one that it is for.

    `context` says which program calls the agent for pods now.
    """

    def __init__(self, dependencies: AttachDependencies, context: NodeContext) -> None:
        self._needs = dependencies
        self._context = context
        self.pipeline = AttachPipeline(dependencies)
        self.pods = SandboxNetworks(dependencies, self.pipeline)
        self._interfaces = DelegatedNetworks(dependencies, self.pipeline)
        self._addresses = PluginAddresses(dependencies, self.pipeline)

    async def answer(self, call: Call) -> CniResult:
        """Pass a call to the endpoint that it is for, and return its result or raise its error."""
        match role(call):
            case Role.ADDRESSES:
                return await self._addresses.answer(call)
            case Role.DELEGATE:
                self._refuse_stranded(call)
                return await self._interfaces.answer(call)
            case Role.UNTOLD if self._is_delegated(call.container):
                return await self._interfaces.answer(call)
            case _:
                return await self._behind_others(call)

    async def run(self) -> None:
        """Remove single interfaces whose sandbox has ended without a DEL, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.pipeline.sweep()

    async def missed(self, attachment: CniAttachment) -> None:
        """Carry out a DEL that came while the agent was away."""
        if not self._is_delegated(attachment.container):
            await self.pipeline.end(AttachmentKey(attachment.container))
        await self.pipeline.end(AttachmentKey(attachment.container, attachment.interface))

    def _refuse_stranded(self, call: Call) -> None:
        """Raise Unavailable where a pod would get kube-rdma's network in place of the cluster's.

        While no other configuration is left, a runtime takes kube-rdma's `rdma` for the cluster's
        network. It is for Cello to call: a pod that has only `rdma` cannot talk to the cluster.
        """
        from kube_rdma.attach.documents.cni_conf import is_built_in

        lone = call.interface == FIRST and self._context.wiring is not Wiring.DELEGATE
        if lone and is_built_in(call.config):
            raise stranded(call)

    async def _behind_others(self, call: Call) -> CniResult:
        """Answer the runtime, which calls kube-rdma behind the cluster's network.

        An ADD makes nothing where a meta-plugin calls for each network; raise Unavailable then if
        the pod asks for one. The pod is not read if the runtime passes its annotations, these name
        neither network nor preflight, and it can have no claim.
        """
        if call.verb is Verb.ADD and call.annotations is not None:
            notes = call.annotations
            asks = requests.names_networks(notes) or requests.names_default(notes)
            asks |= REQUEST in dict(notes)
            if not asks and not (call.pod and self._needs.node.has_claims(call.pod)):
                return CniResult()
        if call.verb is Verb.ADD and self._context.wiring is Wiring.DELEGATE and call.pod:
            pod = await self._needs.node.pod(call.pod, call.uid)
            if pod:
                requests.refuse_unmeasured(pod)
                if requests.is_asking(pod) or requests.names_default(pod.annotations):
                    raise turned(call)
            return CniResult()
        return await self.pods.answer(call)

    def _is_delegated(self, container: ContainerId) -> bool:
        """Return whether a pod's interfaces have a record each, and not one for all."""
        keys = self._needs.attachments.keys
        one_by_one = any(key.container == container and key.interface for key in keys)
        return one_by_one and AttachmentKey(container) not in keys
