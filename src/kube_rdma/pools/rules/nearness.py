"""Finds how near PCI functions are: what a GPU and a card have to cross to reach each other.

With prefer numa, GetPreferredAllocation ranks cards by how near GPUs are. The log says after a
grant how near the card is. `kube-rdma devices --topology` shows all distances
(hardware/rules/node_picture).
The classes are named as by `nvidia-smi topo -m`. A PCIe switch counts as one bridge, although the
kernel shows each of its ports as a bridge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.claim import PodClaims
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice, SliceDevice
from kube_rdma.model.device import Gpu, PciPosition
from kube_rdma.model.holdings import Allocatable, FreeGpu, HeldGpu, Holding

# Steps below the last shared bridge, for functions of one switch: a downstream port is one of them.
_ONE_SWITCH = 2


class Nearness(StrEnum):
    """The widest link on the path between two PCI functions, from near to far."""

    SELF = "X"  # nothing: they are one function
    PIX = "PIX"  # one bridge or switch at most
    PXB = "PXB"  # several bridges below one root port
    PHB = "PHB"  # the host bridge
    NODE = "NODE"  # several host bridges of one NUMA node
    SYS = "SYS"  # the interconnect of NUMA nodes

    @property
    def distance(self) -> int:
        """Return the place in the order from near (0) to far; enum values sort by alphabet."""
        return tuple(Nearness).index(self)


def nearness(a: PciPosition, b: PciPosition) -> Nearness:
    """Return how near two PCI functions are to each other, in either order.

    Two functions whose NUMA nodes the kernel does not know count as on the same one: without NUMA a
    machine reports that for all.
    """
    if a.pci == b.pci:
        return Nearness.SELF
    if a.root != b.root:
        return Nearness.NODE if a.numa_node == b.numa_node else Nearness.SYS
    steps = zip(a.path, b.path, strict=False)
    shared = sum(1 for _ in takewhile(lambda step: step[0] == step[1], steps))
    if not shared:
        return Nearness.PHB
    below = max(len(a.path), len(b.path)) - shared
    return Nearness.PIX if below <= _ONE_SWITCH else Nearness.PXB


# Cards beside GPUs: a rank before a grant, and the distance that a container really has.


class Side(StrEnum):
    """The relation of a card and a GPU by NUMA node, where the PCI position of one is unknown."""

    SAME = "same NUMA node"
    OTHER = "other NUMA node"


Way = Nearness | Side | None  # None: nothing is known


class Distance(Frozen):
    """The paths from one card to the nearest and to the farthest GPU of its container."""

    card: CardId
    nearest: str  # name of the GPU
    best: Way
    farthest: str
    worst: Way

    def __str__(self) -> str:
        """Return ``0000:81:00.0 to GPU 0000:82:00.0: PIX``, and the farthest GPU if not as near."""
        near = f"{self.card} to GPU {self.nearest}: {_word(self.best)}"
        if rank(self.worst) == rank(self.best):
            return near
        return f"{near}, to GPU {self.farthest}: {_word(self.worst)}"


def gpu_distances(cards: Sequence[Card], gpus: Sequence[HeldGpu]) -> tuple[Distance, ...]:
    """Return the distance of each card of a container from its GPUs; none without GPUs.

    Of equally near GPUs the first is named.
    """
    distances = []
    for card in cards if gpus else ():
        ways = [(gpu.name, way(card, gpu.numa_nodes, gpu.position)) for gpu in gpus]
        nearest, best = min(ways, key=lambda one: rank(one[1]))
        farthest, worst = max(ways, key=lambda one: rank(one[1]))
        distances.append(Distance(card.id, nearest, best, farthest, worst))
    return tuple(distances)


def way(card: Card, numa_nodes: Sequence[int], position: PciPosition | None) -> Way:
    """Return the path between a card and a GPU by position, else by NUMA nodes; None if unknown."""
    if card.position and position:
        return nearness(card.position, position)
    if card.numa_node is None or not numa_nodes:
        return None
    return Side.SAME if card.numa_node in numa_nodes else Side.OTHER


def rank(path: Way) -> int:
    """Return a path's place in the order from near (0) to far; an unknown path comes last."""
    if path is Side.SAME:
        return Nearness.NODE.distance
    if path is Side.OTHER:
        return Nearness.SYS.distance
    return path.distance if isinstance(path, Nearness) else len(Nearness)


def _word(path: Way) -> str:
    return "not known" if path is None else str(path)


# GPUs that drivers hand out by claims: other drivers' slices name them.

ClaimGpus = Mapping[SliceDevice, Gpu]
"""The GPUs of a node that drivers hand out by claims."""


