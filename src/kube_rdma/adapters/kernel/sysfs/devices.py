"""Reads the RDMA devices, functions and GPUs that a sysfs tree shows: the first half of a Survey.

hardware/survey calls it on /sys, hardware/recorded_survey on a recorded tree; netlink/rdma_read
adds what only the running kernel can say. Names and formats come from
Documentation/ABI/stable/sysfs-class-infiniband and drivers/infiniband/core/sysfs.c. Nothing here
raises for what a tree holds: see sysfs/tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.interfaces import is_management, of_ports
from kube_rdma.adapters.kernel.sysfs import netdev as sites
from kube_rdma.adapters.kernel.sysfs.pci import PciTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    LinkLayer,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey

Word = TypeVar("Word", bound=StrEnum)

DEVICES = "class/infiniband"

# Drivers whose interface is another function's: erdma_enum_and_get_netdev (hw/erdma/erdma_main.c),
# pvrdma_pci_probe (hw/vmw_pvrdma/pvrdma_main.c). None: a soft device. The interface of any other
# device is beside it in sysfs, or in a pod, under a name that another interface may have here.
INTERFACE_ELSEWHERE = (None, "erdma", "vmw_pvrdma")

_GUID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}")
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_UNUSED_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
_NUMBERED = re.compile(r"\d+: (.+)")
_DEV = re.compile(r"[0-9]+:[0-9]+")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
_LID = re.compile(r"0x[0-9a-f]{1,8}")
_NO_LID = frozenset({0, 0xFFFF})  # unset; the permissive LID, which mlx5 has before a manager came
_CHARS = ("class/infiniband_verbs", "class/infiniband_mad")
_CHAR_NAME = re.compile(r"(uverbs|umad|issm)\d+")
_DEVNAME = re.compile(r"^DEVNAME=(.+)$", re.MULTILINE)

# How sysfs spells the values for which it has no word of its own.
_SPELLINGS = {"<unknown>": "UNKNOWN"}


def read_survey(root: SysfsRoot | SysfsTree, *, brief: bool = False) -> Survey:
    """Return all that a sysfs tree shows of RDMA devices, functions, interfaces and GPUs.

    `root` is the tree, or one that is open already. With `brief`, only the first entry of a GID
    table is read, if that entry is used: it shows that a port has an address. A table has hundreds
    of entries, each a file, and a node a thousand tables.

    A tree without class/infiniband has no devices, which is not a fault. The namespace mode stays
    UNKNOWN. Never raises for what the tree holds or lacks: see Survey.faults.
    """
    tree = root if isinstance(root, SysfsTree) else SysfsTree(root)
    names = tree.names(DEVICES, required=False)
    chars = _char_devices(tree, names)
    pci = PciTree(tree)
    links = sites.NetdevTree(tree)
    read = (_device(tree, pci, links, name, tuple(chars[name]), brief=brief) for name in names)
    every = tuple(device for device in read if device is not None)
    management = tuple(device for device in every if is_management(device, every))
    devices = tuple(device for device in every if device not in management)
    rdma_cm = _rdma_cm(tree)
    functions = sites.read_functions(tree, pci, links)
    gpus = pci.gpus()
    pci.check_relations()
    _check_places(tree, every)
    return Survey(
        devices,
        rdma_cm,
        NamespaceMode.UNKNOWN,
        tuple(tree.faults),
        gpus,
        functions,
        management=management,
    )


def read_devices(root: Path, names: Iterable[str]) -> tuple[tuple[Device, ...], CharDevice | None]:
    """Return the devices of these names that exist, and rdma_cm's device node; ignore faults.

    A pod that has just got devices is served by it: a survey of a large node takes 0.2 s, this some
    milliseconds.
    """
    tree = SysfsTree(root)
    pci = PciTree(tree)
    links = sites.NetdevTree(tree)
    read = (
        _device(tree, pci, links, name, _chars_of(tree, name))
        if tree.holds(f"{DEVICES}/{name}")
        else _moved(tree, name)
        for name in names
    )
    devices = tuple(device for device in read if device is not None)
    return devices, _rdma_cm(tree)


def _moved(tree: SysfsTree, name: str) -> Device | None:
    """Return the little that the node's sysfs shows of a device in a pod: its device nodes.

    They are of no namespace (uverbs_class, drivers/infiniband/core/uverbs_main.c).
    """
    chars = _chars_of(tree, name)
    return (
        Device(name, name, None, "<unknown>", None, None, None, None, (), chars) if chars else None
    )


def _rdma_cm(tree: SysfsTree) -> CharDevice | None:
    if "rdma_cm" not in tree.names("class/misc", required=False):
        return None
    return _char_device(tree, CharKind.RDMA_CM, "class/misc/rdma_cm")


def _device(
    tree: SysfsTree,
    pci: PciTree,
    links: sites.NetdevTree,
    name: str,
    chars: tuple[CharDevice, ...],
    *,
    brief: bool = False,
) -> Device | None:
    """Return one RDMA device; None, with a single fault, if it does not exist."""
    path = f"{DEVICES}/{name}"
    if tree.place(path, required=True) is None:
        return None
    before = len(tree.faults)
    ports = tuple(
        _port(tree, f"{path}/ports", number, brief=brief)
        for number in sorted(int(n) for n in tree.names(f"{path}/ports") if n.isdecimal())
    )
    site = sites.find_site(tree, pci, links, path, ports)
    switchdev = links.in_switch(site.netdevs, ports)
    device = Device(
        name=name,
        identity=site.identity,
        node_guid=tree.matching(f"{path}/node_guid", _GUID),
        node_type=_numbered(tree, f"{path}/node_type") or "<unknown>",
        driver=site.driver,
        firmware=tree.text(f"{path}/fw_ver", required=False),
        pci=site.position.pci if site.position and not site.soft else None,
        numa_node=site.numa_node,
        ports=tuple(_on_netdevs(tree, links, path, site, ports, switchdev=switchdev)),
        char_devices=chars,
        position=site.position,
        auxiliary=site.auxiliary,
        subfunction=site.subfunction,
        switchdev=switchdev,
    )
    if len(tree.faults) > before and not tree.holds(path):
        del tree.faults[before:]
        tree.blame(path, "vanished while it was being read")
        return None
    return device


def _check_places(tree: SysfsTree, devices: tuple[Device, ...]) -> None:
    """Add a fault for each device name that leads to the same device as another name."""
    owners: dict[str | None, str] = {}
    for device in devices:
        path = f"{DEVICES}/{device.name}"
        owner = owners.setdefault(tree.place(path), path)
        if owner != path:
            tree.blame(path, f"leads to the same device as {owner}")


def _port(tree: SysfsTree, ports: str, number: int, *, brief: bool) -> Port:
    path = f"{ports}/{number}"
    layer = _word(tree, f"{path}/link_layer", LinkLayer)
    fabric = layer is LinkLayer.INFINIBAND
    state, physical = port_states(tree, path)
    # A tree without the file says nothing of partitions.
    pkey = tree.matching(f"{path}/pkeys/0", _PKEY, required=False) if fabric else None
    return Port(
        number=number,
        state=state,
        physical_state=physical,
        link_layer=layer,
        rate_gbps=_rate(tree, f"{path}/rate"),
        netdev=None,  # needs the whole device: _on_netdevs
        gids=_gids(tree, path, brief=brief),
        lid=_lid(tree, f"{path}/lid") if fabric else None,
        sm_lid=_lid(tree, f"{path}/sm_lid") if fabric else None,
        pkey=int(pkey, 16) if pkey else None,
    )


def port_states(tree: SysfsTree, port: str) -> tuple[PortState, PhysicalState]:
    """Return logical and physical state of the port in folder `port`; UNKNOWN if unreadable."""
    return (
        _word(tree, f"{port}/state", PortState, numbered=True),
        _word(tree, f"{port}/phys_state", PhysicalState, numbered=True),
    )


def _on_netdevs(
    tree: SysfsTree,
    links: sites.NetdevTree,
    path: str,
    site: sites.DeviceSite,
    ports: tuple[Port, ...],
    *,
    switchdev: bool,
) -> Iterator[Port]:
    """Yield ports with their network interfaces, as far as sysfs tells."""
    merged = links.of_merged(tree.place(f"{path}/device")) if len(ports) > 1 else ()
    found = of_ports(ports, site.netdevs, merged, links.dev_port, switchdev=switchdev)
    for port in ports:
        own = found.get(port.number)
        if not site.netdevs and site.driver in INTERFACE_ELSEWHERE:
            named = [gid.netdev for gid in port.gids if gid.netdev]
            there = [name for name in named if tree.holds(f"class/net/{name}")]
            own = next(iter(links.of(there[:1])), None)
        yield replace(
            port,
            netdev=own.name if own else None,
            bond=own.master if own and own.bonded else None,
            representor=own is None and switchdev,
        )


def _gids(tree: SysfsTree, port: str, *, brief: bool) -> tuple[Gid, ...]:
    gids = tree.entries(f"{port}/gids", (0,), silent=True) if brief else {}
    if gids.get(0, _UNUSED_GID) == _UNUSED_GID:  # the first entry is the card's own, as a rule
        gids = tree.table(f"{port}/gids")
    used = {i: gid for i, gid in gids.items() if gid != _UNUSED_GID}
    for index in [index for index, gid in used.items() if not _GID.fullmatch(gid)]:
        tree.blame(f"{port}/gids/{index}", f"is not a GID: {used.pop(index)!r}")
    if not used:
        return ()
    types, netdevs = f"{port}/gid_attrs/types", f"{port}/gid_attrs/ndevs"
    type_of = tree.entries(types, used)
    netdev_of = tree.entries(netdevs, used, silent=True, empty=True)
    return tuple(
        Gid(
            index,
            value,
            _spelled(tree, f"{types}/{index}", type_of.get(index), GidType),
            sites.netdev_name(tree, f"{netdevs}/{index}", netdev_of.get(index)),
        )
        for index, value in used.items()
    )


def _char_devices(tree: SysfsTree, devices: tuple[str, ...]) -> dict[str, list[CharDevice]]:
    """Return the character devices of each RDMA device, in the order of their names."""
    char_devices: dict[str, list[CharDevice]] = {name: [] for name in devices}
    numbers: dict[tuple[int, int], str] = {}
    for folder in _CHARS:
        for name in tree.names(folder, required=False):
            match = _CHAR_NAME.fullmatch(name)
            if not match:
                continue
            path = f"{folder}/{name}"
            owner = tree.text(f"{path}/ibdev")
            if owner is not None and owner not in char_devices:
                tree.blame(f"{path}/ibdev", f"names {owner!r}, which {DEVICES} does not show")
            char = _char_device(tree, CharKind(match[1]), path)
            first = numbers.setdefault((char.major, char.minor), path) if char else path
            if first != path:
                tree.blame(f"{path}/dev", f"is the device number of {first}")
            elif char and owner in char_devices:
                char_devices[owner].append(char)
    return char_devices


def _chars_of(tree: SysfsTree, device: str) -> tuple[CharDevice, ...]:
    """Return a device's character devices, which sysfs lists beside it or, if soft, elsewhere."""
    chars = []
    for folder in _CHARS:
        beside = f"{DEVICES}/{device}/device/{folder.rpartition('/')[2]}"
        for name in tree.names(beside, required=False) or tree.names(folder, required=False):
            match = _CHAR_NAME.fullmatch(name)
            if match and tree.text(f"{folder}/{name}/ibdev", required=False) == device:
                chars.append(_char_device(tree, CharKind(match[1]), f"{folder}/{name}"))
    return tuple(char for char in chars if char)


