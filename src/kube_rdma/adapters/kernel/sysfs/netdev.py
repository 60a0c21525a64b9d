"""What an RDMA device sits on: function, driver, interfaces, and the identity that follows.

devices.py asks it once per device. Three kinds of site exist: a PCI function, a smaller device on
one (an auxiliary device such as a mlx5 sub-function), and no hardware at all. rxe and siw are of
the last kind since Linux 5.11 ("Make emulated devices virtual in the device tree"); before it they
pointed at the card of their interface, which is why rxe's `parent` file is asked first.
"""

from __future__ import annotations

import re

from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.sysfs.pci import PciTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.device import PciPosition, Port

_NETDEV = re.compile(r"[^/\s]{1,15}")  # dev_valid_name(), net/core/dev.c
_AUXILIARY = re.compile(r"[^.]+\..+\.\d+")  # module.name.id, drivers/base/auxiliary.c
_NO_PARENT = "(null)"  # rxe prints this when its interface is gone
# Drivers whose interfaces are masters without being bonds: netvsc_vf_join(),
# drivers/net/hyperv/netvsc_drv.c; failover_slave_register(), net/core/failover.c.
_PARAVIRTUAL = ("hv_netvsc", "virtio_net")
_LOWER, _UPPER = "lower_", "upper_"  # netdev_adjacent_sysfs_add(), net/core/dev.c


class SysfsNetdev(Frozen):
    """An interface beside an RDMA device; `dev_port` counts the ports of one function from 0."""

    name: str
    dev_port: int


class DeviceSite(Frozen):
    """The place of one RDMA device in the machine; `seat` is None without a PCI function.

    A `soft` device sits on no function of its own: the seat is its interface's.
    """

    identity: str
    seat: PciPosition | None
    driver: str | None
    numa_node: int | None
    netdevs: tuple[SysfsNetdev, ...]
    auxiliary: str | None = None
    subfunction: int | None = None
    soft: bool = False


def is_auxiliary(name: str) -> bool:
    """Whether a device's name is one of the auxiliary bus: mlx5_core.sf.4."""
    return _AUXILIARY.fullmatch(name) is not None


def soft_identity(link: str, netdev: str | None) -> str:
    """The identity of a device without hardware; the link's name alone while no netdev is known."""
    return f"{link}@{netdev}" if netdev else link


def netdev_name(tree: SysfsTree, path: str, name: str | None) -> str | None:
    """`name` if an interface can have it; None, and a fault at `path`, for any other text."""
    if name is None or _NETDEV.fullmatch(name):
        return name
    tree.blame(path, f"is not an interface name: {name!r}")
    return None


def bond_above(tree: SysfsTree, netdev: str) -> str | None:
    """The bonding interface that `netdev` is enslaved to; other masters (bridges) are none."""
    master = master_above(tree, netdev)
    above = (master,) if master else upper_netdevs(tree, netdev)
    return next((name for name in above if is_bond(tree, name)), None)


def master_above(tree: SysfsTree, netdev: str) -> str | None:
    """What `netdev` is enslaved to: a bond, a bridge, a VRF."""
    return tree.link(f"class/net/{netdev}/master")


def is_bond(tree: SysfsTree, netdev: str) -> bool:
    """Whether `netdev` is a bonding interface."""
    return tree.holds(f"class/net/{netdev}/bonding")


def is_paravirtual(tree: SysfsTree, netdev: str) -> bool:
    """Whether `netdev` is one that a hypervisor gives to its virtual machine.

    Bonds and bridges have no device. What is enslaved to such an interface carries its traffic.
    """
    return tree.link(f"class/net/{netdev}/device/driver") in _PARAVIRTUAL


def lower_netdevs(tree: SysfsTree, netdev: str) -> tuple[str, ...]:
    """The interfaces right below `netdev`: slaves of a bond, ports of a bridge, a vlan's parent."""
    names = tree.names(f"class/net/{netdev}", required=False)
    return tuple(name.removeprefix(_LOWER) for name in names if name.startswith(_LOWER))


def upper_netdevs(tree: SysfsTree, netdev: str) -> tuple[str, ...]:
    """The interfaces of this namespace right above `netdev`: its bond, its bridge, its vlans."""
    names = tree.names(f"class/net/{netdev}", required=False)
    return tuple(name.removeprefix(_UPPER) for name in names if name.startswith(_UPPER))


def find_site(tree: SysfsTree, pci: PciTree, path: str, ports: tuple[Port, ...]) -> DeviceSite:
    """The site of the device at `path`; `ports` name its interface where sysfs does not."""
    parent_text = tree.text(f"{path}/parent", required=False)
    parent = netdev_name(tree, f"{path}/parent", parent_text)
    place = None if parent else tree.place(f"{path}/device")
    if place is not None:
        return _hard_site(tree, pci, path, place)
    netdev = parent if parent != _NO_PARENT else None
    if netdev is None:
        named = (gid.netdev for port in ports for gid in port.gids if gid.netdev)
        netdev = next((n for n in named if tree.holds(f"class/net/{n}")), None)
    seat = _seat_below(tree, pci, netdev) if netdev else None
    return DeviceSite(
        identity=soft_identity(path.rpartition("/")[2], netdev),
        seat=seat,
        driver=None,
        numa_node=seat.numa_node if seat else None,
        netdevs=(SysfsNetdev(netdev, 0),) if netdev else (),
        soft=True,
    )


def _seat_below(tree: SysfsTree, pci: PciTree, netdev: str) -> PciPosition | None:
    """The function of an interface, or the only one right below a virtual one (vlan, bond)."""
    seat = pci.seat(tree.place(f"class/net/{netdev}"))
    if seat:
        return seat
    seats = {pci.seat(tree.place(f"class/net/{name}")) for name in lower_netdevs(tree, netdev)}
    return seats.pop() if len(seats) == 1 else None


def _hard_site(tree: SysfsTree, pci: PciTree, path: str, place: str) -> DeviceSite:
    # The last name is the function's own address, or the auxiliary device on it.
    name = place.rpartition("/")[2]
    seat = pci.seat(place)
    auxiliary = name if is_auxiliary(name) else None
    driver = tree.place(f"{path}/device/driver")
    return DeviceSite(
        identity=name,
        seat=seat,
        driver=driver.rpartition("/")[2] if driver else None,
        numa_node=seat.numa_node if seat else None,
        netdevs=_netdevs(tree, f"{path}/device/net"),
        auxiliary=auxiliary,
        subfunction=_number(tree, f"{path}/device/sfnum") if auxiliary else None,
    )


def _netdevs(tree: SysfsTree, folder: str) -> tuple[SysfsNetdev, ...]:
    return tuple(
        SysfsNetdev(name, _number(tree, f"{folder}/{name}/dev_port") or 0)
        for name in tree.names(folder, required=False)
        if netdev_name(tree, folder, name)
    )


def _number(tree: SysfsTree, path: str) -> int | None:
    """A decimal number in a file that not every device has."""
    text = tree.text(path, required=False)
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    tree.blame(path, f"is not a number: {text!r}")
    return None
