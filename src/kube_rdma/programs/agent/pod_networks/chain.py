"""The runtime's door: one call for all networks of a pod, which its annotation names.

The agent is called behind the cluster's own plugin. Interfaces are reported to the pod, by its
annotations, and not to the runtime: the result is about the cluster's network, which stays as the
earlier plugins made it. A pod that asks for nothing is let through at once. Through this door GC
and STATUS come too, and the ADD that repair.py makes late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Broken, KubeError, Unavailable
from kube_rdma.model.attach.attachment import (
    Attachment,
    AttachmentKey,
    GrantedShare,
    HostNetwork,
    NetworkSeat,
    Plan,
    Wish,
)
from kube_rdma.model.attach.cni import Call, CniResult, Verb
from kube_rdma.model.attach.step import PluginConf
from kube_rdma.model.ipam import PodUid
from kube_rdma.model.late_binding.binding import ContainerId, PodName
from kube_rdma.programs.agent.pod_networks.attach import AttachDependencies, AttachPipeline
from kube_rdma.programs.agent.pod_networks.door import (
    Again,
    AskedNetworks,
    AttachRequest,
    AttachResult,
    sandbox_of,
)
from kube_rdma.programs.agent.pod_networks.requests import Asking, asking, meant, refuse_replaced
from kube_rdma.rules.attach.requests import (
    POD_NETWORKS,
    refuse_host_network,
    refuse_isolated,
    wishes,
)
from kube_rdma.rules.attach.seats import seats

if TYPE_CHECKING:
    from kube_rdma.programs.agent.pod_networks.node_view import NodeView

log = structlog.get_logger()


class PodNetworks:
    """What the runtime calls for, and what repair.py compares with its sandboxes."""

    is_within = False

    def __init__(self, to: AttachDependencies, pipeline: AttachPipeline) -> None:
        self._to = to
        self._pipeline = pipeline

    async def answer(self, call: Call) -> CniResult:
        """What the runtime gets; raise KubeError."""
        key = AttachmentKey(call.container)
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.DEL:
                return await self._pipeline.delete(call, key)
            case Verb.CHECK if self._to.attachments.has(key):
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
        pod = await self._to.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        await refuse_replaced(pod, call.network, self._to.node)
        asked = asking(pod, call.network)
        if not asked.asks:
            await self._refuse_idle(call.pod, asked)
            return None
        if asked.annotation != POD_NETWORKS:  # whose names mean the pod's own namespace first
            refuse_isolated(pod, asked.asks, self._to.everybodys)
        refuse_host_network(pod, asked.asks, asked.annotation)
        sandbox, netns = sandbox_of(call, self._to.inode)
        return AttachRequest(
            key=AttachmentKey(call.container),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(pod.uid),
            pod=pod,
            again=Again.ANSWERED,
            networks=AnnotatedNetworks(asked, self._to.node),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """As Door.report: the pod's annotations have it all."""
        assert request.pod
        await self._to.node.tell(request.pod, result.interfaces, call)
        return CniResult()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every attachment of a whole pod that the journal has."""
        by_key = self._to.attachments.by_key
        return tuple(one for key, one in by_key.items() if key.interface is None)

    @property
    def foreign(self) -> frozenset[ContainerId]:
        """The sandboxes whose attachment another version of kube-rdma has made."""
        keys = self._to.attachments.foreign
        return frozenset(key.container for key in keys if key.interface is None)

    def now(self) -> float:
        """Take this before the runtime is asked which containers live, for `collect`."""
        return self._to.giver.now()

    async def end_lost(self, container: ContainerId) -> None:
        """End an attachment whose sandbox no longer exists; raise KubeError."""
        await self._pipeline.end(AttachmentKey(container))

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """As AttachPipeline.collect."""
        await self._pipeline.collect(living, since)

    async def _refuse_idle(self, pod: PodName, asked: Asking) -> None:
        """Refuse a list without a network of kube-rdma beside shares that would be for one."""
        if asked.annotation == POD_NETWORKS:
            asked.check((), self._to.node.granted(await self._to.node.holdings(pod)))

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
        from kube_rdma.api.attach.called_conf import ipam_plugin

        if call.marked:
            return
        if problems := await self._to.giver.check():
            raise Broken(" ".join(map(str, problems)))
        if plugin := ipam_plugin(call):
            await self._to.attachments.status(PluginConf(plugin, call.config))


class AnnotatedNetworks:
    """As NetworkSource: all entries of a pod's annotation at once."""

    def __init__(self, asking: Asking, node: NodeView) -> None:
        self._asking = asking
        self._node = node

    async def asked(self) -> AskedNetworks:
        """The entries with the documents that they name."""
        asks, definitions = await meant(self._asking, self._node)
        return AskedNetworks(asks, definitions)

    def wishes(self, asked: AskedNetworks, granted: Sequence[GrantedShare]) -> tuple[Wish, ...]:
        """What names no card, in a pod without shares, is for the plugin of that name."""
        networks = [one.network for one in asked.definitions.values()]
        wished = wishes(asked.asks, networks, holding=bool(granted))
        self._asking.check(wished, granted)
        return wished

    def seats(
        self,
        wished: Sequence[Wish],
        granted: Sequence[GrantedShare],
        beside: Sequence[Plan],
        host: HostNetwork,
        table: int | None,
    ) -> tuple[NetworkSeat, ...]:
        """In the order of the annotation; all shares are for it."""
        return seats(wished, granted, host)
