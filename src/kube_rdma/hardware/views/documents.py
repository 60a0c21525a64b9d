"""The node's RDMA devices for programs: `kube-rdma devices -o json`, key by key.

hardware/views/table shows the same to people. `plain` also makes the JSON lines of
--watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_rdma.lib.json_values import json_list, json_object, json_value
from kube_rdma.model.card import Function
from kube_rdma.model.device import Device, Gpu, Port
from kube_rdma.model.survey import Survey, Verdict

_NETDEV = ("name", "link_type", "up", "carrier", "default_route", "master", "representor")


def document(
    verdicts: Sequence[Verdict], survey: Survey, notes: Sequence[str] = ()
) -> dict[str, object]:
    """Return the survey as JSON values. Keys are stable: only added to, never renamed or removed.

    ``devices``: name, identity, usable, reasons (empty when usable), nodeGuid, nodeType, driver,
    firmware, pci, numaNode, auxiliary (name of the device on the auxiliary bus), subfunction (its
    number), switchdev (its function has representors), ``seat`` (see below; of a soft device that
    of its interface), ``ports`` (number, state, physicalState, linkLayer, rateGbps, netdev, bond,
    lid, smLid, pkey (hexadecimal), representor (it is of a function behind the card's switch),
    neighbour (switch and port at the other end of the cable, by LLDP), ``gids``: index, value,
    type, netdev) and ``charDevices`` (kind, path, major, minor);
    ``functions``, the PCI functions of class 02: pci, numaNode, vendor, device (hexadecimal as in
    sysfs), driver, acpiIndex, physicalFunction and vfIndex (of a virtual one: its card and its
    number on it), ``netdevs`` (name, linkType: ether, infiniband or empty, up, carrier,
    defaultRoute: the node itself is reached through it, master: what it is enslaved to,
    representor: of a function behind the switch),
    iommuGroup (number, others, guarded; null where vfio does not drive it);
    ``gpus``: pci, numaNode, class, vendor, device (hexadecimal as in sysfs), driver, ``seat``;
    ``seat``: pci, root, path (PCI addresses from the root port down to the function), numaNode,
    physicalFunction, virtualFunctions, sriovTotal;
    ``management``: devices of the subnet manager alone, without usable and reasons;
    ``rdmaCm``: a char device or null; ``namespaceMode``: shared, exclusive or unknown;
    ``notes``: sentences about the node; ``faults``: what could not be read, path and reason.
    What is not known is null.
    """
    return {
        "devices": [
            _device(verdict.device) | json_object(verdict, "usable", "reasons")
            for verdict in verdicts
        ],
        "functions": [_function(function) for function in survey.functions],
        "gpus": [_gpu(gpu) for gpu in survey.gpus],
        "management": [_device(device) for device in survey.management],
        **json_object(survey, "rdma_cm", "namespace_mode"),
        "notes": list(notes),
        "faults": json_list(survey.faults),
    }


def plain(value: object) -> object:
    """Return any value of a Survey as JSON values, with the keys of the document."""
    match value:
        case Device():
            return _device(value)
        case Port():
            return _port(value)
        case Gpu():
            return _gpu(value)
    return json_value(value)


def _device(device: Device) -> dict[str, Any]:
    return json_object(device, ports=[_port(port) for port in device.ports])


def _port(port: Port) -> dict[str, Any]:
    return json_object(port, pkey=None if port.pkey is None else f"0x{port.pkey:04x}")


def _function(function: Function) -> dict[str, Any]:
    """Return a PCI function as JSON values, without the path of bridges above it.

    The path would name every virtual function a second time.
    """
    return {
        **json_object(function.position, "pci", "numa_node", "physical_function"),
        **json_object(function, "driver", "acpi_index", "vf_index"),
        "vendor": f"0x{function.vendor:04x}",
        "device": f"0x{function.device:04x}",
        "netdevs": json_list(function.netdevs, *_NETDEV),
        "iommuGroup": function.group and json_object(function.group),
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        **json_object(gpu.position, "pci", "numa_node"),
        "class": f"0x{gpu.pci_class:06x}",
        "vendor": f"0x{gpu.vendor:04x}",
        "device": f"0x{gpu.device:04x}",
        **json_object(gpu, "driver", "position"),
    }
