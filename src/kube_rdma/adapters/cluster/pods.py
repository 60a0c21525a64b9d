"""Pods of the cluster, read as model values, and evicted."""

from __future__ import annotations

import msgspec

from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.kinds import ObjectCodec, ObjectKind, Stored, Where
from kube_client.objects import Cluster
from kube_rdma.model.attach.restart import RESTART
from kube_rdma.model.pod import MIRROR, PodState


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of spec that is read."""

    node_name: str = ""
    host_network: bool = False


class PodStatus(msgspec.Struct, frozen=True):
    """The part of status that is read."""

    phase: str = ""


READ = frozenset(
    (
        "k8s.v1.cni.cncf.io/networks",
        "k8s.v1.cni.cncf.io/network-status",
        "k8s.volcengine.com/pod-networks",
        "k8s.volcengine.com/pod-networks-definition",
        "k8s.volcengine.com/network-status",
        "v1.multus-cni.io/default-network",
        "kube-rdma.io/network-status",
        "kube-rdma.io/settings",
        RESTART,
        MIRROR,
    )
)
"""The annotations of pods that anybody here reads; all others may have 256 KiB in each pod."""

POD = ObjectKind(
    "",
    "v1",
    "Pod",
    "pods",
    namespaced=True,
    spec=ObjectCodec.of(PodSpec, writes=False),
    status=ObjectCodec.of(PodStatus, writes=False),
    page=8,  # of 1.5 MiB each at worst: 250 KiB of "<", which Go writes as six bytes
    annotations=READ.__contains__,
)


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


def pod_state(pod: Stored[PodSpec, PodStatus]) -> PodState:
    """The model value of a Pod object."""
    return PodState(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        annotations=pod.annotations,
        labels=pod.labels,
        host_network=pod.spec.host_network,
        node=pod.spec.node_name,
        phase=pod.status.phase if pod.status else "",
        deleting=pod.deleting,
        controlled=any(owner.controller for owner in pod.owners),
    )
