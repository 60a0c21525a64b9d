"""A fake kernel: writes the sysfs tree that shows given devices, and breaks it on request.

Reading what `write_tree` wrote gives the same values back. What no kernel could show is refused
(tree_rules.py), so a test cannot be built on an impossible card. kube_rdma_lab/native/tree_text.py
makes a tree out of an example machine's single text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from kube_rdma.adapters.kernel.link_view import ROUTES_FILE
from kube_rdma.adapters.kernel.sysfs.netdev import LINK_TYPES
from kube_rdma.model.card import Function
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma_lab.native.tree_text import link, link_to, write
from kube_rdma_testing.kernel.tree_rules import complaints
from kube_rdma_testing.kernel.tree_rules_functions import function_complaints

_NODE_TYPES = ("CA", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified")
_STATES = tuple(PortState)[:-1]
_PHYSICAL_STATES = tuple(PhysicalState)[:-1]
_UNUSED_GID = ":".join(["0000"] * 8)
_LINK_NUMBERS = {name: number for number, name in LINK_TYPES.items()}
_NO_LINK_TYPE = "65534"  # ARPHRD_NONE
_ETHERNET_CLASS, _INFINIBAND_CLASS = 0x020000, 0x020700  # include/linux/pci_ids.h
# What of a master's folder says what it is.
_BOND, _BRIDGE = ("bonding/mode", "802.3ad 4"), ("bridge/stp_state", "0")
_FAST_PATH = ("type", "1")
_CLASSES = {CharKind.UVERBS: "infiniband_verbs", CharKind.RDMA_CM: "misc"}


class Damage(StrEnum):
    """The ways in which `damaged` can break a file of a tree."""

    DELETED = "deleted"
    EMPTY = "empty"
    BINARY = "binary"
    FOLDER = "folder"  # a directory where a file belongs
    LOOP = "loop"  # a link to itself


def write_tree(
    root: Path,
    devices: Sequence[Device],
    rdma_cm: CharDevice | None = None,
    gpus: Sequence[Gpu] = (),
    functions: Sequence[Function] = (),
) -> None:
    """Write the kernel's sysfs for `devices` below `root`, which is made if missing.

    A device's function that is not among `functions` has no class, so a survey leaves it out.
    Default routes are written as `kube-rdma devices --record` does. Raise ValueError with the
    reason for what no kernel could show.
    """
    for complaint in (
        *complaints(devices, rdma_cm, gpus, functions),
        *function_complaints(devices, functions),
    ):
        raise ValueError(f"no kernel shows this: {complaint}")
    for folder in ("class/infiniband", "class/net", "bus/pci/devices", "bus/pci/drivers"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    positions = [device.position for device in devices if device.position]
    positions += [*(gpu.position for gpu in gpus), *(function.position for function in functions)]
    _write_positions(root, {position.pci: position for position in positions})
    for gpu in gpus:
        _write_gpu(root, gpu)
    for function in functions:
        _write_function(root, function)
    routed = sorted(n.name for f in functions for n in f.netdevs if n.default_route)
    if routed:
        write(root, ROUTES_FILE, json.dumps({"interfaces": routed}))
    # Hardware first: a soft link may sit on the interface of a card.
    for device in sorted(devices, key=lambda one: one.is_soft):
        _write_device(root, device)
    if rdma_cm is not None:
        _write_char(root, "devices/virtual", rdma_cm, {})


@contextmanager
def damaged(root: Path, path: str, how: Damage) -> Iterator[None]:
    """Break one file of a tree inside the `with`; `path` is relative to `root`."""
    target = root / path
    content = target.read_bytes()
    target.unlink()
    try:
        if how is Damage.EMPTY:
            target.touch()
        elif how is Damage.BINARY:
            target.write_bytes(b"\x7fELF\x00\xff\xfe")
        elif how is Damage.FOLDER:
            target.mkdir()
        elif how is Damage.LOOP:
            target.symlink_to(target.name)
        yield
    finally:
        if how is Damage.FOLDER:
            target.rmdir()
        target.unlink(missing_ok=True)
        target.write_bytes(content)


def remove_device(root: Path, name: str) -> None:
    """Remove an RDMA device's directory and the link to it."""
    link = root / "class/infiniband" / name
    shutil.rmtree(link.resolve())
    link.unlink()


def add_virtual(root: Path, function: Function) -> None:
    """Add a virtual function to its card, which must be in the tree and will list it."""
    position, place = function.position, _place(function.position)
    write(root, f"{place}/numa_node", str(-1 if position.numa_node is None else position.numa_node))
    link(root, f"{place}/physfn", f"../{position.physical_function}")
    _write_function(root, function)
    link_to(root, f"bus/pci/devices/{position.pci}", place)
    card = f"{place.rpartition('/')[0]}/{position.physical_function}"
    link(root, f"{card}/virtfn{function.vf_index}", f"../{position.pci}")


