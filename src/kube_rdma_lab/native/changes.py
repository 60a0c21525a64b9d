"""Changes a sysfs tree as events at a card do: a port goes down or up, a PCI function leaves.

Nothing here touches the kernel: replay.py makes the change and then announces it as the kernel
would. A function that was pulled lies in a folder beside the tree, with the links that led to it,
until it is plugged in again. How names lead to functions: Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.model.device import PciAddress

PCI = "bus/pci/devices"
INFINIBAND = "class/infiniband"
LINKS = "links"
# Logical and physical state as drivers/infiniband/core/sysfs.c prints them. RoCE follows its
# interface, which was set down; any other port goes on looking for a peer.
UP = ("4: ACTIVE", "5: LinkUp")
SET_DOWN = ("1: DOWN", "3: Disabled")
WITHOUT_PEER = ("1: DOWN", "2: Polling")


@dataclass(frozen=True, slots=True)
class Member:
    """A device of a PCI function, as uevents name it: subsystem, and path below /sys."""

    subsystem: str
    devpath: str


@dataclass(frozen=True, slots=True)
class TreeFunction:
    """A PCI function of a sysfs tree, with its devices and network interfaces."""

    address: str
    members: tuple[Member, ...]
    interfaces: tuple[str, ...]


def ports(root: Path, device: str, *, up: bool) -> None:
    """Set all ports of an RDMA device in a tree up or down; raise Refused if it is unknown."""
    folder = root / INFINIBAND / device
    if not folder.is_dir():
        raise _unknown(root, device)
    for port in sorted(folder.glob("ports/*")):
        layer = (port / "link_layer").read_text().strip()
        down = SET_DOWN if layer == "Ethernet" else WITHOUT_PEER
        state, physical = UP if up else down
        (port / "state").write_text(f"{state}\n")
        (port / "phys_state").write_text(f"{physical}\n")


def function(root: Path, name: str) -> TreeFunction:
    """Return the PCI function of a device, interface or address; raise Refused without one."""
    return _described(root, _folder(root, name))


def pull(root: Path, stash: Path, name: str) -> TreeFunction:
    """Move the function that `name` belongs to from the tree into `stash`; return it.

    Raise Refused without one, or while it has virtual functions, which a machine would lose too.
    """
    folder = _folder(root, name)
    if virtual := sorted(link.resolve().name for link in folder.glob("virtfn*")):
        raise Refused(
            f"{folder.name} has virtual functions", remedy=f"Pull {', '.join(virtual)} first"
        )
    gone = _described(root, folder)
    place = stash / gone.address
    place.mkdir(parents=True)
    lines = []
    for link in _links_into(root, folder):
        lines.append(f"{link.relative_to(root)} {link.readlink()}\n")
        link.unlink()
    (place / LINKS).write_text(f"{folder.relative_to(root)}\n{''.join(lines)}")
    shutil.move(folder, place / "function")
    _count_virtual_functions(folder.parent)
    return gone


def plug(root: Path, stash: Path, address: str) -> TreeFunction:
    """Put a pulled function back into the tree; return it. Raise Refused if it was not pulled."""
    place = stash / address
    if not place.is_dir():
        pulled = sorted(path.name for path in stash.glob("*"))
        raise Refused(
            f"no function {address!r} was pulled",
            remedy=f"Choose one of {', '.join(pulled)}" if pulled else "Pull one first",
        )
    relative, *lines = (place / LINKS).read_text().splitlines()
    shutil.move(place / "function", root / relative)
    for line in lines:
        link, target = line.split(" ", 1)
        (root / link).symlink_to(target)
    shutil.rmtree(place)
    _count_virtual_functions((root / relative).parent)
    return _described(root, root / relative)


def _folder(root: Path, name: str) -> Path:
    """Return the folder of the PCI function that a name belongs to; raise Refused without one."""
    for place in (PCI, INFINIBAND, "class/net"):
        folder = (root / place / name).resolve()
        if (root / place / name).is_symlink() and folder.is_dir():
            for above in (folder, *folder.parents):
                if _is_address(above.name):
                    return above
            raise Refused(
                f"{name} is on no PCI function, so it cannot be pulled", remedy="Choose another"
            )
    raise _unknown(root, name)


def _described(root: Path, folder: Path) -> TreeFunction:
    members = [
        Member(_subsystem(root, link), f"/{link.resolve().relative_to(root.resolve())}")
        for link in _links_into(root, folder)
        if not link.name.startswith("virtfn")
    ]
    names = tuple(sorted(path.name for path in folder.glob("net/*")))
    return TreeFunction(folder.name, tuple(members), names)


def _subsystem(root: Path, link: Path) -> str:
    """Return the subsystem of a link in class/ or bus/, as the kernel's uevents call it."""
    return link.relative_to(root).parts[1]


def _links_into(root: Path, folder: Path) -> Iterator[Path]:
    """Yield the links elsewhere in the tree that lead to a function or below it."""
    target = folder.resolve()
    beside = folder.parent.glob("*/virtfn*")
    for link in sorted((*root.glob("class/*/*"), *root.glob(f"{PCI}/*"), *beside)):
        if link.is_symlink() and link.resolve().is_relative_to(target):
            yield link


def _count_virtual_functions(bus: Path) -> None:
    """Write into sriov_numvfs of a bus's physical functions how many virtual ones exist."""
    for count in bus.glob("*/sriov_numvfs"):
        count.write_text(f"{len(list(count.parent.glob('virtfn*')))}\n")


def _is_address(name: str) -> bool:
    try:
        PciAddress(name)
    except ValueError:
        return False
    return True


def _unknown(root: Path, name: str) -> Refused:
    devices = sorted(path.name for path in (root / INFINIBAND).glob("*"))
    return Refused(
        f"the node's tree shows no {name!r}",
        remedy=f"Choose an RDMA device ({', '.join(devices)}), its interface or PCI address",
    )
