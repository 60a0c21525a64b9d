"""Which GPUs of a node are free and which a container holds, out of what the kubelet tells.

Between adapters/kubelet/pod_resources and pools/rules/preference, pools/rules/distance. The kubelet
knows a GPU as a device of some resource, by an id of its plugin's choice; where that id is a PCI
address the survey knows its seat, else its NUMA nodes are all that is known. Of a GPU that came by
a ResourceClaim pools/rules/claimed_gpus has found the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_rdma.model.claims.device import ClaimedDevice
from kube_rdma.model.device import Gpu, PciPosition
from kube_rdma.model.pools.gpu_use import FreeGpu, HeldGpu
from kube_rdma.model.pools.holding import Allocatable, Holding
from kube_rdma.pools.rules.claimed_gpus import ClaimGpus, gpus_of


def is_gpu(resource: str) -> bool:
    """Whether a resource is one of GPUs, by its name: nvidia.com/gpu, amd.com/gpu, …"""
    return resource.rpartition("/")[2] == "gpu"


def free_gpus(
    allocatable: Sequence[Allocatable], holdings: Sequence[Holding], gpus: Sequence[Gpu]
) -> tuple[FreeGpu, ...]:
    """The GPUs that no container holds."""
    held = {(one.resource, share) for one in holdings for share in one.shares}
    return tuple(
        FreeGpu(one.numa_nodes, _seat(one.share, gpus))
        for one in allocatable
        if is_gpu(one.resource) and (one.resource, one.share) not in held
    )


def held_gpus(
    holdings: Sequence[Holding], allocatable: Sequence[Allocatable], gpus: Sequence[Gpu]
) -> tuple[HeldGpu, ...]:
    """The GPUs among what one container holds."""
    nodes = {(one.resource, one.share): one.numa_nodes for one in allocatable}
    return tuple(
        HeldGpu(share, nodes.get((one.resource, share), one.numa_nodes), _seat(share, gpus))
        for one in holdings
        if is_gpu(one.resource)
        for share in one.shares
    )


def whole(gpus: Iterable[Gpu]) -> tuple[FreeGpu, ...]:
    """GPUs of which the place is known."""
    return tuple(FreeGpu(_nodes(gpu), gpu.seat) for gpu in gpus)


def claimed_gpus(
    container: tuple[str, str, str], devices: Iterable[ClaimedDevice], gpus: ClaimGpus
) -> tuple[HeldGpu, ...]:
    """The GPUs that one container (namespace, pod, name) holds by claims."""
    mine = [one.device for one in devices if (one.namespace, one.pod, one.container) == container]
    return tuple(HeldGpu(gpu.seat.pci, _nodes(gpu), gpu.seat) for gpu in gpus_of(mine, gpus))


def _nodes(gpu: Gpu) -> tuple[int, ...]:
    return () if gpu.seat.numa_node is None else (gpu.seat.numa_node,)


def _seat(share: str, gpus: Sequence[Gpu]) -> PciPosition | None:
    return next((gpu.seat for gpu in gpus if gpu.seat.pci == share.lower()), None)
