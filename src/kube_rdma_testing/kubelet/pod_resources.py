"""The fake kubelet's pod resources API v1: who holds what, from the devices that it gave away.

Follows pkg/kubelet/apis/podresources and cm/container_manager.go of Kubernetes 1.36: an entry for
each device, one for each of its NUMA nodes if it has several. Init containers are not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grpclib import GRPCError, Status
from grpclib.server import Stream

from kube_rdma.adapters.kubelet.proto import podresources_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.podresources_v1_grpc import PodResourcesListerBase
from kube_rdma.model.claims.devices import ClaimedDevice
from kube_rdma_testing.kubelet.devices import Devices


class FakePodResources(PodResourcesListerBase):
    """A fake of the kubelet's pod resources API; `has_get` False is one before Kubernetes 1.34.

    `claimed` are devices that containers have by prepared claims of any driver; such a container is
    listed whether it holds shares or not. List shows only the pods in `heard`, as (namespace,
    name), since a kubelet that has just started knows few; None means all.
    """

    def __init__(self, devices: Devices) -> None:
        self.has_get = True
        self.claimed: list[ClaimedDevice] = []
        self.heard: set[tuple[str, str]] | None = None
        self._devices = devices

    async def List(  # noqa: N802  names of the wire
        self, stream: Stream[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse]
    ) -> None:
        """Answer with each pod, if in `heard`, that holds a device or has a prepared claim."""
        await stream.recv_message()
        holders = [(place.namespace, place.pod) for place, _ in self._devices.holdings]
        names = dict.fromkeys((*holders, *((one.namespace, one.pod) for one in self.claimed)))
        pods = [self._pod(*name) for name in names if self.heard is None or name in self.heard]
        await stream.send_message(pb.ListPodResourcesResponse(pod_resources=pods))

    async def Get(  # noqa: N802
        self, stream: Stream[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse]
    ) -> None:
        """Answer with one pod, or with an error if it has neither a device nor a prepared claim."""
        request = await stream.recv_message()
        assert request
        if not self.has_get:
            raise GRPCError(Status.UNKNOWN, "PodResources API Get method disabled")
        pod = self._pod(request.pod_namespace, request.pod_name)
        if not pod.containers:
            sentence = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            raise GRPCError(Status.UNKNOWN, sentence)
        await stream.send_message(pb.GetPodResourcesResponse(pod_resources=pod))

    async def GetAllocatableResources(  # noqa: N802
        self, stream: Stream[pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse]
    ) -> None:
        """Answer with every healthy device."""
        await stream.recv_message()
        entries = [
            entry
            for resource in self._devices.devices
            for entry in self._entries(resource, self._devices.healthy(resource))
        ]
        await stream.send_message(pb.AllocatableResourcesResponse(devices=entries))

    def _pod(self, namespace: str, name: str) -> pb.PodResources:
        containers: dict[str, pb.ContainerResources] = {}
        for (place, resource), ids in self._devices.holdings.items():
            if (place.namespace, place.pod) == (
                namespace,
                name,
            ) and place not in self._devices.init:
                empty = pb.ContainerResources(name=place.container)
                container = containers.setdefault(place.container, empty)
                container.devices.extend(self._entries(resource, ids))
        for held in self.claimed:
            if (held.namespace, held.pod) == (namespace, name):
                empty = pb.ContainerResources(name=held.container)
                container = containers.setdefault(held.container, empty)
                device = held.device
                entry = pb.ClaimResource(
                    driver_name=device.driver, pool_name=device.pool, device_name=device.name
                )
                container.dynamic_resources.add(claim_name="gpus", claim_namespace=namespace)
                container.dynamic_resources[-1].claim_resources.append(entry)
        return pb.PodResources(namespace=namespace, name=name, containers=containers.values())

    def _entries(self, resource: str, ids: Iterable[str]) -> Iterator[pb.ContainerDevices]:
        nodes = self._devices.nodes.get(resource, {})
        for name in ids:
            if not nodes.get(name):
                yield pb.ContainerDevices(resource_name=resource, device_ids=[name])
            for node in nodes.get(name, ()):
                topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
                yield pb.ContainerDevices(
                    resource_name=resource, device_ids=[name], topology=topology
                )
