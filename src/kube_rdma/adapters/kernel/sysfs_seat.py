"""Where an RDMA device sits: on which function, driver and NUMA node, under which identity.

sysfs.py asks it once per device. Three kinds of seat exist: a PCI function, a smaller device on
one (an auxiliary device such as a mlx5 subfunction), and no hardware at all. rxe and siw are of the
last kind since Linux 5.11 ("Make emulated devices virtual in the device tree"); before it they
pointed at the card of their interface, which is why rxe's `parent` file is asked first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kube_rdma.adapters.kernel.sysfs_tree import Tree
from kube_rdma.model.device import PciAddress, Port

_NETDEV = re.compile(r"[^/\s]{1,15}")  # dev_valid_name(), net/core/dev.c
_NO_PARENT = "(null)"  # rxe prints this when its interface is gone


@dataclass(frozen=True, slots=True)
class Netdev:
    """An interface beside an RDMA device; `dev_port` counts the ports of one function from 0."""

    name: str
    dev_port: int


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one RDMA device in the machine."""

    identity: str
    pci: PciAddress | None
    driver: str | None
    numa_node: int | None
    netdevs: tuple[Netdev, ...]


def soft_identity(link: str, netdev: str | None) -> str:
    """The identity of a device without hardware; the link's name alone while no netdev is known."""
    return f"{link}@{netdev}" if netdev else link


def netdev_name(tree: Tree, path: str) -> str | None:
    """The interface that a file names; None when it names none, as files of this sort may."""
    name = tree.text(path, required=False)
    if name is None or _NETDEV.fullmatch(name):
        return name
    tree.blame(path, f"is no interface name: {name!r}")
    return None


def find_seat(tree: Tree, path: str, name: str, ports: tuple[Port, ...]) -> Seat:
    """The seat of the device `name` at `path`; `ports` name its interface where sysfs does not."""
    parent = netdev_name(tree, f"{path}/parent")
    place = None if parent else tree.place(f"{path}/device")
    if place is not None:
        return _hard_seat(tree, path, place)
    netdev = parent if parent != _NO_PARENT else None
    if netdev is None:
        named = (gid.netdev for port in ports for gid in port.gids if gid.netdev)
        netdev = next((n for n in named if tree.holds(f"class/net/{n}")), None)
    return Seat(
        identity=soft_identity(name, netdev),
        pci=None,
        driver=None,
        numa_node=_numa(tree, tree.place(f"class/net/{netdev}")) if netdev else None,
        netdevs=(Netdev(netdev, 0),) if netdev else (),
    )


def _hard_seat(tree: Tree, path: str, place: str) -> Seat:
    function = _pci_above(place)
    driver = tree.place(f"{path}/device/driver")
    return Seat(
        # The last name is the function's own address, or the auxiliary device on it.
        identity=place.rpartition("/")[2],
        pci=function[0] if function else None,
        driver=driver.rpartition("/")[2] if driver else None,
        numa_node=_numa(tree, place),
        netdevs=tuple(
            Netdev(name, _dev_port(tree, f"{path}/device/net/{name}"))
            for name in tree.names(f"{path}/device/net", required=False)
        ),
    )


def _dev_port(tree: Tree, netdev: str) -> int:
    text = tree.text(f"{netdev}/dev_port", required=False)
    if text is None or text.isdecimal():
        return int(text or 0)
    tree.blame(f"{netdev}/dev_port", f"is no number: {text!r}")
    return 0


def _pci_above(place: str | None) -> tuple[PciAddress, str] | None:
    """The nearest PCI function on the way up from `place`, and its own place."""
    while place:
        above, _, last = place.rpartition("/")
        try:
            return PciAddress(last), place
        except ValueError:
            place = above
    return None


def _numa(tree: Tree, place: str | None) -> int | None:
    """The NUMA node of the PCI function at or above `place`; the kernel's -1 means none."""
    function = _pci_above(place)
    if function is None:
        return None
    path = f"{function[1]}/numa_node"
    text = tree.text(path, required=False)
    if text is None or text == "-1":
        return None
    if text.isdecimal():
        return int(text)
    tree.blame(path, f"is no NUMA node: {text!r}")
    return None
