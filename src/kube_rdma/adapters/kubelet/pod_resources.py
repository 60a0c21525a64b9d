"""Asks the kubelet who holds which shares: the pod resources API v1 (KEP-606, KEP-2043).

The device plugin API never names a pod; this is how a grant finds its pod. During CNI ADD the
answer already holds the shares of the pod whose sandbox is being made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from grpclib import Status

from kube_base.errors import Unavailable
from kube_rdma.adapters.grpc_calls import CallFailed, answered, calling
from kube_rdma.adapters.kubelet.proto import podresources_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.podresources_v1_grpc import PodResourcesListerStub
from kube_rdma.adapters.kubelet.rpc import RpcConnection
from kube_rdma.model.claims.devices import ClaimedDevice, SliceDevice
from kube_rdma.model.holdings import Allocatable, Holding, NodeHoldings
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import ShareId

T = TypeVar("T")

_SECONDS = 10.0  # a busy node took 0.8 s to answer


class PodResources:
    """A client of the kubelet's pod-resources API.

    Each call outside of `connected` makes its own connection; a restart of the kubelet needs no
    attention in either case. The length of an answer is not limited; the kubelet's own clients take
    16 MiB.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._line: RpcConnection | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keep one connection open for all calls in the block, on the running loop."""
        self._line = RpcConnection(self._socket)
        try:
            yield
        finally:
            self._line.close()
            self._line = None

    async def holdings(self) -> tuple[Holding, ...]:
        """Return the devices of plugins that each container holds, in the kubelet's order.

        Since Kubernetes 1.34 only active pods are listed (KubeletPodResourcesListUseActivePods),
        before that also pods that have ended, with shares that others may hold by now. Init
        containers are left out, except those that restart (sidecars). Raise Unavailable when the
        kubelet does not answer.
        """
        return (await self.all_held()).shares

    async def all_held(self) -> NodeHoldings:
        """Return the devices that containers hold by device plugins and by claims, and pods' names.

        The kubelet lists devices of claims by default since 1.34
        (KubeletPodResourcesDynamicResources). Raise Unavailable when the kubelet does not answer.
        """
        request = pb.ListPodResourcesRequest()
        with self._unavailable():
            answer = await self._ask(lambda stub: stub.List(request, timeout=_SECONDS))
        pods = answer.pod_resources
        return NodeHoldings(
            tuple(held for pod in pods for held in _holdings(pod)),
            tuple(held for pod in pods for held in _claimed(pod)),
            tuple(PodName(pod.namespace, pod.name) for pod in pods),
        )

    async def holdings_of(self, namespace: str, pod: str) -> tuple[Holding, ...]:
        """Return the devices of plugins that a pod's containers hold, () for an unknown pod.

        Get is there since Kubernetes 1.27 and on by default since 1.34; without it all pods are
        listed. Raise Unavailable when the kubelet does not answer.
        """
        request = pb.GetPodResourcesRequest(pod_name=pod, pod_namespace=namespace)
        with self._unavailable():
            try:
                answer = await self._ask(lambda stub: stub.Get(request, timeout=_SECONDS))
            except CallFailed as failure:
                # Both errors are plain Go errors: only their text tells them apart.
                why = failure.reason
                if failure.status is Status.UNKNOWN and why.endswith("not found"):
                    return ()
                is_without_get = why.endswith("Get method disabled")
                if failure.status is not Status.UNIMPLEMENTED and not is_without_get:
                    raise
                wanted = (namespace, pod)
                return tuple(h for h in await self.holdings() if (h.namespace, h.pod) == wanted)
            return tuple(_holdings(answer.pod_resources))

    async def allocatable(self) -> tuple[Allocatable, ...]:
        """Return every healthy device of plugins, in the kubelet's order.

        Raise Unavailable when the kubelet does not answer.
        """
        request = pb.AllocatableResourcesRequest()
        with self._unavailable():
            answer = await self._ask(
                lambda stub: stub.GetAllocatableResources(request, timeout=_SECONDS)
            )
        numa_nodes: dict[tuple[str, ShareId], set[int]] = {}
        for entry in answer.devices:
            for name in entry.device_ids:
                share = (entry.resource_name, ShareId(name))
                numa_nodes.setdefault(share, set()).update(_nodes(entry))
        return tuple(
            Allocatable(resource, share, tuple(sorted(nodes)))
            for (resource, share), nodes in numa_nodes.items()
        )

    async def _ask(self, question: Callable[[PodResourcesListerStub], Awaitable[T]]) -> T:
        if self._line:
            return await self._line.ask(lambda channel: question(PodResourcesListerStub(channel)))
        with calling(self._socket) as channel:
            return await answered(question(PodResourcesListerStub(channel)))

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as failure:
            raise Unavailable(
                f"The kubelet does not report on {self._socket} who holds which shares "
                f"({failure.reason}); see that it runs and that the host's folder of this socket "
                "is mounted (hostPath)."
            ) from failure


def _holdings(pod: pb.PodResources) -> Iterable[Holding]:
    """Yield one Holding for each resource of each container.

    The kubelet makes an entry for each device, and one more for each further NUMA node of it.
    """
    for container in pod.containers:
        shares: dict[str, set[ShareId]] = {}
        nodes: dict[str, set[int]] = {}
        for entry in container.devices:
            names = (ShareId(name) for name in entry.device_ids)
            shares.setdefault(entry.resource_name, set()).update(names)
            nodes.setdefault(entry.resource_name, set()).update(_nodes(entry))
        for resource, ids in shares.items():
            yield Holding(
                pod.namespace,
                pod.name,
                container.name,
                resource,
                tuple(sorted(ids)),
                tuple(sorted(nodes[resource])),
            )


def _claimed(pod: pb.PodResources) -> Iterable[ClaimedDevice]:
    """Yield each device that a container has by a claim, with driver and pool."""
    for container in pod.containers:
        for claim in container.dynamic_resources:
            for entry in claim.claim_resources:
                device = SliceDevice(entry.driver_name, entry.pool_name, entry.device_name)
                yield ClaimedDevice(pod.namespace, pod.name, container.name, device)


def _nodes(entry: pb.ContainerDevices) -> set[int]:
    return {node.ID for node in entry.topology.nodes}
