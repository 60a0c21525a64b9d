"""Which devices of other drivers' slices are GPUs of this node, and which of them a pod will get.

Between adapters/cluster/kinds/resource_slice and pools/rules/gpus. No driver's name decides: a
device is a GPU if one of its attributes is the PCI address of a GPU that the survey has seen
(``resource.kubernetes.io/pciBusID`` of KEP-4381 or the driver's own word for it). So a part of a
GPU, which carries the address of the whole, counts as being there too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_rdma.model.claims.device import ClaimedDevice, ClaimedPod, DeviceSlice, SliceDevice
from kube_rdma.model.device import Gpu

ClaimGpus = Mapping[SliceDevice, Gpu]
"""The GPUs of a node that drivers hand out by claims."""


def claim_gpus(slices: Iterable[DeviceSlice], gpus: Sequence[Gpu]) -> dict[SliceDevice, Gpu]:
    """The GPUs among the devices of the slices; those of an outdated generation are gone."""
    by_address: dict[str, Gpu] = {gpu.seat.pci: gpu for gpu in gpus}
    devices: dict[SliceDevice, Gpu] = {}
    for part in newest(slices):
        for name, addresses in part.addresses:
            places = map(by_address.get, addresses)
            gpu = next(filter(None, places), None)
            if gpu:
                devices[SliceDevice(part.driver, part.pool, name)] = gpu
    return devices


def newest(slices: Iterable[DeviceSlice]) -> Iterator[DeviceSlice]:
    """The slices that count: of each pool those of its newest generation."""
    listed = tuple(slices)
    generations: dict[tuple[str, str], int] = {}
    for part in listed:
        key = (part.driver, part.pool)
        generations[key] = max(part.generation, generations.get(key, part.generation))
    yield from (one for one in listed if one.generation == generations[one.driver, one.pool])


def free_claim_gpus(gpus: ClaimGpus, held: Iterable[ClaimedDevice]) -> tuple[Gpu, ...]:
    """The GPUs of which no container holds anything by a claim."""
    taken = {gpus[one.device].seat.pci for one in held if one.device in gpus}
    free = {gpu.seat.pci: gpu for gpu in gpus.values() if gpu.seat.pci not in taken}
    return tuple(free.values())


def starting(
    pods: Iterable[ClaimedPod], resource: str, held: Iterable[ClaimedDevice]
) -> tuple[ClaimedPod, ...]:
    """The pods for whose containers the kubelet may ask now: they want it, and have no device yet.

    The kubelet allocates shares when it admits a pod and prepares its claims afterwards
    (pkg/kubelet/kubelet.go, SyncPod), so pods whose claims are prepared are past this.
    """
    past = {(one.namespace, one.pod) for one in held}
    return tuple(
        pod for pod in pods if resource in pod.resources and (pod.namespace, pod.name) not in past
    )


def gpus_of(devices: Collection[SliceDevice], gpus: ClaimGpus) -> tuple[Gpu, ...]:
    """The GPUs among the devices of claims."""
    chosen = {gpus[device].seat.pci: gpus[device] for device in devices if device in gpus}
    return tuple(chosen.values())
