"""A survey as the tables of each machine's SOURCE.md, so that people can check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import Device, Gpu, PciPosition, Port
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.discovery import judge

HEADING = "## What the survey must show\n"

_DEVICES = (
    "device sits-on driver firmware type port state layer Gb/s netdev bond lid/sm gids opened-by"
)
_POSITIONS = "function below NUMA VF-of VFs of-at-most"
_FUNCTIONS = "network-function vendor:device driver VF-number interfaces"
_GPUS = "GPU class vendor:device driver below NUMA"


def picture(survey: Survey) -> str:
    """Return tables of ports, PCI positions, network functions and GPUs of a survey as Markdown.

    A list follows: why devices cannot be used, and the path of rdma_cm.
    """
    positions = {d.position.pci: d.position for d in survey.devices if d.position}
    tables = [
        _table(_DEVICES, [row for device in survey.devices for row in _ports(device)]),
        _table(_POSITIONS, [_position(positions[pci]) for pci in sorted(positions)]),
        _table(_FUNCTIONS, [_function(function) for function in survey.functions]),
        _table(_GPUS, [_gpu(gpu) for gpu in survey.gpus]),
    ]
    lines = [f"- {v.device.name}: {reason}" for v in judge(survey) for reason in v.reasons]
    lines.append("- rdma_cm: " + (survey.rdma_cm.path if survey.rdma_cm else "missing"))
    return "\n\n".join([*filter(None, tables), "\n".join(lines)]) + "\n"


_Row = Sequence[object]


def _table(head: str, rows: Sequence[_Row]) -> str:
    columns = head.split()
    lines: list[_Row] = [columns, ["---"] * len(columns), *rows] if rows else []
    return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _ports(device: Device) -> Iterator[_Row]:
    sits: str = device.identity
    if device.subfunction is not None:
        sits += f" (sub-function {device.subfunction})"
    nodes = " ".join(char.path.rpartition("/")[2] for char in device.char_devices)
    whole = [device.name, sits, device.driver, device.firmware, device.node_type]
    for p in device.ports:
        lids = f"{_cell(p.lid)}/{_cell(p.sm_lid)}" if p.lid or p.sm_lid else None
        state = f"{p.state}, {p.physical_state}"
        rate = None if p.rate_gbps is None else f"{p.rate_gbps:g}"
        gids = " ".join(f"{_gids(p, netdev)}:{_cell(netdev)}" for netdev in _netdevs(p))
        yield [*whole, p.number, state, p.link_layer, rate, p.netdev, p.bond, lids, gids, nodes]


def _netdevs(port: Port) -> Iterable[str | None]:
    return dict.fromkeys(gid.netdev for gid in port.gids)


def _gids(port: Port, netdev: str | None) -> str:
    """Return the indexes of an interface's GIDs as text, such as 0,1,5."""
    return ",".join(str(gid.index) for gid in port.gids if gid.netdev == netdev)


def _below(position: PciPosition) -> str:
    return " ".join((position.root, *position.path[:-1]))


def _position(position: PciPosition) -> _Row:
    virtual = " ".join(position.virtual_functions)
    node, physical, total = position.numa_node, position.physical_function, position.sriov_total
    return [position.pci, _below(position), node, physical, virtual, total]


def _function(function: Function) -> _Row:
    ids = f"{function.vendor:04x}:{function.device:04x}"
    interfaces = ", ".join(map(_netdev, function.netdevs))
    return [function.position.pci, ids, function.driver, function.vf_index, interfaces]


def _netdev(netdev: Netdev) -> str:
    carrier = {None: "", False: " no-carrier", True: " carrier"}[netdev.carrier]
    return f"{netdev.name} ({netdev.link_type}{' up' if netdev.up else ' down'}{carrier})"


def _gpu(gpu: Gpu) -> _Row:
    position, ids = gpu.position, f"{gpu.vendor:04x}:{gpu.device:04x}"
    return [
        position.pci,
        f"{gpu.pci_class:06x}",
        ids,
        gpu.driver,
        _below(position),
        position.numa_node,
    ]
