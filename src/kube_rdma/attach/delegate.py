"""The door of meta-plugins: one network a call, for a caller that has read the pod's annotation.

The caller gets a whole CNI result and writes the pod's network-status; the agent writes the
annotation about RDMA alone. Its configuration does not say which of the pod's networks it is about,
`origin` does: the pod's annotation and the document that it names say to which resource the network
is tied. Share ids of two resources may be the same, so without it a `deviceID` could mean the wrong
card.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.attach.attach import (
    Again,
    AskedNetworks,
    AttachDependencies,
    AttachPipeline,
    AttachRequest,
    AttachResult,
    sandbox_of,
)
from kube_rdma.attach.rules import delegate
from kube_rdma.attach.rules.procedure import NetworkRequest
from kube_rdma.attach.rules.requests import DEFAULT_NETWORK, SHARED, refuse_isolated
from kube_rdma.model.attach.attachment import Attached, AttachmentKey, NetworkAsk
from kube_rdma.model.attach.cni import Call, CniResult, Verb
from kube_rdma.model.ipam import FIRST, PodUid, PoolName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pools.pool import DeviceInfo

if TYPE_CHECKING:
    from kube_rdma.attach.node_view import NodeView

log = structlog.get_logger()


class DelegatedNetworks:
    """What meta-plugins call for; without `infos` they learn nothing of devices."""

    is_within = False

    def __init__(
        self,
        dependencies: AttachDependencies,
        pipeline: AttachPipeline,
        infos: DeviceInfoFolder | None = None,
    ) -> None:
        self._needs = dependencies
        self._pipeline = pipeline
        self._infos = infos

    async def answer(self, call: Call) -> CniResult:
        """What the caller gets for ADD, CHECK and DEL; raise KubeError."""
        key = AttachmentKey(call.container, call.interface)
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.CHECK:
                return await self._pipeline.check(call, key)
            case _:
                return await self._pipeline.delete(call, key)

    async def request(self, call: Call) -> AttachRequest | None:
        """As Door.request: the one network whose configuration came."""
        if call.pod is None:
            raise Refused(
                "the call names no pod of Kubernetes",
                remedy="The caller has to pass CNI_ARGS on as the runtime gave them",
                where=f"network {call.network}",
            )
        pod = await self._needs.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container, call.interface),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(pod.uid),
            pod=pod,
            again=Again.ANEW,
            networks=partial(_asked, call, pod, self._needs),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """As Door.report: the caller gets a whole result, the pod the annotation about RDMA."""
        (interface,), (plan,) = result.interfaces, result.plans
        await self._describe_device(call, interface)
        others = frozenset(one.interface for one in result.beside)
        assert request.pod
        await self._needs.node.tell_own(request.pod, result.interfaces, others)
        return delegate.result(plan, interface, call.netns_path)

    async def _describe_device(self, call: Call, interface: Attached) -> None:
        """Write the file of the capability CNIDeviceInfoFile; without it the pod runs as well."""
        from kube_rdma.attach.documents.called_conf import device_info_file

        path = device_info_file(call)
        if path and self._infos and interface.pci:
            names = (interface.rdma_device,) if interface.rdma_device else ()
            info = DeviceInfo(interface.pci, names, interface.physical)
            try:
                await asyncio.to_thread(self._infos.write_for_plugin, path, info)
            except Unavailable as error:
                log.warning("device info file not written", why=str(error))


async def _asked(call: Call, pod: PodState, needs: AttachDependencies) -> AskedNetworks:
    """The network that the configuration means, its pool made, and what the pod asks of it."""
    from kube_rdma.attach.documents import called_conf, cni_conf

    node = needs.node
    came = await origin(call, pod, node)
    definition, ask = called_conf.network(call, came.name, came.resource)
    refuse_isolated(pod.namespace, (ask,), needs.everybodys)  # whatever its caller lets pods name
    if called_conf.is_built_in(call.config):
        pool = await node.has_pool(PoolName(cni_conf.BUILT_IN))
        definition = cni_conf.built_in(ask.namespace, pool=pool)
    await node.bring(definition.ipam)
    network = definition.network
    request = NetworkRequest((ask,), (network,), called=True, table=came.table)
    return AskedNetworks(request, {network.name: definition.ipam})


class Origin(Frozen):
    """The network's name with its namespace, and its resource where it is tied to one.

    `table`: the caller leads what comes from the interface's addresses through this routing table.
    """

    name: str
    resource: str | None = None
    table: int | None = None


async def origin(call: Call, pod: PodState, node: NodeView) -> Origin:
    """Which of the pod's networks a call is about; raise Unavailable when nobody tells."""
    from kube_rdma.attach.documents import called_conf, networks, pod_networks

    annotations = dict(pod.annotations)
    asks: tuple[NetworkAsk, ...] = ()
    with suppress(Refused):  # the caller has understood it
        asks = networks.asks(annotations.get(networks.ANNOTATION, ""), pod.namespace)
    with suppress(Refused):  # likewise
        first = networks.asks(annotations.get(DEFAULT_NETWORK, ""), SHARED)
        asks += tuple(replace(one, interface=FIRST) for one in first)
    if by_definition := await _of_definition(call, asks, node):
        return by_definition
    name = f"{pod.namespace}/{call.network}"
    resource = called_conf.resource(call.config)
    for block in called_conf.blocks(annotations.get(pod_networks.ANNOTATION, "")):
        if (block.interface, block.network) == (call.interface, call.network):
            if resource is None and (text := await node.configured_text(call.network)):
                resource = called_conf.resource(text)
            return Origin(name, resource, block.table)
    return Origin(name, resource)


async def _of_definition(call: Call, asks: Sequence[NetworkAsk], node: NodeView) -> Origin | None:
    """The entry whose network this is, by the name in its configuration.

    The interface alone does not say it: a caller that gives each pod networks of its own besides
    counts those first. Of a deleted document only the interface is left.
    """
    from kube_rdma.attach.documents.called_conf import network_name

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
