"""How near two PCI functions are: what GPU and NIC have to cross to reach each other.

Between the survey, which knows where everything sits, and whoever pairs cards with GPUs: the
matrix of `kube-rdma devices --topology` today. The classes are those of `nvidia-smi topo -m` and of
NVML (nvmlGpuTopologyLevel_t), which count a PCIe switch as one bridge, although the kernel shows
each of its ports as one of its own.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import takewhile

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciPosition
from kube_rdma.model.survey import Survey

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
