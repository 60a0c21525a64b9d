"""The node's RDMA devices for programs: `kube-rdma devices -o json`, key by key.

Beside hardware/views/table, which shows the same to people. `plain` also makes the JSON lines of
--watch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import CharDevice, Device, Gid, Gpu, PciPosition, Port
from kube_rdma.model.survey import Survey, Verdict


def document(
    verdicts: Sequence[Verdict], survey: Survey, notes: Sequence[str] = ()
) -> dict[str, object]:
    """All of it as JSON values. Keys are stable: they are added to, never renamed or removed.

    ``devices``: name, identity, usable, reasons (empty when usable), node_guid, node_type, driver,
    firmware, pci, numa_node, auxiliary (name of the device on the auxiliary bus), subfunction (its
    number), ``seat`` (see below; of a soft device that of its interface), ``ports`` (number, state,
    physical_state, link_layer, rate_gbps, netdev, bond, lid, sm_lid, pkey (hexadecimal), ``gids``:
    index, value, type, netdev) and ``char_devices`` (kind, path, major, minor);
    ``functions``, the PCI functions of class 02: pci, numa_node, vendor, device (hexadecimal as in
    sysfs), driver, acpi_index, physical_function and vf_index (of a virtual one: its card and its
    number on it), ``netdevs`` (name, link_type: ether, infiniband or empty, up, carrier,
    default_route: the node itself is reached through it, master: what it is enslaved to);
    ``gpus``: pci, numa_node, class, vendor, device (hexadecimal as in sysfs), driver, ``seat``;
    ``seat``: pci, root, path (PCI addresses from the root port down to the function), numa_node,
    physical_function, virtual_functions, sriov_total;
    ``rdma_cm``: a char device or null; ``namespace_mode``: shared, exclusive or unknown;
    ``notes``: sentences about the node; ``faults``: what could not be read, path and reason.
    What is not known is null.
    """
    return {
        "devices": [
            {
                **_device(verdict.device),
                "usable": verdict.usable,
                "reasons": list(verdict.reasons),
            }
            for verdict in verdicts
        ],
        "functions": [_function(function) for function in survey.functions],
        "gpus": [_gpu(gpu) for gpu in survey.gpus],
        "rdma_cm": plain(survey.rdma_cm),
        "namespace_mode": survey.namespace_mode.value,
        "notes": list(notes),
        "faults": [{"path": fault.path, "reason": fault.reason} for fault in survey.faults],
    }


def plain(value: object) -> object:
    """A value of the survey as JSON has it, with the keys of the document."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, StrEnum):
        return value.value
    form = _FORMS.get(type(value))
    return form(value) if form else value


def _device(device: Device) -> dict[str, object]:
    return {
        "name": device.name,
        "identity": device.identity,
        "node_guid": device.node_guid,
        "node_type": device.node_type,
        "driver": device.driver,
        "firmware": device.firmware,
        "pci": device.pci,
        "numa_node": device.numa_node,
        "auxiliary": device.auxiliary,
        "subfunction": device.subfunction,
        "seat": plain(device.seat),
        "ports": [_port(port) for port in device.ports],
        "char_devices": [_char_device(char) for char in device.char_devices],
    }


def _port(port: Port) -> dict[str, object]:
    return {
        "number": port.number,
        "state": port.state.value,
        "physical_state": port.physical_state.value,
        "link_layer": port.link_layer.value,
        "rate_gbps": port.rate_gbps,
        "netdev": port.netdev,
        "bond": port.bond,
        "lid": port.lid,
        "sm_lid": port.sm_lid,
        "pkey": None if port.pkey is None else f"0x{port.pkey:04x}",
        "gids": [_gid(gid) for gid in port.gids],
    }


def _gid(gid: Gid) -> dict[str, object]:
    return {
        "index": gid.index,
        "value": gid.value,
        "type": gid.type.value,
        "netdev": gid.netdev,
    }


def _char_device(char: CharDevice) -> dict[str, object]:
    return {
        "kind": char.kind.value,
        "path": char.path,
        "major": char.major,
        "minor": char.minor,
    }


def _function(function: Function) -> dict[str, object]:
    """Without its seat, which would name every virtual function a second time."""
    return {
        "pci": function.seat.pci,
        "numa_node": function.seat.numa_node,
        "vendor": f"0x{function.vendor:04x}",
        "device": f"0x{function.device:04x}",
        "driver": function.driver,
        "acpi_index": function.acpi_index,
        "physical_function": function.seat.physical_function,
        "vf_index": function.vf_index,
        "netdevs": [_netdev(netdev) for netdev in function.netdevs],
    }


def _netdev(netdev: Netdev) -> dict[str, object]:
    return {
        "name": netdev.name,
        "link_type": netdev.link_type,
        "up": netdev.up,
        "carrier": netdev.carrier,
        "default_route": netdev.default_route,
        "master": netdev.master,
    }


def _gpu(gpu: Gpu) -> dict[str, object]:
    return {
        "pci": gpu.seat.pci,
        "numa_node": gpu.seat.numa_node,
        "class": f"0x{gpu.pci_class:06x}",
        "vendor": f"0x{gpu.vendor:04x}",
        "device": f"0x{gpu.device:04x}",
        "driver": gpu.driver,
        "seat": _seat(gpu.seat),
    }


def _seat(seat: PciPosition) -> dict[str, object]:
    return {
        "pci": seat.pci,
        "root": seat.root,
        "path": list(seat.path),
        "numa_node": seat.numa_node,
        "physical_function": seat.physical_function,
        "virtual_functions": list(seat.virtual_functions),
        "sriov_total": seat.sriov_total,
    }


_FORMS: Mapping[type, Callable[[Any], object]] = {
    Device: _device,
    Port: _port,
    Gid: _gid,
    CharDevice: _char_device,
    Gpu: _gpu,
    PciPosition: _seat,
}
