"""The documents that a pod's annotations name, read as the agent reads them, and nothing made.

Part of programs/explain/evidence. Which document a name means is
programs/agent/pod_networks/requests' to say; here is only where it looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL
from kube_rdma.adapters.cluster.networks import NetworkObjects
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.api import cni_conf
from kube_rdma.api.attach import network_definition
from kube_rdma.api.attach.network_definition import NetworkDefinition
from kube_rdma.api.ipam import ip_pool
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.attach.attachment import Network, NetworkAsk
from kube_rdma.model.cni_conf import ConfFile
from kube_rdma.model.doctor import Blank
from kube_rdma.model.explain import Obstacle, Stage
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.pod import PodState
from kube_rdma.programs.agent.pod_networks.requests import Asking, asking, meant
from kube_rdma.rules.attach.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    refuse_host_network,
)

_OTHERS = (ANNOTATION, POD_NETWORKS_DEFINITION)


class PodDocuments(Frozen):
    """What a pod's annotations come to; `pool_names` is None where nobody looked for pools."""

    asks: tuple[NetworkAsk, ...] = ()
    networks: tuple[Network, ...] = ()
    ip_pools: Mapping[PoolName, IPPool] = field(default_factory=dict)
    misread: tuple[Obstacle, ...] = ()
    pool_names: tuple[PoolName, ...] | None = None
    blanks: tuple[Blank, ...] = ()
    unread: bool = False  # nobody could look for the networks
    others: tuple[str, ...] = ()  # what else there is, where one of them is missing


class _Documents:
    """As NamedNetworks: the cluster's definitions, and the node's files where this is the node."""

    def __init__(
        self, cluster: Cluster, confs: tuple[ConfFile, ...], pools: Mapping[PoolName, IPPool]
    ) -> None:
        self._networks = NetworkObjects(cluster)
        self._confs = confs
        self._pools = pools

    async def definition(self, namespace: str, name: str) -> NetworkDefinition | None:
        try:
            document = await self._networks.read(namespace, name)
        except NotInstalled:
            raise
        except Refused as error:  # a right is missing: no fault of the pod
            raise Unavailable(str(error)) from error
        if document is None:
            return None
        text, host = document.config, cni_conf.text_of(self._confs, name)
        return network_definition.load(namespace, name, text, document.resource, host)

    async def configured(self, namespace: str, name: str) -> NetworkDefinition | None:
        text = cni_conf.text_of(self._confs, name)
        return cni_conf.load(namespace, name, text) if text else None

    async def configurations(self) -> tuple[str, ...]:
        return cni_conf.names(self._confs)

    async def others(self, namespaces: Iterable[str]) -> tuple[str, ...]:
        """All definitions that may be listed: the cluster's, else those of these namespaces."""
        for places in (("",), tuple(namespaces)):
            with suppress(KubeError):  # only a guess hangs on them
                return tuple([one for place in places for one in await self._networks.names(place)])
        return ()

    async def has_pool(self, name: PoolName) -> bool:
        return name in self._pools


async def read_documents(
    cluster: Cluster, template: PodTemplate, host: Path | None = None
) -> PodDocuments:
    """What the pod asks for, with the networks and pools that this means.

    `host` is the root of its node, where that is this machine. It raises nothing: what is refused
    or unseen is in the answer.
    """
    blanks: list[Blank] = []
    pools: dict[PoolName, IPPool] | None = None
    try:
        parsed = await cluster.see(IP_POOL)
        pools = {PoolName(one.name): ip_pool.named(one.spec, one.name) for one in parsed.objects}
    except KubeError as error:
        blanks.append(Blank("pools of addresses", _sentence(error)))
    base = PodDocuments(
        ip_pools=pools or {}, pool_names=tuple(pools) if pools is not None else None
    )
    asks: tuple[NetworkAsk, ...] = ()
    try:
        asked = _asking(template)
        asks = asked.asks
        refuse_host_network(_pod(template), asks, asked.annotation)
        documents = _Documents(cluster, _confs(host), base.ip_pools)
        asks, definitions = await meant(asked, documents)
    except Refused as error:
        faults = tuple(
            Obstacle(Stage.AGENT, one.where, one.problem, one.remedy)
            for one in (error, *error.more)
        )
        return _with(base, asks, {}, tuple(blanks), faults)
    except Unavailable as error:
        blanks.append(Blank("the networks", _sentence(error)))
        return replace(_with(base, asks, {}, tuple(blanks)), unread=True)
    full = _with(base, asks, definitions, tuple(blanks))
    if all(f"{one.namespace}/{one.network}" in definitions for one in asks):
        return full
    others = await documents.others(dict.fromkeys(one.namespace for one in asks))
    return replace(full, others=others)


def _with(
    base: PodDocuments,
    asks: tuple[NetworkAsk, ...],
    definitions: Mapping[str, NetworkDefinition],
    blanks: tuple[Blank, ...],
    misread: tuple[Obstacle, ...] = (),
) -> PodDocuments:
    brought = {one.ipam.pool.name: one.ipam.pool for one in definitions.values() if one.ipam.pool}
    names = base.pool_names
    return PodDocuments(
        asks,
        tuple(one.network for one in definitions.values()),
        {**brought, **base.ip_pools},
        misread,
        (*names, *brought) if names is not None else None,
        blanks,
    )


def _asking(template: PodTemplate) -> Asking:
    """As the agent reads it; elsewhere nobody knows what the cluster's own network is called."""
    annotations = dict(template.annotations)
    alone = not any(annotations.get(key, "").strip() for key in _OTHERS)
    if template.blocks is not None and alone and not template.faults:
        return Asking(POD_NETWORKS, template.blocks)
    return asking(_pod(template), "")


def _pod(template: PodTemplate) -> PodState:
    return PodState(
        template.namespace,
        template.name,
        "",
        template.annotations,
        host_network=template.host_network,
    )


def _confs(host: Path | None) -> tuple[ConfFile, ...]:
    """The node's files of CNI configuration, none where they are not to be seen."""
    if host is None:
        return ()
    try:
        folder = inside(host, find(host).conf)
        return ConfFolder(folder).read() if folder.is_dir() else ()
    except (KubeError, OSError):
        return ()


def _sentence(error: KubeError) -> str:
    return str(error).partition("\n")[0].rstrip(".")
