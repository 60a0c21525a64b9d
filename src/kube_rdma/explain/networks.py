"""Reads the documents of a cluster that a pod's annotations name, as the agent reads them.

explain/evidence calls it, and explain/meaning says what the annotations mean. The rules of
attach/annotated_networks decide which document a name stands for, and look it up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.attach.documents import cni_conf, network_definition
from kube_rdma.attach.documents.network_definition import NetworkDefinition
from kube_rdma.attach.rules.requests import names_networks
from kube_rdma.explain.meaning import with_meaning
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.attach.cni import ConfFile
from kube_rdma.model.explain import PodEvidence
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.resources.reader import agents


class _Documents:
    """Network definitions of a cluster, and CNI configuration if the node is this machine."""

    def __init__(
        self, cluster: Cluster, confs: tuple[ConfFile, ...], pools: Mapping[PoolName, IPPool]
    ) -> None:
        self._networks = NetworkObjects(cluster)
        self._confs = confs
        self._pools = pools

    async def definition(
        self, namespace: str, name: str, resource: str | None = None
    ) -> NetworkDefinition | None:
        try:
            document = await self._networks.read(namespace, name)
        except NotInstalled:
            raise
        except Refused as error:  # a right is missing: no fault of the pod
            raise Unavailable(str(error)) from error
        if document is None:
            return None
        text, host = document.config, cni_conf.text_of(self._confs, name)
        tied = document.resource or resource
        return network_definition.load(namespace, name, text, tied, host)

    async def configured(self, namespace: str, name: str) -> NetworkDefinition | None:
        text = cni_conf.text_of(self._confs, name)
        return cni_conf.load(namespace, name, text) if text else None

    async def configurations(self) -> tuple[str, ...]:
        return cni_conf.names(self._confs)

    async def others(self, namespaces: Iterable[str]) -> tuple[str, ...]:
        """Return the names of all networks that may be listed, else those of these namespaces.

        Return () where none may be listed.
        """
        for places in (("",), tuple(namespaces)):
            with suppress(KubeError):  # only "did you mean" needs them
                return tuple([one for place in places for one in await self._networks.names(place)])
        return ()

    async def has_pool(self, name: PoolName) -> bool:
        return name in self._pools


async def with_documents(
    evidence: PodEvidence, cluster: Cluster, reader: PartReader, host: Path | None = None
) -> PodEvidence:
    """Return the evidence with the networks that the pod asks for, and the IPPools; raise nothing.

    `host` is the root of the pod's node, where that is this machine. Refusals are in the returned
    evidence. Parts that could not be read are also noted with the reader.
    """
    pools = await reader.asked("pools of addresses", lambda: read_pools(cluster))
    seen = replace(evidence, ip_pools=pools or {}, pools_seen=pools is not None)
    global_namespaces = None
    if evidence.claims or names_networks(evidence.template.annotations):
        what = "whether networks are kept to their namespaces"
        every = await reader.asked(what, lambda: agents(cluster))
        global_namespaces = every.global_namespaces if every else None
    documents = _Documents(cluster, _confs(host), seen.ip_pools)
    return await with_meaning(seen, documents, reader, global_namespaces)


async def read_pools(cluster: Cluster) -> dict[PoolName, IPPool]:
    """Return the IPPools of the cluster by name; raise KubeError if they cannot be read."""
    parsed = await cluster.see(IP_POOL)
    return {PoolName(one.name): ip_pool.named(one.spec, one.name) for one in parsed.objects}


def _confs(host: Path | None) -> tuple[ConfFile, ...]:
    """Return the node's files of CNI configuration; () where they cannot be read."""
    if host is None:
        return ()
    try:
        folder = inside(host, find(host).conf)
        return ConfFolder(folder).read() if folder.is_dir() else ()
    except (KubeError, OSError):
        return ()
