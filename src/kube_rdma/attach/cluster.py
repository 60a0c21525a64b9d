"""Networks that pods name: NetworkAttachmentDefinitions, and what is written back to the pods."""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client.errors import NotInstalled
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.network_definition import (
    DEFINITION,
    RESOURCE,
    DefinitionSpec,
)
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.pod import PodState

_DEFINE = "Install Multus, or kube-rdma with crds.networkAttachmentDefinitions=true"


class NetworkObject(Frozen):
    """One object: the CNI configuration in it, and the resource that it belongs to."""

    config: bytes
    resource: str | None


class NetworkObjects:
    """The definitions of a cluster, and the status of its pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, namespace: str, name: str) -> NetworkObject | None:
        """One definition, None when there is none; Refused where the resource is not installed."""
        try:
            stored = await self._cluster.get(DEFINITION, name, namespace)
        except NotInstalled as error:
            raise NotInstalled(error.problem, remedy=_DEFINE) from error
        if stored is None:
            return None
        return NetworkObject(stored.spec.config.encode(), stored.annotation(RESOURCE))

    async def names(self, namespace: str = "") -> tuple[str, ...]:
        """Those of all definitions, or of a namespace's, as namespace/name."""
        where = Where(namespace=namespace)
        every = await self._cluster.list(DEFINITION, where)
        return tuple(f"{one.namespace}/{one.name}" for one in every)

    async def tell(self, pod: PodState, annotations: tuple[tuple[str, str], ...]) -> None:
        """Write annotations of just this pod; Conflict when another one has its name by now."""
        where = (pod.name, pod.namespace)
        await self._cluster.patch(POD, *where, annotations=annotations, uid=pod.uid)


def network_of(stored: Stored[DefinitionSpec, None]) -> Network | None:
    """The network that a definition describes; None for one that nobody attaches."""
    from kube_rdma.attach.documents import network_definition  # which agents load at an ADD

    config, resource = stored.spec.config.encode(), stored.annotation(RESOURCE)
    try:
        return network_definition.load(stored.namespace, stored.name, config, resource).network
    except Refused:
        return None
