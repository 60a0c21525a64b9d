"""Reads and writes objects of pod networks: definitions, pods' annotations, restart requests."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_client.errors import NotInstalled
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE, DefinitionSpec
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.model.attach.attachment import RESTART, Network, RestartRequest
from kube_rdma.model.kubernetes import PodState

_DEFINE = "Install Multus, or kube-rdma with crds.networkAttachmentDefinitions=true"


class NetworkObject(Frozen):
    """A NetworkAttachmentDefinition: its configuration and resource."""

    config: bytes  # the CNI configuration in it
    resource: str | None  # which it belongs to


class NetworkObjects:
    """A client for NetworkAttachmentDefinitions and for the status annotations of pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, namespace: str, name: str) -> NetworkObject | None:
        """Return one definition, None if there is none; raise Refused if the kind is missing."""
        try:
            stored = await self._cluster.get(DEFINITION, name, namespace)
        except NotInstalled as error:
            raise NotInstalled(error.problem, remedy=_DEFINE) from error
        if stored is None:
            return None
        return NetworkObject(stored.spec.config.encode(), stored.annotation(RESOURCE))

    async def names(self, namespace: str = "") -> tuple[str, ...]:
        """Return the names of all definitions, or of one namespace's, as namespace/name."""
        every = await self._cluster.list(DEFINITION, Where(namespace=namespace))
        return tuple(f"{one.namespace}/{one.name}" for one in every)

    async def tell(self, pod: PodState, annotations: tuple[tuple[str, str], ...]) -> None:
        """Write annotations of this pod; raise Conflict if the pod is gone."""
        where = (pod.name, pod.namespace)
        await self._cluster.patch(POD, *where, annotations=annotations, uid=pod.uid)


def network_of(stored: Stored[DefinitionSpec, None]) -> Network | None:
    """Return the network that a definition describes; None if its document has faults."""
    from kube_rdma.attach.documents import network_definition  # which agents load at an ADD

    config, resource = stored.spec.config.encode(), stored.annotation(RESOURCE)
    try:
        return network_definition.load(stored.namespace, stored.name, config, resource).network
    except Refused:
        return None


class _Written(msgspec.Struct, omit_defaults=True):
    node: str
    at: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # whoever may patch the pod writes it
    why: str
    outdated: bool = False  # older controllers ignore it, and evict pods only if they run


class Restarts:
    """A client for requests to restart pods: agents write them, the controller reads them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(self, pod: PodState, request: RestartRequest) -> None:
        """Write the request to restart this pod; raise Conflict if the pod is gone.

        Needs the verb patch of pods.
        """
        written = _Written(request.node, request.at, request.why, request.outdated)
        await self._patch(pod, "true", msgspec.json.encode(written).decode())

    async def withdraw(self, pod: PodState) -> None:
        """Remove the request to restart a pod; raise Conflict if the pod is gone.

        Needs the verb patch of pods.
        """
        await self._patch(pod, None, None)

    async def pods(self) -> tuple[PodState, ...]:
        """Return all pods with the label of a restart request, for `request_of`.

        Pods that cannot be decoded are left out. Needs the verb list.
        """
        seen = await self._cluster.see(POD, Where(labels=f"{RESTART}=true"))
        return tuple(map(pod_state, seen.objects))

    async def _patch(self, pod: PodState, label: str | None, text: str | None) -> None:
        changes = {"labels": ((RESTART, label),), "annotations": ((RESTART, text),)}
        await self._cluster.patch(POD, pod.name, pod.namespace, uid=pod.uid, **changes)


def request_of(pod: PodState) -> RestartRequest | None:
    """Return a pod's restart request; None without one, or if it cannot be read."""
    try:
        read = decoded(dict(pod.annotations).get(RESTART, ""), _Written)
    except Undecodable:
        return None
    return RestartRequest(read.node, read.at, read.why, read.outdated)
