"""A fake kernel: writes the sysfs tree that shows given devices, and breaks it on request.

For tests and demonstrations. Reading what `write_tree` wrote gives the same values back, and what
no kernel could show is refused (fake_rules.py), so a test cannot be built on an impossible card.
`unpack` makes a tree out of a recorded one, kept as a single text file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from kube_rdma.adapters.kernel.fake_rules import complaints, is_soft
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    LinkLayer,
    PciAddress,
    PhysicalState,
    Port,
    PortState,
)

_NODE_TYPES = ("CA", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified")
_STATES = tuple(PortState)[:-1]
_PHYSICAL_STATES = tuple(PhysicalState)[:-1]
_UNUSED_GID = ":".join(["0000"] * 8)
_ETHERNET, _INFINIBAND = "1", "32"  # ARPHRD_ETHER, ARPHRD_INFINIBAND
_CLASSES = {CharKind.UVERBS: "infiniband_verbs", CharKind.RDMA_CM: "misc"}
_RANGE = re.compile(r"(.*)/\{(\d+)\.\.(\d+)\}")


class Damage(StrEnum):
    """Ways in which a file of a tree can be wrong."""

    DELETED = "deleted"
    EMPTY = "empty"
    BINARY = "binary"
    FOLDER = "folder"  # a directory where a file belongs
    LOOP = "loop"  # a link to itself


def write_tree(root: Path, devices: Sequence[Device], rdma_cm: CharDevice | None = None) -> None:
    """Write what the kernel's sysfs shows for `devices` below `root`, which is made if missing.

    Raise ValueError, saying why, for devices that no kernel could show.
    """
    for complaint in complaints(devices, rdma_cm):
        raise ValueError(f"no kernel shows this: {complaint}")
    for folder in ("class/infiniband", "class/net", "bus/pci/drivers"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    # Hardware first: a soft link may sit on the interface of a card.
    for device in sorted(devices, key=is_soft):
        _write_device(root, device)
    if rdma_cm is not None:
        _write_char(root, "devices/virtual", rdma_cm, {})


@contextmanager
def damaged(root: Path, path: str, how: Damage) -> Iterator[None]:
    """One file of a tree is broken inside the `with`; `path` is relative to `root`."""
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
    """Take a device away as unplugging does: its directory and the link to it."""
    link = root / "class/infiniband" / name
    shutil.rmtree(link.resolve())
    link.unlink()


def unpack(manifest: str, root: Path) -> None:
    r"""Write the tree that a manifest describes; ValueError for a line that says nothing.

    A line is ``path: content`` (``\n`` inside stands for a line end, the last one is added),
    ``path -> target`` for a link, or ``path/`` for a directory. ``gids/{4..255}: 0000:…`` stands
    for a range of files. Blank lines and lines that begin with # are passed over.
    """
    for line in manifest.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        path, link, target = line.partition(" -> ")
        name, colon, content = line.partition(": ")
        if link:
            _link(root, path, target)
        elif colon:
            for each in _expanded(name):
                _write(root, each, content.replace("\\n", "\n"))
        elif line.endswith("/"):
            (root / line).mkdir(parents=True, exist_ok=True)
        else:
            raise ValueError(f"neither file nor link nor directory: {line!r}")


def _expanded(path: str) -> list[str]:
    match = _RANGE.fullmatch(path)
    if not match:
        return [path]
    return [f"{match[1]}/{index}" for index in range(int(match[2]), int(match[3]) + 1)]


def _write_device(root: Path, device: Device) -> None:
    seat = _write_seat(root, device)
    place = f"{seat}/infiniband/{device.name}"
    if device.node_guid is not None:
        _write(root, f"{place}/node_guid", device.node_guid)
    _write(root, f"{place}/node_type", _numbered(device.node_type, _NODE_TYPES, 1))
    _write(root, f"{place}/fw_ver", device.firmware or "")
    if is_soft(device):
        # rxe has the file; siw (iWARP) has not and is known by its GID alone.
        if device.node_type == "CA":
            _write(root, f"{place}/parent", device.ports[0].netdev or "(null)")
    else:
        _link_to(root, f"{place}/device", seat)
    (root / place / "ports").mkdir()
    for port in device.ports:
        _write_port(root, f"{place}/ports/{port.number}", port)
    _link_to(root, f"class/infiniband/{device.name}", place)
    for char in device.char_devices:
        _write_char(root, seat, char, {"ibdev": device.name})


def _write_seat(root: Path, device: Device) -> str:
    """The directory a device sits in, with what is beside it there: driver, NUMA node, netdevs."""
    if is_soft(device):
        netdev = device.ports[0].netdev
        if netdev and not (root / "class/net" / netdev).exists():
            above = "devices/virtual"
            if device.numa_node is not None:
                above = f"devices/pci0000:00/0000:00:{_free_slot(root):02x}.0"
                _write(root, f"{above}/numa_node", str(device.numa_node))
            _write_netdev(root, above, netdev, 0, _ETHERNET)
        return "devices/virtual"
    seat = _function(device.pci) if device.pci else "devices/platform"
    if device.pci:
        node = -1 if device.numa_node is None else device.numa_node
        _write(root, f"{seat}/numa_node", str(node))
    if device.identity != device.pci:
        seat = f"{seat}/{device.identity}"
    if device.driver:
        bus = "pci" if device.identity == device.pci else "auxiliary"
        driver = f"bus/{bus}/drivers/{device.driver}"
        (root / driver).mkdir(parents=True, exist_ok=True)
        _link_to(root, f"{seat}/driver", driver)
    for port in device.ports:
        kind = _INFINIBAND if port.link_layer is LinkLayer.INFINIBAND else _ETHERNET
        if port.netdev:
            _write_netdev(root, seat, port.netdev, port.number - 1, kind)
    return seat


def _function(pci: PciAddress) -> str:
    return f"devices/pci{pci[: pci.rindex(':')]}/{pci}"


def _free_slot(root: Path) -> int:
    """A slot of bus 0 that no device has taken."""
    bus = root / "devices/pci0000:00"
    return next(slot for slot in range(256) if not (bus / f"0000:00:{slot:02x}.0").exists())


def _write_netdev(root: Path, above: str, name: str, dev_port: int, kind: str) -> None:
    _write(root, f"{above}/net/{name}/dev_port", str(dev_port))
    _write(root, f"{above}/net/{name}/type", kind)
    _link_to(root, f"class/net/{name}", f"{above}/net/{name}")


def _write_port(root: Path, place: str, port: Port) -> None:
    _write(root, f"{place}/state", _numbered(port.state, _STATES, 0))
    physical = _numbered(port.physical_state, _PHYSICAL_STATES, 1)
    _write(root, f"{place}/phys_state", physical.replace("UNKNOWN", "<unknown>"))
    _write(root, f"{place}/link_layer", port.link_layer)
    if port.rate_gbps is not None:
        _write(root, f"{place}/rate", f"{port.rate_gbps:g} Gb/sec (4X EDR)")
    used = {gid.index: gid for gid in port.gids}
    for index in range(max(used, default=0) + 2):  # so that every table has an unused entry
        gid = used.get(index)
        _write(root, f"{place}/gids/{index}", gid.value if gid else _UNUSED_GID)
        if gid:
            _write(root, f"{place}/gid_attrs/types/{index}", gid.type)
        if gid and gid.netdev:
            _write(root, f"{place}/gid_attrs/ndevs/{index}", gid.netdev)


def _numbered(word: str, words: Sequence[str], start: int) -> str:
    number = words.index(word) + start if word in words else len(words) + start
    return f"{number}: {word}"


def _write_char(root: Path, above: str, char: CharDevice, files: dict[str, str]) -> None:
    name = char.path.rpartition("/")[2]
    kind = _CLASSES.get(char.kind, "infiniband_mad")
    place = f"{above}/{kind}/{name}"
    uevent = f"MAJOR={char.major}\nMINOR={char.minor}\nDEVNAME={char.path.removeprefix('/dev/')}"
    for file, content in {**files, "dev": f"{char.major}:{char.minor}", "uevent": uevent}.items():
        _write(root, f"{place}/{file}", content)
    _link_to(root, f"class/{kind}/{name}", place)


def _write(root: Path, path: str, content: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{content}\n")


def _link_to(root: Path, path: str, place: str) -> None:
    """A relative link, as sysfs has them, from `path` to `place`, both relative to the root."""
    _link(root, path, os.path.relpath(place, Path(path).parent))


def _link(root: Path, path: str, target: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(target)
