"""How near two PCI functions are: what GPU and NIC have to cross to reach each other.

Between the survey, which knows where everything sits, and whoever pairs cards with GPUs: the
matrix of `kube-rdma devices --topology` today. The classes are those of `nvidia-smi topo -m` and of
NVML (nvmlGpuTopologyLevel_t), which count a PCIe switch as one bridge, although the kernel shows
each of its ports as one of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import ClaimedDevice, ClaimedPod, DeviceSlice, SliceDevice
from kube_rdma.model.device import Gpu, PciAddress, PciPosition
from kube_rdma.model.holdings import Allocatable, FreeGpu, HeldGpu, Holding
from kube_rdma.model.pools import RailRecord
from kube_rdma.model.survey import (
    NodeTopology,
    PlacedCard,
    PlacedGpu,
    Survey,
    TopologyBridge,
    TopologyGroup,
    TopologySocket,
)
from kube_rdma.pools.rules.health import node_cards
from kube_rdma.pools.rules.rails import numbers, physical, recorded

# What may lie between the last shared bridge and a function of the same switch: a downstream port.
_ONE_SWITCH = 2


class Nearness(StrEnum):
    """The farthest thing on the way between two functions, from near to far."""

    SELF = "X"  # nothing: they are one function
    PIX = "PIX"  # one bridge or switch at most
    PXB = "PXB"  # several bridges below one root port
    PHB = "PHB"  # the host bridge
    NODE = "NODE"  # several host bridges of one NUMA node
    SYS = "SYS"  # the interconnect of NUMA nodes

    @property
    def distance(self) -> int:
        """Place in the order from near (0) to far; the words themselves sort by the alphabet."""
        return tuple(Nearness).index(self)


def nearness(a: PciPosition, b: PciPosition) -> Nearness:
    """How near two seats are; the order of the two does not matter.

    Two functions whose NUMA node the kernel does not know count as being on one: a machine without
    NUMA says so of all of them.
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


def matrix(survey: Survey) -> tuple[tuple[Nearness | None, ...], ...]:
    """Every GPU, then every RDMA device, against all of them, in the order of the survey.

    A soft device has the seat of the function below its interface. Without a seat only different
    NUMA nodes say something: SYS; None stands for not known.
    """
    places = [_PciPlace(gpu.seat, gpu.seat.numa_node) for gpu in survey.gpus]
    places += [_PciPlace(device.seat, device.numa_node) for device in survey.devices]
    return tuple(tuple(Nearness.SELF if a is b else _between(a, b) for b in places) for a in places)


class _PciPlace(Frozen):
    seat: PciPosition | None
    numa_node: int | None


def _between(a: _PciPlace, b: _PciPlace) -> Nearness | None:
    if a.seat and b.seat:
        return nearness(a.seat, b.seat)
    both_known = a.numa_node is not None and b.numa_node is not None
    return Nearness.SYS if both_known and a.numa_node != b.numa_node else None


# Sorts the GPUs and cards of a node by what they sit below: NUMA node, host bridge, PCIe switch.

_BELOW_A_SWITCH = 4  # ports on the way: a root port, both sides of a switch, the function itself


class _Spot(Frozen):
    """Where something sits; what is not known sorts last."""

    numa_node: int | None
    root: str
    switch: PciAddress | None

    @property
    def order(self) -> tuple[bool, int, bool, str, str]:
        """The place among others."""
        numa = -1 if self.numa_node is None else self.numa_node
        return self.numa_node is None, numa, not self.root, self.root, self.switch or ""


def node_topology(survey: Survey) -> NodeTopology:
    """The node by what its parts sit below, in the order of their addresses."""
    gpus: dict[_Spot, list[PlacedGpu]] = defaultdict(list)
    for number, gpu in enumerate(survey.gpus):
        gpus[_spot(gpu.seat, gpu.seat.numa_node)].append(PlacedGpu(number, gpu))
    cards: dict[_Spot, list[PlacedCard]] = defaultdict(list)
    for placed in _placed(node_cards(survey)):
        cards[_spot(placed.card.seat, placed.card.numa_node)].append(placed)
    groups = {
        spot: TopologyGroup(spot.switch, tuple(gpus.get(spot, ())), tuple(cards.get(spot, ())))
        for spot in sorted({*gpus, *cards}, key=lambda spot: spot.order)
    }
    nodes = dict.fromkeys(spot.numa_node for spot in groups)
    return NodeTopology(tuple(TopologySocket(node, _bridges(groups, node)) for node in nodes))