def remove_virtual(root: Path, link: Path) -> None:
    """Remove the virtual function at `link`, a card's virtfnN, with its interfaces."""
    place = link.resolve()
    link.unlink()
    for netdev in place.glob("net/*"):
        (root / "class/net" / netdev.name).unlink()
    (root / "bus/pci/devices" / place.name).unlink()
    shutil.rmtree(place)


def _write_positions(root: Path, positions: dict[PciAddress, PciPosition]) -> None:
    """Write a tree's PCI functions, also those that others name as physical or virtual ones."""
    for position in list(positions.values()):
        physical = position.physical_function
        if physical and physical not in positions:
            among = [vf for vf, other in positions.items() if other.physical_function == physical]
            path = (*position.path[:-1], physical)
            node, count = position.numa_node, len(among)
            positions[physical] = PciPosition(
                physical, position.root, path, node, None, tuple(among), count
            )
    for position in list(positions.values()):
        place, node = _place(position), position.numa_node
        for index, virtual in enumerate(position.virtual_functions):
            link(root, f"{place}/virtfn{index}", f"../{virtual}")
            path = (*position.path[:-1], virtual)
            positions.setdefault(
                virtual, PciPosition(virtual, position.root, path, node, position.pci)
            )
        if position.sriov_total is not None:
            write(root, f"{place}/sriov_totalvfs", str(position.sriov_total))
    for position in positions.values():
        place = _place(position)
        write(
            root,
            f"{place}/numa_node",
            str(-1 if position.numa_node is None else position.numa_node),
        )
        link_to(root, f"bus/pci/devices/{position.pci}", place)
        if position.physical_function:
            link(root, f"{place}/physfn", f"../{position.physical_function}")


def _place(position: PciPosition) -> str:
    return "/".join(("devices", position.root, *position.path))


def _write_gpu(root: Path, gpu: Gpu) -> None:
    _write_ids(root, gpu, gpu.pci_class)


def _write_ids(root: Path, function: Gpu | Function, pci_class: int) -> None:
    place = _place(function.position)
    write(root, f"{place}/class", f"0x{pci_class:06x}")
    write(root, f"{place}/vendor", f"0x{function.vendor:04x}")
    write(root, f"{place}/device", f"0x{function.device:04x}")
    if function.driver:
        _write_driver(root, place, f"bus/pci/drivers/{function.driver}")


def _write_function(root: Path, function: Function) -> None:
    place = _place(function.position)
    fabric = any(netdev.link_type == "infiniband" for netdev in function.netdevs)
    _write_ids(root, function, _INFINIBAND_CLASS if fabric else _ETHERNET_CLASS)
    if function.acpi_index is not None:
        write(root, f"{place}/acpi_index", str(function.acpi_index))
    for number, netdev in enumerate(function.netdevs):
        beside = f"{place}/net/{netdev.name}"
        write(root, f"{beside}/dev_port", str(number))
        write(root, f"{beside}/type", _LINK_NUMBERS.get(netdev.link_type, _NO_LINK_TYPE))
        write(root, f"{beside}/flags", "0x1003" if netdev.up else "0x1002")
        if netdev.carrier is not None:
            write(root, f"{beside}/carrier", str(int(netdev.carrier)))
        link_to(root, f"class/net/{netdev.name}", beside)
        if netdev.master:
            kind = _FAST_PATH if netdev.fast_path else _BOND if netdev.bonded else _BRIDGE
            _write_master(root, beside, netdev.master, kind)


def _write_driver(root: Path, place: str, driver: str) -> None:
    (root / driver).mkdir(parents=True, exist_ok=True)
    if not (root / place / "driver").is_symlink():
        link_to(root, f"{place}/driver", driver)


def _write_device(root: Path, device: Device) -> None:
    above = _write_site(root, device)
    place = f"{above}/infiniband/{device.name}"
    if device.node_guid is not None:
        write(root, f"{place}/node_guid", device.node_guid)
    write(root, f"{place}/node_type", _numbered(device.node_type, _NODE_TYPES, 1))
    write(root, f"{place}/fw_ver", device.firmware or "")
    if device.is_soft:
        # rxe has the file; siw (iWARP) has not and is known by its GID alone.
        if device.node_type == "CA":
            write(root, f"{place}/parent", device.ports[0].netdev or "(null)")
    else:
        link_to(root, f"{place}/device", above)
    (root / place / "ports").mkdir()
    for port in device.ports:
        _write_port(root, f"{place}/ports/{port.number}", port)
    link_to(root, f"class/infiniband/{device.name}", place)
    for char in device.char_devices:
        _write_char(root, above, char, {"ibdev": device.name})