def claim_gpus(slices: Iterable[DeviceSlice], gpus: Sequence[Gpu]) -> dict[SliceDevice, Gpu]:
    """Return the GPUs of the survey that current ResourceSlices publish, by slice device."""
    by_address: dict[str, Gpu] = {gpu.position.pci: gpu for gpu in gpus}
    devices: dict[SliceDevice, Gpu] = {}
    for part in newest(slices):
        for name, addresses in part.addresses:
            gpu = next(filter(None, map(by_address.get, addresses)), None)
            if gpu:
                devices[SliceDevice(part.driver, part.pool, name)] = gpu
    return devices


def newest(slices: Iterable[DeviceSlice]) -> Iterator[DeviceSlice]:
    """Yield the slices of the newest generation of each pool; drop outdated ones."""
    listed = tuple(slices)
    generations: dict[tuple[str, str], int] = {}
    for part in listed:
        key = (part.driver, part.pool)
        generations[key] = max(part.generation, generations.get(key, part.generation))
    yield from (one for one in listed if one.generation == generations[one.driver, one.pool])


def free_claim_gpus(gpus: ClaimGpus, held: Iterable[ClaimedDevice]) -> tuple[Gpu, ...]:
    """Return the GPUs that claims could allocate and no container holds."""
    taken = {gpus[one.device].position.pci for one in held if one.device in gpus}
    free = {gpu.position.pci: gpu for gpu in gpus.values() if gpu.position.pci not in taken}
    return tuple(free.values())


def starting_pods(
    pods: Iterable[PodClaims], resource: str, held: Iterable[ClaimedDevice]
) -> tuple[PodClaims, ...]:
    """Return pods that want `resource` and hold no device by a claim yet.

    The kubelet allocates shares when it admits a pod and prepares its claims afterwards
    (pkg/kubelet/kubelet.go, SyncPod), so it may be admitting these pods.
    """
    past = {(one.namespace, one.pod) for one in held}
    return tuple(
        pod for pod in pods if resource in pod.resources and (pod.namespace, pod.name) not in past
    )


def gpus_of(devices: Collection[SliceDevice], gpus: ClaimGpus) -> tuple[Gpu, ...]:
    """Return the GPUs among devices that claims allocated, each once."""
    chosen = {gpus[device].position.pci: gpus[device] for device in devices if device in gpus}
    return tuple(chosen.values())


# GPUs of device plugins, free or held, as the kubelet reports them.


def is_gpu(resource: str) -> bool:
    """Decide whether a resource is one of GPUs, by its name: nvidia.com/gpu, amd.com/gpu, …"""
    return resource.rpartition("/")[2] == "gpu"


def free_gpus(
    allocatable: Sequence[Allocatable], holdings: Sequence[Holding], gpus: Sequence[Gpu]
) -> tuple[FreeGpu, ...]:
    """Return the GPUs of device plugins that no container holds."""
    held = {(one.resource, share) for one in holdings for share in one.shares}
    return tuple(
        FreeGpu(one.numa_nodes, _position(one.share, gpus))
        for one in allocatable
        if is_gpu(one.resource) and (one.resource, one.share) not in held
    )


def held_gpus(
    holdings: Sequence[Holding], allocatable: Sequence[Allocatable], gpus: Sequence[Gpu]
) -> tuple[HeldGpu, ...]:
    """Return the GPUs among the shares that one container holds."""
    nodes = {(one.resource, one.share): one.numa_nodes for one in allocatable}
    return tuple(
        HeldGpu(share, nodes.get((one.resource, share), one.numa_nodes), _position(share, gpus))
        for one in holdings
        if is_gpu(one.resource)
        for share in one.shares
    )


def as_free(gpus: Iterable[Gpu]) -> tuple[FreeGpu, ...]:
    """Convert GPUs of a survey to FreeGpu values, with their NUMA nodes and PCI positions."""
    return tuple(FreeGpu(_nodes(gpu), gpu.position) for gpu in gpus)


def claimed_gpus(
    container: tuple[str, str, str], devices: Iterable[ClaimedDevice], gpus: ClaimGpus
) -> tuple[HeldGpu, ...]:
    """Return the GPUs that one container (namespace, pod, name) holds by claims."""
    mine = [one.device for one in devices if (one.namespace, one.pod, one.container) == container]
    return tuple(
        HeldGpu(gpu.position.pci, _nodes(gpu), gpu.position) for gpu in gpus_of(mine, gpus)
    )


def _nodes(gpu: Gpu) -> tuple[int, ...]:
    return () if gpu.position.numa_node is None else (gpu.position.numa_node,)


def _position(share: str, gpus: Sequence[Gpu]) -> PciPosition | None:
    return next((gpu.position for gpu in gpus if gpu.position.pci == share.lower()), None)