def _char_device(tree: SysfsTree, kind: CharKind, path: str) -> CharDevice | None:
    """Return a character device, with the path in its uevent file; None without a number."""
    if tree.place(path, required=True) is None:
        return None
    numbers = tree.matching(f"{path}/dev", _DEV)
    named = _DEVNAME.search(tree.text(f"{path}/uevent", required=False) or "")
    if numbers is None:
        return None
    major, minor = numbers.split(":")
    name = named[1] if named else f"infiniband/{path.rpartition('/')[2]}"
    return CharDevice(kind, f"/dev/{name}", int(major), int(minor))


def _word(tree: SysfsTree, path: str, words: type[Word], *, numbered: bool = False) -> Word:
    return _spelled(tree, path, _numbered(tree, path) if numbered else tree.text(path), words)


def _spelled(tree: SysfsTree, path: str, text: str | None, words: type[Word]) -> Word:
    """Return the enum member that the kernel's text means.

    Return UNKNOWN, and add a fault, for another text.
    """
    unknown = words["UNKNOWN"]
    if text is None:
        return unknown
    try:
        return words(_SPELLINGS.get(text, text))
    except ValueError:
        tree.blame(path, f"says {text!r}, which is not a {words.__name__}")
        return unknown


def _numbered(tree: SysfsTree, path: str) -> str | None:
    """Return the word behind the number in a sysfs text, such as ACTIVE of ``4: ACTIVE``."""
    text = tree.matching(path, _NUMBERED)
    return text.partition(": ")[2] if text else None


def _rate(tree: SysfsTree, path: str) -> float | None:
    """Return the Gb/s in a sysfs text such as ``100 Gb/sec (4X EDR)``; None without a rate."""
    text = tree.text(path, required=False)
    match = _RATE.match(text) if text else None
    if text and not match:
        tree.blame(path, f"says {text!r}, which is not of its form")
    return float(match[1]) if match else None


def _lid(tree: SysfsTree, path: str) -> int | None:
    """Return a port's local identifier from a text such as ``0x1a``; None while unassigned."""
    text = tree.matching(path, _LID)
    lid = int(text, 16) if text else 0
    return None if lid in _NO_LID else lid
