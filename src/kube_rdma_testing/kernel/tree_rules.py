"""What no kernel can show: the refusals of the fake kernel, each as a sentence.

tree.py asks here before it writes a tree. Every rule is a fact of the RDMA core, of the driver
model or of sysfs, or an order in which a survey lists things.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from kube_rdma.model.card import Function
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    Gpu,
    LinkLayer,
    PciPosition,
    Port,
)
from kube_rdma_testing.kernel.tree_rules_pci import position_complaints

_NAME = re.compile(r"[^/\s%]{1,63}")  # IB_DEVICE_NAME_MAX is 64 with the final NUL
_NETDEV = re.compile(r"[^/\s:%]{1,15}")  # IFNAMSIZ is 16 with the final NUL
_GUID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}")
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_AUXILIARY = re.compile(r"[^.]+\..+\.\d+")  # drivers/base/auxiliary.c
_TABLE = 1024  # entries of the largest GID table (rxe)
_NODE_TYPES = frozenset(
    {"CA", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified", "<unknown>"}
)
_UNUSED = frozenset("0:")


def complaints(
    devices: Sequence[Device],
    rdma_cm: CharDevice | None,
    gpus: Sequence[Gpu] = (),
    functions: Sequence[Function] = (),
) -> Iterator[str]:
    """Yield the reasons for which no kernel shows these devices, one sentence each."""
    if [d.name for d in devices] != sorted(d.name for d in devices):
        yield "a survey lists its devices by name"
    yield from _doubles("device name", (d.name for d in devices))
    yield from _doubles("identity", (d.identity for d in devices))
    chars = [*(c for d in devices for c in d.char_devices), *([rdma_cm] if rdma_cm else ())]
    yield from _doubles("device node", (c.path for c in chars))
    yield from _doubles("device number", (f"{c.major}:{c.minor}" for c in chars))
    hard = [d for d in devices if not d.is_soft]
    yield from _doubles("interface", (p.netdev for d in hard for p in d.ports if p.netdev))
    for device in devices:
        yield from _device(device)
    for char in chars:
        yield from _char(char)
    if rdma_cm and rdma_cm.kind is not CharKind.RDMA_CM:
        yield f"{rdma_cm.path} is not the connection manager"
    yield from _shared_places(devices)
    yield from position_complaints(devices, gpus, functions)


def _doubles(what: str, values: Iterable[str]) -> Iterator[str]:
    for value, times in Counter(values).items():
        if times > 1:
            yield f"{what} {value} is there {times} times"


def _device(device: Device) -> Iterator[str]:
    name = device.name
    if not _NAME.fullmatch(name):
        yield f"{name!r} is not a name of a device"
    if device.node_guid is not None and not _GUID.fullmatch(device.node_guid):
        yield f"{name}: {device.node_guid} is not a GUID"
    if device.node_type not in _NODE_TYPES:
        yield f"{name}: the kernel knows no node type {device.node_type}"
    if device.numa_node is not None and device.numa_node < 0:
        yield f"{name}: a NUMA node below 0 means none"
    if [p.number for p in device.ports] != list(range(1, len(device.ports) + 1)):
        yield f"{name}: ports count from 1 without a gap"
    paths = [(c.kind is not CharKind.UVERBS, c.path) for c in device.char_devices]
    if paths != sorted(paths) or any(c.kind is CharKind.RDMA_CM for c in device.char_devices):
        yield f"{name}: a device has uverbs, then issm and umad, and no rdma_cm"
    yield from _soft(device) if device.is_soft else _hard(device)
    for port in device.ports:
        yield from _port(f"{name} port {port.number}", port)


def _soft(device: Device) -> Iterator[str]:
    name = device.name
    if device.driver or device.firmware:
        yield f"{name}: a device without hardware has neither driver nor firmware"
    if device.node_type not in {"CA", "RNIC"}:
        yield f"{name}: soft devices are rxe (CA) or siw (RNIC)"
    if len(device.ports) != 1:
        yield f"{name}: a soft device has one port"
        return
    port = device.ports[0]
    if device.identity != (f"{name}@{port.netdev}" if port.netdev else name):
        yield f"{name}: {device.identity} does not follow from its interface {port.netdev}"
    if device.numa_node is not None and device.position is None:
        yield f"{name}: a NUMA node comes with the function of its interface"
    if port.netdev is None and device.position is not None:
        yield f"{name}: a position comes with an interface"
    named = next((gid.netdev for gid in port.gids), None)
    if device.node_type == "RNIC" and port.netdev != named:
        yield f"{name}: the first GID of siw is that of its interface"


def _hard(device: Device) -> Iterator[str]:
    auxiliary = device.identity if _AUXILIARY.fullmatch(device.identity) else None
    if device.auxiliary != auxiliary:
        yield f"{device.name}: {device.identity} and auxiliary device {device.auxiliary}"
    if device.subfunction is not None and not (auxiliary and 0 <= device.subfunction < 1 << 32):
        yield f"{device.name}: the number of a sub-function is 32 bits of an auxiliary device"
    function = device.position.pci if device.position else None
    if function != device.pci:
        yield f"{device.name}: on {device.pci}, but sits on {function}"
    if device.pci is None and device.numa_node is not None:
        yield f"{device.name}: sysfs has the NUMA node of PCI functions only"
    if _PCI.fullmatch(device.identity) and device.identity != device.pci:
        yield f"{device.name}: {device.identity} is a PCI function, but not the one it is on"
    if not _NAME.fullmatch(device.identity) or "@" in device.identity:
        yield f"{device.name}: {device.identity!r} is not a name of a device on a bus"


def _port(where: str, port: Port) -> Iterator[str]:
    if port.rate_gbps is not None and not (port.rate_gbps * 2).is_integer():
        yield f"{where}: rates come in steps of 0.5 Gb/s"
    if port.rate_gbps is not None and port.rate_gbps < 0:
        yield f"{where}: a rate below 0"
    if port.netdev is not None and not _NETDEV.fullmatch(port.netdev):
        yield f"{where}: {port.netdev!r} is not a name of an interface"
    if port.bond is not None and (not _NETDEV.fullmatch(port.bond) or port.bond == port.netdev):
        yield f"{where}: {port.bond!r} is not a name of a bond"
    if port.bond and not port.netdev:
        yield f"{where}: a bond holds interfaces, and this port has none"
    yield from _subnet(where, port)
    if any(a.index >= b.index for a, b in pairwise(port.gids)):
        yield f"{where}: a GID table is listed by index, without doubles"
    for gid in port.gids:
        yield from _gid(f"{where} GID {gid.index}", port, gid)


def _subnet(where: str, port: Port) -> Iterator[str]:
    fabric = port.link_layer is LinkLayer.INFINIBAND
    if any(lid is not None and not 0 < lid < 0xFFFF for lid in (port.lid, port.sm_lid)):
        yield f"{where}: a LID has 16 bits, not all of them alike"
    if not fabric and (port.lid or port.sm_lid):
        yield f"{where}: only InfiniBand has LIDs"
    if port.pkey is not None and not 0 <= port.pkey < 1 << 16:
        yield f"{where}: a partition key has 16 bits"
    if not fabric and port.pkey is not None:
        yield f"{where}: only InfiniBand has partitions"


def _gid(where: str, port: Port, gid: Gid) -> Iterator[str]:
    if not 0 <= gid.index < _TABLE:
        yield f"{where}: no table is that long"
    if not _GID.fullmatch(gid.value) or set(gid.value) <= _UNUSED:
        yield f"{where}: {gid.value} is not the GID of a used entry"
    if gid.type is GidType.UNKNOWN:
        yield f"{where}: the kernel knows the type of every used entry"
    on_ethernet = port.link_layer is LinkLayer.ETHERNET
    if not on_ethernet and (gid.netdev or gid.type is GidType.ROCE_V2):
        yield f"{where}: interfaces and RoCE v2 belong to Ethernet"
    if gid.netdev is not None and not _NETDEV.fullmatch(gid.netdev):
        yield f"{where}: {gid.netdev!r} is not a name of an interface"


def _char(char: CharDevice) -> Iterator[str]:
    form = "rdma_cm" if char.kind is CharKind.RDMA_CM else rf"{char.kind}\d+"
    if not re.fullmatch(f"/dev/infiniband/{form}", char.path):
        yield f"{char.path} is not a node of {char.kind}"
    if not (0 <= char.major < 1 << 12 and 0 <= char.minor < 1 << 20):
        yield f"{char.path}: {char.major}:{char.minor} is not a device number"


def _shared_places(devices: Sequence[Device]) -> Iterator[str]:
    """Yield an error where devices differ on the NUMA node, position or bond of what they share.

    Yield one too where a GID names an interface or bond of a device, and the GID's port has no
    interface.
    """
    nodes: dict[str, int | None] = {}
    positions: dict[str, PciPosition | None] = {}
    bonds: dict[str, str | None] = {}
    for device in devices:
        for place in {*(p.netdev or "" for p in device.ports), device.pci or ""} - {""}:
            if nodes.setdefault(place, device.numa_node) != device.numa_node:
                yield f"{device.name}: {place} is on another NUMA node"
        for port in device.ports:
            if (
                port.netdev
                and positions.setdefault(port.netdev, device.position) != device.position
            ):
                yield f"{device.name}: {port.netdev} sits on another function"
            if port.netdev and bonds.setdefault(port.netdev, port.bond) != port.bond:
                yield f"{device.name}: {port.netdev} is in another bond"
    netdevs = {*nodes, *bonds.values()}
    for device in devices:
        for port in device.ports:
            if port.netdev is None and any(g.netdev in netdevs for g in port.gids if g.netdev):
                yield f"{device.name}: a GID names an interface that its port should have"