def switch_above(seat: PciPosition) -> PciAddress | None:
    """The upper side of the PCIe switch that a function is right below, if it is below one.

    The kernel shows each port of a switch as a bridge: the upper side, then one for each way down.
    """
    return seat.path[-3] if len(seat.path) >= _BELOW_A_SWITCH else None


def _spot(seat: PciPosition | None, numa_node: int | None) -> _Spot:
    return _Spot(numa_node, seat.root, switch_above(seat)) if seat else _Spot(numa_node, "", None)


def _bridges(
    groups: Mapping[_Spot, TopologyGroup], numa_node: int | None
) -> tuple[TopologyBridge, ...]:
    below: dict[str, list[TopologyGroup]] = defaultdict(list)
    for spot, group in groups.items():
        if spot.numa_node == numa_node:
            below[spot.root].append(group)
    return tuple(TopologyBridge(root, tuple(group)) for root, group in below.items())


def _placed(cards: Sequence[Card]) -> Iterable[PlacedCard]:
    """Each physical card once; a function whose physical one is not there stands for itself."""
    ids = {card.id for card in cards}
    above = {card.id: _above(card, ids) for card in cards}
    whole = [card for card in cards if above[card.id] == card.id]
    offered = [card for card in cards if card.devices]
    rails = numbers(recorded(RailRecord(), offered, cards, (), idle=True), cards, ())
    for card in whole:
        parts = tuple(one for one in cards if above[one.id] == card.id and one is not card)
        virtual = sum(1 for one in parts if one.seat and one.seat.physical_function)
        with_devices = tuple(one for one in parts if one.devices)
        yield PlacedCard(card, rails.get(card.id), virtual, with_devices)


def _above(card: Card, ids: set[CardId]) -> CardId:
    """The card that this one is a part of, itself as a rule."""
    above = physical(card)
    return above if above in ids else card.id


# How near cards are to GPUs: before a grant as a rank, after it as the answer that was really
# got.


class Side(StrEnum):
    """All that is known where one of the two has no seat but both have NUMA nodes."""

    SAME = "same NUMA node"
    OTHER = "other NUMA node"


Way = Nearness | Side | None  # None: nothing is known


class Distance(Frozen):
    """One card's way to the nearest and to the farthest GPU of its container."""

    card: CardId
    nearest: str  # name of the GPU
    best: Way
    farthest: str
    worst: Way

    def __str__(self) -> str:
        """``0000:81:00.0 to GPU 0000:82:00.0: PIX``, and the farthest where it is farther."""
        near = f"{self.card} to GPU {self.nearest}: {_word(self.best)}"
        if rank(self.worst) == rank(self.best):
            return near
        return f"{near}, to GPU {self.farthest}: {_word(self.worst)}"


def got(cards: Sequence[Card], gpus: Sequence[HeldGpu]) -> tuple[Distance, ...]:
    """The distance of each card of a container to the GPUs of it; nothing without GPUs.

    Of GPUs that are equally near the first one is named.
    """
    return tuple(_distance(card, gpus) for card in cards if gpus)


def way(card: Card, numa_nodes: Sequence[int], seat: PciPosition | None) -> Way:
    """What lies between a card and a GPU with these NUMA nodes and, where known, this seat."""
    if card.seat and seat:
        return nearness(card.seat, seat)
    if card.numa_node is None or not numa_nodes:
        return None
    return Side.SAME if card.numa_node in numa_nodes else Side.OTHER


def rank(path: Way) -> int:
    """The place of a way in the order from near (0) to far; what is not known comes last."""
    if path is Side.SAME:
        return Nearness.NODE.distance
    if path is Side.OTHER:
        return Nearness.SYS.distance
    return path.distance if isinstance(path, Nearness) else len(Nearness)


def _distance(card: Card, gpus: Sequence[HeldGpu]) -> Distance:
    ways = [(gpu.name, way(card, gpu.numa_nodes, gpu.seat)) for gpu in gpus]
    nearest, best = min(ways, key=lambda one: rank(one[1]))
    farthest, worst = max(ways, key=lambda one: rank(one[1]))
    return Distance(card.id, nearest, best, farthest, worst)


def _word(path: Way) -> str:
    return "not known" if path is None else str(path)


# Which devices of other drivers' slices are GPUs of this node, and which of them a pod will get.

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


# Which GPUs of a node are free and which a container holds, out of what the kubelet tells.


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
