"""What no PCI tree can show: the fake kernel's refusals about places, virtual functions and GPUs.

The second half of tree_rules.py, under the same rule: facts of drivers/pci only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kube_rdma.model.card import Function
from kube_rdma.model.device import Device, Gpu, PciAddress, PciPosition

_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")  # drivers/pci/probe.c
_GPU_CLASSES = frozenset({0x03, 0x12})


def seat_complaints(
    devices: Sequence[Device], gpus: Sequence[Gpu], functions: Sequence[Function] = ()
) -> Iterator[str]:
    """Yield the reasons for which no kernel shows these positions, one sentence each."""
    for device in devices:
        seat = device.seat
        if seat and seat.numa_node != device.numa_node:
            yield f"{device.name}: its function is on another NUMA node"
    for gpu in gpus:
        yield from _gpu(gpu)
    if [g.seat.pci for g in gpus] != sorted({g.seat.pci for g in gpus}):
        yield "a survey lists its GPUs by address, without doubles"
    all_seats = [device.seat for device in devices if device.seat]
    all_seats += [*(gpu.seat for gpu in gpus), *(function.seat for function in functions)]
    seats: dict[PciAddress, PciPosition] = {}
    for seat in all_seats:
        yield from _seat(seat)
        if seats.setdefault(seat.pci, seat) != seat:
            yield f"{seat.pci} has one seat, whoever sits on it"
    cards = {d.seat.pci for d in devices if d.seat} | {f.seat.pci for f in functions}
    if cards & {g.seat.pci for g in gpus}:
        yield "a GPU is not an RDMA card"
    yield from _ways(all_seats)
    yield from _relations(seats, {g.seat.pci for g in gpus})


def _gpu(gpu: Gpu) -> Iterator[str]:
    where = f"GPU {gpu.seat.pci}"
    if gpu.pci_class >> 16 not in _GPU_CLASSES:
        yield f"{where}: class {gpu.pci_class:#08x} is not a GPU's"
    if not (0 <= gpu.vendor < 1 << 16 and 0 <= gpu.device < 1 << 16):
        yield f"{where}: vendor and device have 16 bits"


def _seat(seat: PciPosition) -> Iterator[str]:
    if not seat.path or seat.path[-1] != seat.pci or not _ROOT.fullmatch(seat.root):
        yield f"{seat.pci}: its way does not lead from a root to it"
    if seat.numa_node is not None and seat.numa_node < 0:
        yield f"{seat.pci}: a NUMA node below 0 means none"
    if seat.physical_function and (seat.virtual_functions or seat.sriov_total is not None):
        yield f"{seat.pci}: a virtual function has none of its own"
    if len(seat.virtual_functions) > (seat.sriov_total or 0):
        yield f"{seat.pci}: more virtual functions than it can have"
    if len({seat.pci, *seat.virtual_functions}) <= len(seat.virtual_functions):
        yield f"{seat.pci}: virtual functions are others, each there once"


def _ways(seats: Sequence[PciPosition]) -> Iterator[str]:
    """Yield an error for a function at two places or not beside its physical or virtual one."""
    above: dict[PciAddress, tuple[str, ...]] = {}
    for seat in seats:
        for depth, function in enumerate(seat.path):
            way = (seat.root, *seat.path[:depth])
            if above.setdefault(function, way) != way:
                yield f"{function} is at two places"
        for address in (*seat.virtual_functions, seat.physical_function):
            way = (seat.root, *seat.path[:-1])
            if address and above.setdefault(address, way) != way:
                yield f"{address} is not beside {seat.pci}"


def _relations(seats: dict[PciAddress, PciPosition], gpus: set[PciAddress]) -> Iterator[str]:
    owners = Counter(vf for seat in seats.values() for vf in seat.virtual_functions)
    for seat in seats.values():
        physical = seats.get(seat.physical_function) if seat.physical_function else None
        if physical and seat.pci not in physical.virtual_functions:
            yield f"{seat.pci}: {physical.pci} does not list it"
        for name in seat.virtual_functions:
            if owners[name] > 1 or (name in seats and seats[name].physical_function != seat.pci):
                yield f"{name}: a virtual function of {seat.pci} and of another"
            if name in gpus and seat.pci not in gpus:
                yield f"{name}: a GPU among the virtual functions of a card"
