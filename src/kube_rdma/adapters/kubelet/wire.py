"""Model values to messages of the device plugin API, and KubeErrors to gRPC status.

Pure, so that the exact answers that the kubelet gets can be read and tested in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grpclib import GRPCError, Status

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.model.pools.pool import Grant, Offer, Share

VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

# Read and write; never m, with which a container could make device nodes of other cards.
PERMISSIONS = "rw"

# The kubelet shows the message in the pod's event, whatever the status is.
STATUS: tuple[tuple[type[KubeError], Status], ...] = (
    (Refused, Status.FAILED_PRECONDITION),
    (Unavailable, Status.UNAVAILABLE),
    (Broken, Status.INTERNAL),
)


def options(offer: Offer) -> pb.DevicePluginOptions:
    """Which further calls the kubelet should make."""
    return pb.DevicePluginOptions(
        pre_start_required=offer.gated, get_preferred_allocation_available=offer.prefers
    )


def device_list(offer: Offer) -> pb.ListAndWatchResponse:
    """The shares of `offer` as the kubelet's devices."""
    return pb.ListAndWatchResponse(devices=[_device(share) for share in offer.shares])


def _device(share: Share) -> pb.Device:
    device = pb.Device(ID=share.id, health=HEALTHY if share.healthy else UNHEALTHY)
    if share.numa_nodes:
        nodes = [pb.NUMANode(ID=node) for node in share.numa_nodes]
        device.topology.CopyFrom(pb.TopologyInfo(nodes=nodes))
    return device


def container_response(grant: Grant) -> pb.ContainerAllocateResponse:
    """What `grant` gives: device nodes under the path of the host, variables, mounts, names.

    A CDI device that does not exist yet may be named: nothing looks it up before the container is
    created (KEP-4009).
    """
    return pb.ContainerAllocateResponse(
        devices=[
            pb.DeviceSpec(container_path=path, host_path=path, permissions=PERMISSIONS)
            for path in grant.char_paths
        ],
        envs=dict(grant.env),
        mounts=[
            pb.Mount(container_path=one.container_path, host_path=one.host_path, read_only=True)
            for one in grant.mounts
        ],
        cdi_devices=[pb.CDIDevice(name=name) for name in grant.cdi],
    )


@contextmanager
def errors() -> Iterator[None]:
    """Turn a KubeError inside the block into one of the wire."""
    try:
        yield
    except KubeError as error:
        raise grpc_error(error) from error


def grpc_error(error: KubeError) -> GRPCError:
    """`error` for the wire; the message stays the sentence."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return GRPCError(status, str(error))
