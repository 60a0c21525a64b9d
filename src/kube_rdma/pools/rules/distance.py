"""How near cards are to GPUs: before a grant as a rank, after it as the answer that was really got.

pools/rules/preference ranks cards by it. When the kubelet has told which GPUs and which cards a
container holds, a program asks `got` and tells the answer in the log, in `explain` and in the node
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciPosition
from kube_rdma.model.pools.gpu_use import HeldGpu
from kube_rdma.pools.rules.topology import Nearness, nearness


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