def _write_site(root: Path, device: Device) -> str:
    """Write a device's parent folder with its driver and netdevs; return its path."""
    if device.is_soft:
        port = device.ports[0]
        netdev = root / f"class/net/{port.netdev}"
        if port.netdev and not netdev.exists():
            above = _place(device.position) if device.position else "devices/virtual"
            _write_netdev(root, above, port, 0)
        elif port.netdev:
            _write_bond(root, netdev.resolve().relative_to(root.resolve()).as_posix(), port)
        return "devices/virtual"
    above = _place(device.position) if device.position else "devices/platform"
    bus = "pci" if device.position else "platform"
    if device.identity != device.pci:
        above = f"{above}/{device.identity}"
        bus = "auxiliary" if device.auxiliary else bus
    if device.driver:
        _write_driver(root, above, f"bus/{bus}/drivers/{device.driver}")
    if device.subfunction is not None:
        write(root, f"{above}/sfnum", str(device.subfunction))
    for port in device.ports:
        if port.netdev:
            _write_netdev(root, above, port, port.number - 1)
    return above


def _write_netdev(root: Path, above: str, port: Port, dev_port: int) -> None:
    place = f"{above}/net/{port.netdev}"
    fabric = port.link_layer is LinkLayer.INFINIBAND
    write(root, f"{place}/dev_port", str(dev_port))
    write(root, f"{place}/type", _LINK_NUMBERS["infiniband" if fabric else "ether"])
    if not (root / "class/net" / str(port.netdev)).is_symlink():
        link_to(root, f"class/net/{port.netdev}", place)
    _write_bond(root, place, port)


def _write_bond(root: Path, place: str, port: Port) -> None:
    """Write the bond of the interface at `place`, unless the tree has it."""
    if port.bond and not (root / place / "master").is_symlink():
        _write_master(root, place, port.bond, _BOND)


def _write_master(root: Path, place: str, name: str, kind: tuple[str, str]) -> None:
    """Write the master of the interface at `place`: a virtual interface or one of hv_netvsc."""
    at = f"devices/vmbus/{name}" if kind == _FAST_PATH else "devices/virtual"
    master = f"{at}/net/{name}"
    if not (root / master).exists():
        write(root, f"{master}/{kind[0]}", kind[1])
        link_to(root, f"class/net/{name}", master)
    if kind == _FAST_PATH and not (root / master / "device").is_symlink():
        link_to(root, f"{master}/device", at)
        _write_driver(root, at, "bus/vmbus/drivers/hv_netvsc")
    link_to(root, f"{place}/master", master)
    link_to(root, f"{place}/upper_{name}", master)


def _write_port(root: Path, place: str, port: Port) -> None:
    write(root, f"{place}/state", _numbered(port.state, _STATES, 0))
    physical = _numbered(port.physical_state, _PHYSICAL_STATES, 1)
    write(root, f"{place}/phys_state", physical.replace("UNKNOWN", "<unknown>"))
    write(root, f"{place}/link_layer", port.link_layer)
    if port.rate_gbps is not None:
        write(root, f"{place}/rate", f"{port.rate_gbps:g} Gb/sec (4X EDR)")
    if port.pkey is not None:
        write(root, f"{place}/pkeys/0", f"0x{port.pkey:04x}")
    write(root, f"{place}/lid", f"0x{port.lid or 0:x}")
    write(root, f"{place}/sm_lid", f"0x{port.sm_lid or 0:x}")
    used = {gid.index: gid for gid in port.gids}
    for index in range(max(used, default=0) + 2):  # so that every table has an unused entry
        gid = used.get(index)
        write(root, f"{place}/gids/{index}", gid.value if gid else _UNUSED_GID)
        if gid:
            write(root, f"{place}/gid_attrs/types/{index}", gid.type)
        if gid and gid.netdev:
            write(root, f"{place}/gid_attrs/ndevs/{index}", gid.netdev)


def _numbered(word: str, words: Sequence[str], start: int) -> str:
    number = words.index(word) + start if word in words else len(words) + start
    return f"{number}: {word}"


def _write_char(root: Path, above: str, char: CharDevice, files: dict[str, str]) -> None:
    name = char.path.rpartition("/")[2]
    kind = _CLASSES.get(char.kind, "infiniband_mad")
    place = f"{above}/{kind}/{name}"
    uevent = f"MAJOR={char.major}\nMINOR={char.minor}\nDEVNAME={char.path.removeprefix('/dev/')}"
    for file, content in {**files, "dev": f"{char.major}:{char.minor}", "uevent": uevent}.items():
        write(root, f"{place}/{file}", content)
    link_to(root, f"class/{kind}/{name}", place)
