"""Pods of the cluster, read as model values, and evicted."""

from __future__ import annotations

import msgspec

from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.model.pod import PodState


class Pods:
    """The Pod objects of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, namespace: str, name: str) -> PodState | None:
        """One pod, None when there is none; whether it is the one meant, its uid tells."""
        pod = await self._cluster.get(POD, name, namespace)
        return pod_state(pod) if pod else None

    async def on_node(self, node: str) -> tuple[PodState, ...]:
        """The pods that are scheduled to a node, sorted by namespace and name."""
        pods = await self._cluster.list(POD, Where(fields=f"spec.nodeName={node}"))
        return tuple(map(pod_state, pods))

    async def evict(self, pod: PodState) -> None:
        """Ask for the end of just this pod, as a drain does; nothing to do when it is gone.

        Needs the verb create of pods/eviction. Raise Unavailable while a PodDisruptionBudget does
        not allow it (429): later it may.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        request = wire.ApiRequest(
            "create",
            "",
            "v1",
            POD.plural,
            pod.namespace,
            pod.name,
            "eviction",
            body=msgspec.json.encode(eviction),
        )
        try:
            await self._cluster.write(request)
        except Conflict as conflict:
            if conflict.lost is Lost.EXISTS:
                raise
