"""Who calls the agent for pods by the host's CNI configuration, and what follows for one pod.

Part of attach/node_networks. Its keeper decides by this what the folder should
hold; the gate before a container's start asks whether a pod waits for networks of kube-rdma, the
rounds ask who waits in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from kube_base.errors import Refused
from kube_base.notices import Notices
from kube_rdma.adapters.cni.conf.binary import names
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.attach.context import NodeContext
from kube_rdma.attach.host_places import HostPlaces
from kube_rdma.attach.rules.cni_conf import meta_plugins
from kube_rdma.attach.rules.cni_conf.binaries import proven
from kube_rdma.attach.rules.cni_conf.conflist import name_of, named_by_pods, plan, with_leftovers
from kube_rdma.model.attach.attachment import NetworkAsk
from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.pod import PodState

log = structlog.get_logger()


class CniWiring:
    """One per agent; `host` is the host's root as seen here, `places` where its runtime looks.

    What is decided is in `context` for all others.
    """

    def __init__(
        self, host: Path, definitions: NetworkObjects, places: HostPlaces, context: NodeContext
    ) -> None:
        self._host = host
        self._places = places
        self._definitions = definitions
        self._context = context
        self._readers: Mapping[str, str] = {}
        self._notices = Notices()

    def decide(self, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
        """What the folder should hold, which is what counts from now on; raise Refused."""
        self._context.wiring, self._readers = Wiring.NONE, {}
        conf_plan = proven(plan(files), files, binaries)
        self._context.wiring, self._readers = conf_plan.wiring, dict(conf_plan.readers)
        self._context.network = name_of(files, conf_plan.default)
        _, over = named_by_pods(files, binaries)
        return with_leftovers(conf_plan, over)

    def confs(self) -> tuple[ConfFile, ...]:
        """The files that a pod may mean by a name; reads the disk, raise Unavailable."""
        files, over = named_by_pods(self._files(), self._installed())
        if skipped := self._notices.news("passed over", *over):
            log.warning("CNI configurations without their plugin skipped", files=skipped)
        return files

    def unread(self, pod: PodState) -> Refused | None:
        """Why a pod gets none of its networks, where meta-plugins read another annotation."""
        return meta_plugins.unread(pod, self._readers)

    async def concerned(self, pod: PodState) -> bool:
        """Whether one of the networks that a pod asks for is for kube-rdma to make.

        Behind a meta-plugin only those of its own type are: for all others it calls other plugins.
        Raise Refused where nobody reads what the pod says, and where the agent may not read the
        networks.
        """
        from kube_rdma.attach.documents import cni_conf, networks, pod_networks
        from kube_rdma.attach.documents.called_conf import blocks, plugin_type

        if self._context.wiring is not Wiring.DELEGATE:
            return True
        if error := self.unread(pod):
            raise error
        asked = dict(pod.annotations)
        asks: tuple[NetworkAsk, ...] = ()
        with suppress(Refused):  # the meta-plugin has understood it, in its own way
            asks = networks.asks(asked.get(networks.ANNOTATION, ""), pod.namespace)
        for ask in asks:
            definition = await self._definitions.read(ask.namespace, ask.network)
            if definition and plugin_type(definition.config) == PLUGIN:
                return True
        named = {one.network for one in blocks(asked.get(pod_networks.ANNOTATION, ""))}
        files = await asyncio.to_thread(self._files) if named else ()
        texts = (cni_conf.text_of(files, name) for name in named)
        return any(text is not None and plugin_type(text) == PLUGIN for text in texts)

    def _files(self) -> tuple[ConfFile, ...]:
        return ConfFolder(inside(self._host, self._places.now.conf)).read()

    def _installed(self) -> frozenset[str]:
        places = self._places.now
        return names(inside(self._host, one) for one in (places.binaries, *places.more))
