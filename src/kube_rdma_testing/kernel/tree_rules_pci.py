"""What no PCI tree can show: the fake kernel's refusals about places, virtual functions and GPUs.

It continues tree_rules.py with facts of drivers/pci.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kube_rdma.model.card import Function
from kube_rdma.model.device import Device, Gpu, PciAddress, PciPosition

_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")  # drivers/pci/probe.c
_GPU_CLASSES = frozenset({0x03, 0x12})


def position_complaints(
    devices: Sequence[Device], gpus: Sequence[Gpu], functions: Sequence[Function] = ()
) -> Iterator[str]:
    """Yield the reasons for which no kernel shows these positions, one sentence each."""
    for device in devices:
        position = device.position
        if position and position.numa_node != device.numa_node:
            yield f"{device.name}: its function is on another NUMA node"
    for gpu in gpus:
        yield from _gpu(gpu)
    if [g.position.pci for g in gpus] != sorted({g.position.pci for g in gpus}):
        yield "a survey lists its GPUs by address, without doubles"
    all_positions = [device.position for device in devices if device.position]
    all_positions += [
        *(gpu.position for gpu in gpus),
        *(function.position for function in functions),
    ]
    positions: dict[PciAddress, PciPosition] = {}
    for position in all_positions:
        yield from _position(position)
        if positions.setdefault(position.pci, position) != position:
            yield f"{position.pci} has one position, whoever sits on it"
    cards = {d.position.pci for d in devices if d.position} | {f.position.pci for f in functions}
    if cards & {g.position.pci for g in gpus}:
        yield "a GPU is not an RDMA card"
    yield from _ways(all_positions)
    yield from _relations(positions, {g.position.pci for g in gpus})


def _gpu(gpu: Gpu) -> Iterator[str]:
    where = f"GPU {gpu.position.pci}"
    if gpu.pci_class >> 16 not in _GPU_CLASSES:
        yield f"{where}: class {gpu.pci_class:#08x} is not a GPU's"
    if not (0 <= gpu.vendor < 1 << 16 and 0 <= gpu.device < 1 << 16):
        yield f"{where}: vendor and device have 16 bits"


def _position(position: PciPosition) -> Iterator[str]:
    if not position.path or position.path[-1] != position.pci or not _ROOT.fullmatch(position.root):
        yield f"{position.pci}: its way does not lead from a root to it"
    if position.numa_node is not None and position.numa_node < 0:
        yield f"{position.pci}: a NUMA node below 0 means none"
    if position.physical_function and (
        position.virtual_functions or position.sriov_total is not None
    ):
        yield f"{position.pci}: a virtual function has none of its own"
    if len(position.virtual_functions) > (position.sriov_total or 0):
        yield f"{position.pci}: more virtual functions than it can have"
    if len({position.pci, *position.virtual_functions}) <= len(position.virtual_functions):
        yield f"{position.pci}: virtual functions are others, each there once"


def _ways(positions: Sequence[PciPosition]) -> Iterator[str]:
    """Yield an error for a function at two places or not beside its physical or virtual one."""
    above: dict[PciAddress, tuple[str, ...]] = {}
    for position in positions:
        for depth, function in enumerate(position.path):
            way = (position.root, *position.path[:depth])
            if above.setdefault(function, way) != way:
                yield f"{function} is at two places"
        for address in (*position.virtual_functions, position.physical_function):
            way = (position.root, *position.path[:-1])
            if address and above.setdefault(address, way) != way:
                yield f"{address} is not beside {position.pci}"


def _relations(positions: dict[PciAddress, PciPosition], gpus: set[PciAddress]) -> Iterator[str]:
    owners = Counter(vf for position in positions.values() for vf in position.virtual_functions)
    for position in positions.values():
        physical = positions.get(position.physical_function) if position.physical_function else None
        if physical and position.pci not in physical.virtual_functions:
            yield f"{position.pci}: {physical.pci} does not list it"
        for name in position.virtual_functions:
            if owners[name] > 1 or (
                name in positions and positions[name].physical_function != position.pci
            ):
                yield f"{name}: a virtual function of {position.pci} and of another"
            if name in gpus and position.pci not in gpus:
                yield f"{name}: a GPU among the virtual functions of a card"
