"""Every CNI call of this node goes from here to its door: one socket, three kinds of callers.

Between the socket of the shim and the doors of attach/attach: chain.py (the
runtime), delegate.py (meta-plugins) and ipam_plugin.py (other plugins). What a call is for stands
in attach/rules/cni_conf/callers; where only the records can say, they are asked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.attach.attach import AttachDependencies, AttachPipeline
from kube_rdma.attach.chain import SandboxNetworks
from kube_rdma.attach.context import NodeContext
from kube_rdma.attach.delegate import DelegatedNetworks
from kube_rdma.attach.ipam_plugin import PluginAddresses
from kube_rdma.attach.rules.cni_conf.callers import Role, role, stranded, turned
from kube_rdma.attach.rules.requests import is_asking, names_default, names_networks
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.attach.cni import Call, CniAttachment, CniResult, Verb
from kube_rdma.model.cni_conf import Wiring
from kube_rdma.model.ipam import FIRST
from kube_rdma.model.late_binding.binding import ContainerId

SWEEP_SECONDS = 60.0


class CniRouter:
    """Has the procedure and its doors; `infos` are for DelegatedNetworks.

    `context` says who should call the agent by the host's configuration now.
    """

    def __init__(
        self,
        dependencies: AttachDependencies,
        context: NodeContext,
        infos: DeviceInfoFolder | None = None,
    ) -> None:
        self._needs = dependencies
        self._context = context
        self.pipeline = AttachPipeline(dependencies)
        self.pods = SandboxNetworks(dependencies, self.pipeline)
        self._interfaces = DelegatedNetworks(dependencies, self.pipeline, infos)
        self._addresses = PluginAddresses(dependencies, self.pipeline)

    async def answer(self, call: Call) -> CniResult:
        """What the caller gets; raise KubeError."""
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
        """Look after sandboxes that ended without a DEL, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.pipeline.sweep()

    async def missed(self, attachment: CniAttachment) -> None:
        """Do a DEL that came while nobody answered, of which the note says no more than this."""
        if not self._is_delegated(attachment.container):
            await self.pipeline.end(AttachmentKey(attachment.container))
        await self.pipeline.end(AttachmentKey(attachment.container, attachment.interface))

    def _refuse_stranded(self, call: Call) -> None:
        """Raise Unavailable where a pod would get kube-rdma's network in place of the cluster's.

        While no other configuration is left, a runtime takes `rdma` for the cluster's network. That
        one is for Cello to call: a pod that has only it cannot talk to the cluster.
        """
        from kube_rdma.attach.documents.called_conf import is_built_in

        lone = call.interface == FIRST and self._context.wiring is not Wiring.DELEGATE
        if lone and is_built_in(call.config):
            raise stranded(call)

    async def _behind_others(self, call: Call) -> CniResult:
        """Where a meta-plugin reads the annotation, the agent does not: no interface comes twice.

        What the runtime tells of a pod that asks for nothing is enough; nobody else is asked.
        """
        if call.verb is Verb.ADD and self._asks_nothing(call):
            return CniResult()
        if call.verb is Verb.ADD and self._context.wiring is Wiring.DELEGATE and call.pod:
            pod = await self._needs.node.pod(call.pod, call.uid)
            if pod and (is_asking(pod) or names_default(pod.annotations)):
                raise turned(call)
            return CniResult()
        return await self.pods.answer(call)

    def _asks_nothing(self, call: Call) -> bool:
        """Whether a pod surely has no network of kube-rdma's, by its annotations or by a claim."""
        is_plain = call.annotations is not None and _is_plain(call.annotations)
        return is_plain and not (call.pod and self._needs.node.has_claims(call.pod))

    def _is_delegated(self, container: ContainerId) -> bool:
        """Whether its interfaces end one by one, and not all with the first."""
        keys = self._needs.attachments.keys
        one_by_one = any(key.container == container and key.interface for key in keys)
        return one_by_one and AttachmentKey(container) not in keys


def _is_plain(annotations: Iterable[tuple[str, str]]) -> bool:
    return not names_networks(annotations) and not names_default(annotations)
