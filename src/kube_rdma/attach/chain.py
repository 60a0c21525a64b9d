"""The runtime's door: one call for all networks of a pod, which its annotation names.

The agent is called behind the cluster's own plugin. Interfaces are reported to the pod, by its
annotations, and not to the runtime: the result is about the cluster's network, which stays as the
earlier plugins made it. A pod that asks for nothing is let through at once. Through this door GC
and STATUS come too, and the ADD that repair.py makes late.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.attach.annotated_networks import (
    AnnotatedNetworks,
    asking,
    claimed_definitions,
    meant,
)
from kube_rdma.attach.attach import (
    Again,
    AskedNetworks,
    AttachDependencies,
    AttachPipeline,
    AttachRequest,
    AttachResult,
    sandbox_of,
)
from kube_rdma.attach.rules.claim_interfaces import ask_of, with_claims
from kube_rdma.attach.rules.procedure import NetworkRequest
from kube_rdma.attach.rules.requests import (
    DEFAULT_NETWORK,
    POD_NETWORKS,
    SHARED,
    default_refused,
    names_default,
    refuse_count,
    refuse_host_network,
    refuse_isolated,
)
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey, NetworkAsk
from kube_rdma.model.attach.cni import Call, CniResult, Verb
from kube_rdma.model.attach.steps import PluginConf
from kube_rdma.model.claims.prepared import ClaimDevice
from kube_rdma.model.ipam import PodUid
from kube_rdma.model.late_binding.binding import ContainerId, PodName
from kube_rdma.model.pod import PodState

if TYPE_CHECKING:
    from kube_rdma.attach.node_view import NodeView

log = structlog.get_logger()


class SandboxNetworks:
    """What the runtime calls for, and what repair.py compares with its sandboxes."""

    is_within = False

    def __init__(self, dependencies: AttachDependencies, pipeline: AttachPipeline) -> None:
        self._needs = dependencies
        self._pipeline = pipeline

    async def answer(self, call: Call) -> CniResult:
        """What the runtime gets; raise KubeError."""
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
        """As Door.request: what the pod's annotation asks for."""
        if call.pod is None or call.netns is None:
            return None  # no pod of Kubernetes
        pod = await self._needs.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        await _refuse_replaced(pod, call.network, self._needs.node)
        asked = asking(pod, call.network)
        devices = await self._needs.node.claimed(call.pod)
        if not asked.asks:
            await self._refuse_idle(call.pod, asked)
            if not devices:
                held = await self._needs.node.settle(sandbox_of(call, self._needs.inode)[0], pod)
                if held and self._needs.limits:  # of a claim that another pod brought here
                    await self._needs.limits.hold(pod.runtime_uid, self._needs.node.granted(held))
                return None
        refuse_host_network(pod, asked.asks, asked.annotation)
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(pod.uid),
            pod=pod,
            again=Again.ANSWERED,
            networks=partial(_asked, asked, devices, self._needs),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """As Door.report: the pod's annotations have it all."""
        assert request.pod
        await self._needs.node.tell(request.pod, result.interfaces, call)
        return CniResult()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every attachment of a whole pod that the journal has."""
        by_key = self._needs.attachments.by_key
        return tuple(one for key, one in by_key.items() if key.interface is None)

    @property
    def foreign(self) -> frozenset[ContainerId]:
        """The sandboxes whose attachment another version of kube-rdma has made."""
        keys = self._needs.attachments.foreign
        return frozenset(key.container for key in keys if key.interface is None)

    def now(self) -> float:
        """Take this before the runtime is asked which containers live, for `collect`."""
        return self._needs.giver.now()

    async def end_lost(self, container: ContainerId) -> None:
        """End an attachment whose sandbox no longer exists; raise KubeError."""
        await self._pipeline.end(AttachmentKey(container))

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """As AttachPipeline.collect."""
        await self._pipeline.collect(living, since)

    async def _refuse_idle(self, pod: PodName, asked: AnnotatedNetworks) -> None:
        """Refuse a list without a network of kube-rdma beside shares that would be for one."""
        if asked.annotation == POD_NETWORKS:
            refuse_count((), self._needs.node.granted(await self._needs.node.holdings(pod)))

    async def _gc(self, call: Call) -> None:
        """End what the runtime does not know any more; one that cannot be ended holds up no other.

        An attachment without an answered ADD may be under way, and is the recovery's.
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
        """In the cluster's own network an error would make the node NotReady, for all pods."""
        from kube_rdma.attach.documents.called_conf import ipam_plugin

        if call.marked:
            return
        if problems := await self._needs.giver.check():
            raise Broken(" ".join(map(str, problems)))
        if plugin := ipam_plugin(call):
            await self._needs.attachments.status(PluginConf(plugin, call.config))


async def _asked(
    annotated: AnnotatedNetworks, devices: Sequence[ClaimDevice], needs: AttachDependencies
) -> AskedNetworks:
    """All entries of a pod's annotation and of its claims, with the documents that they name."""
    asks, definitions = await meant(annotated, needs.node, needs.everybodys)
    if devices:
        claimed = tuple(map(ask_of, devices))
        refuse_isolated(annotated.namespace, claimed, needs.everybodys)
        definitions |= await claimed_definitions(devices, needs.node)
        asks = with_claims(asks, claimed)
    networks = tuple(one.network for one in definitions.values())
    ipam = {name: one.ipam for name, one in definitions.items()}
    return AskedNetworks(NetworkRequest(asks, networks), ipam)


async def _refuse_replaced(pod: PodState, cluster: str, node: NodeView) -> None:
    """Raise Refused for a pod that wants another network in place of the cluster's.

    Multus reads this annotation, looks for a lone name in its own namespace, and calls that network
    first. Behind the cluster's network it can only be obeyed where it names this very one.
    """
    from kube_rdma.attach.documents import networks

    if not names_default(pod.annotations):
        return
    text = dict(pod.annotations)[DEFAULT_NETWORK]
    wanted = networks.asks(text, SHARED, DEFAULT_NETWORK)
    if len(wanted) != 1:
        raise Refused(
            f"it names {len(wanted)} networks, and a pod has one default network",
            remedy="Keep one of them",
            where=f"pod {pod.namespace}/{pod.name}: {DEFAULT_NETWORK}",
        )
    if not await _is_cluster_network(wanted[0], cluster, node):
        raise default_refused(pod, f"{wanted[0].namespace}/{wanted[0].network}", cluster)


async def _is_cluster_network(ask: NetworkAsk, cluster: str, node: NodeView) -> bool:
    """Whether an entry means the network of this name in the node's CNI configuration.

    A document does so by an empty text, or with the name and the plugin of that configuration.
    """
    from kube_rdma.attach.documents.called_conf import network_name, plugin_type

    document = await node.written(ask.namespace, ask.network)
    if document is None:
        return (ask.namespace, ask.network) == (SHARED, cluster)
    config, _ = document
    if not config.strip():
        return ask.network == cluster
    if (network_name(config) or ask.network) != cluster:
        return False
    return plugin_type(config) == plugin_type(await node.configured_text(cluster) or b"")
