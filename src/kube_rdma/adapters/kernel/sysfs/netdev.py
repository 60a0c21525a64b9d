"""Finds what an RDMA device sits on, and the network functions of a sysfs tree.

devices.py asks for the site of each device: function, driver, interfaces, and the identity that
follows. A site is one of three as a rule: a PCI function, an auxiliary device on one (such as a
mlx5 sub-function), or no hardware at all. rxe and siw are of the last kind since Linux 5.11 ("Make
emulated devices virtual in the device tree"). Before 5.11 they pointed at the card of their
interface, which is why rxe's `parent` file is read first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.interfaces import is_representor
from kube_rdma.adapters.kernel.sysfs.pci import FUNCTIONS, NETWORK_CLASS, PciTree, function_above
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.card import Function, Netdev, is_vfio
from kube_rdma.model.device import PciAddress, PciPosition, Port

_NETDEV = re.compile(r"[^/\s]{1,15}")  # dev_valid_name(), net/core/dev.c
_AUXILIARY = re.compile(r"[^.]+\..+\.\d+")  # module.name.id, drivers/base/auxiliary.c
_NO_PARENT = "(null)"  # rxe prints this when its interface is gone
_LOWER, _UPPER = "lower_", "upper_"  # netdev_adjacent_sysfs_add(), net/core/dev.c


class DeviceSite(Frozen):
    """The place of an RDMA device: PCI position and interfaces; `position` is None without PCI.

    A `soft` device sits on no function of its own: the position is its interface's.
    """

    identity: str
    position: PciPosition | None
    driver: str | None
    numa_node: int | None
    netdevs: tuple[Netdev, ...]
    auxiliary: str | None = None
    subfunction: int | None = None
    soft: bool = False


def is_auxiliary(name: str) -> bool:
    """Return whether a name is a device's on the auxiliary bus, such as mlx5_core.sf.4."""
    return _AUXILIARY.fullmatch(name) is not None


def soft_identity(link: str, netdev: str | None) -> str:
    """Return a soft RDMA device's identity: ``name@interface``; ``name`` without interface."""
    return f"{link}@{netdev}" if netdev else link


def netdev_name(tree: SysfsTree, path: str, name: str | None) -> str | None:
    """Return `name` if an interface can have it; None, and a fault at `path`, for another text."""
    if name is None or _NETDEV.fullmatch(name):
        return name
    tree.blame(path, f"is not an interface name: {name!r}")
    return None


def lower_netdevs(tree: SysfsTree, netdev: str) -> tuple[str, ...]:
    """Return the interfaces that `netdev` is built on: a bond's slaves, a vlan's parent."""
    names = tree.names(f"class/net/{netdev}", required=False)
    return tuple(name.removeprefix(_LOWER) for name in names if name.startswith(_LOWER))


def upper_netdevs(tree: SysfsTree, netdev: str) -> tuple[str, ...]:
    """Return the interfaces built on `netdev`: its bond, its bridge, its vlans."""
    names = tree.names(f"class/net/{netdev}", required=False)
    return tuple(name.removeprefix(_UPPER) for name in names if name.startswith(_UPPER))


def find_site(
    tree: SysfsTree, pci: PciTree, netdevs: NetdevTree, path: str, ports: tuple[Port, ...]
) -> DeviceSite:
    """Return where the RDMA device at `path` sits: PCI position and interfaces.

    The GIDs of `ports` name the interface of a soft device without a `parent` file.
    """
    parent = netdev_name(tree, f"{path}/parent", tree.text(f"{path}/parent", required=False))
    place = None if parent else tree.place(f"{path}/device")
    if place is not None:
        # The last name is the function's own address, or the auxiliary device on it.
        name = place.rpartition("/")[2]
        position = pci.position(place)
        auxiliary = name if is_auxiliary(name) else None
        driver = tree.place(f"{path}/device/driver")
        return DeviceSite(
            identity=name,
            position=position,
            driver=driver.rpartition("/")[2] if driver else None,
            numa_node=position.numa_node if position else None,
            netdevs=netdevs.of(tree.names(f"{path}/device/net", required=False)),
            auxiliary=auxiliary,
            subfunction=tree.number(f"{path}/device/sfnum") if auxiliary else None,
        )
    netdev = parent if parent != _NO_PARENT else None
    if netdev is None:
        named = (gid.netdev for port in ports for gid in port.gids if gid.netdev)
        netdev = next((n for n in named if tree.holds(f"class/net/{n}")), None)
    position = _position_below(tree, pci, netdev) if netdev else None
    return DeviceSite(
        identity=soft_identity(path.rpartition("/")[2], netdev),
        position=position,
        driver=None,
        numa_node=position.numa_node if position else None,
        netdevs=netdevs.of((netdev,)) if netdev else (),
        soft=True,
    )


def _position_below(tree: SysfsTree, pci: PciTree, netdev: str) -> PciPosition | None:
    """Return the PCI position of an interface, or of the only one that it is built on; or None."""
    position = pci.position(tree.place(f"class/net/{netdev}"))
    if position:
        return position
    positions = {
        pci.position(tree.place(f"class/net/{name}")) for name in lower_netdevs(tree, netdev)
    }
    return positions.pop() if len(positions) == 1 else None


# Network functions: what a card is besides its RDMA devices.

NETDEVS = "class/net"
LINK_TYPES = {"1": "ether", "32": "infiniband"}  # ARPHRD_*, include/uapi/linux/if_arp.h

_UP = 0x1  # IFF_UP
_FLAGS = re.compile(r"0x[0-9a-f]{1,8}")


def read_functions(tree: SysfsTree, pci: PciTree, seen: NetdevTree) -> tuple[Function, ...]:
    """Return every network function (class 02), sorted by address; default routes are not marked.

    The virtual functions of a card have one vendor and one device id (pci_iov_add_virtfn(),
    drivers/pci/iov.c), so only those of the first are read. They have no acpi_index, for the
    firmware knows nothing of them.
    """
    netdevs = _functions_netdevs(tree, seen)
    functions: dict[PciAddress, Function] = {}

    def add(place: str | None, like: Function | None = None) -> Function | None:
        """Read the PCI function at `place`.

        With `like`, take vendor and device id from that one.
        """
        position = pci.position(place)
        ids = (like.vendor, like.device) if like else (pci.ids(place) if place else None)
        if place is None or position is None or ids is None:
            return None
        driver = tree.link(f"{place}/driver")
        functions[position.pci] = Function(
            position,
            *ids,
            driver,
            netdevs.get(place, ()),
            None if position.physical_function else tree.number(f"{place}/acpi_index"),
            pci.vf_index(place),
            pci.group(place) if is_vfio(driver) else None,
        )
        return functions[position.pci]

    for name in pci.of_class({NETWORK_CLASS}):
        place = tree.place(f"{FUNCTIONS}/{name}", required=True)
        above, sibling = add(place), None
        if place is None or above is None:
            continue
        for address in above.position.virtual_functions:
            beside, listed = f"{place.rpartition('/')[0]}/{address}", f"{FUNCTIONS}/{address}"
            there = beside if tree.holds(beside) else tree.place(listed, required=True)
            sibling = add(there, sibling) or sibling
    return tuple(functions[address] for address in sorted(functions))


def _functions_netdevs(tree: SysfsTree, seen: NetdevTree) -> dict[str, tuple[Netdev, ...]]:
    """Return interfaces by their PCI function's path, without those of sub-functions."""
    names: dict[str, list[str]] = {}
    for name in tree.names(NETDEVS, required=False):
        place = tree.place(f"{NETDEVS}/{name}")
        function = function_above(place)
        if place is None or function is None:
            continue
        if not any(is_auxiliary(part) for part in place[len(function) :].split("/")):
            names.setdefault(function, []).append(name)
    return {function: seen.of(beside) for function, beside in names.items()}


class NetdevTree:
    """The network interfaces of one sysfs tree, each read once; faults go to the tree."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._read: dict[str, Netdev | None] = {}

    def of(self, names: Sequence[str]) -> tuple[Netdev, ...]:
        """Return these interfaces of one PCI function, representors last.

        An interface alone is never a representor, so the files that show one are not read.
        """
        for name in names:
            if name not in self._read:
                self._read[name] = self._netdev(name, several=len(names) > 1)
        read = (self._read[name] for name in names)
        return tuple(sorted((one for one in read if one), key=lambda one: one.representor))

    def of_merged(self, place: str | None) -> tuple[Netdev, ...]:
        """Return interfaces of other functions whose ports the device at `place` has too.

        With LAG and multiport eswitch, further functions of a card have no RDMA device. A virtual
        function has only its own ports.
        """
        slot, _, _ = (place or "").rpartition(".")
        found: list[Netdev] = []
        others = () if self._tree.holds(f"{place}/physfn") else range(1, 8)
        for function in (f"{slot}.{number}" for number in others):
            names = self._tree.names(f"{function}/net", required=False)
            virtual = self._tree.holds(f"{function}/physfn")
            if names and not virtual and not self._tree.holds(f"{function}/infiniband"):
                found += self.of(names)[:1]
        return tuple(one for one in found if not one.representor)

    def in_switch(self, netdevs: Sequence[Netdev], ports: Sequence[Port]) -> bool:
        """Decide whether a device is in switchdev mode, by its interfaces and ports.

        Representors may be elsewhere, or not made yet; then the uplink's phys_switch_id shows the
        mode. Out of that mode an uplink can have one too, but then ports have GIDs.
        """
        if len(netdevs) != 1 or len(ports) == 1 or any(port.gids for port in ports):
            return any(one.representor for one in netdevs)
        uplink = f"{NETDEVS}/{netdevs[0].name}"
        return bool(self._tree.text(f"{uplink}/phys_switch_id", required=False))

    def dev_port(self, name: str) -> int:
        """Return the number of the card's port that an interface belongs to, from 0."""
        return self._tree.number(f"{NETDEVS}/{name}/dev_port") or 0

    def _netdev(self, name: str, *, several: bool) -> Netdev | None:
        tree, path = self._tree, f"{NETDEVS}/{name}"
        if not netdev_name(tree, NETDEVS, name):
            return None
        before = len(tree.faults)
        carrier = _carrier(tree, f"{path}/carrier")
        flags = tree.matching(f"{path}/flags", _FLAGS, required=False)
        master = tree.link(f"{path}/master")
        above = f"{NETDEVS}/{master}"
        place = tree.place(above) if master else None
        port_name = tree.text(f"{path}/phys_port_name", required=False) if several else None
        bare = port_name is not None and port_name.isdecimal()
        switch = tree.text(f"{path}/phys_switch_id", required=False) if bare else None
        netdev = Netdev(
            name=name,
            link_type=LINK_TYPES.get(tree.text(f"{path}/type", required=False) or "", ""),
            # A carrier can be read while an interface is up, so it stands in for missing flags.
            up=bool(int(flags, 16) & _UP) if flags else carrier is not None,
            carrier=carrier,
            master=master,
            bonded=master is not None and tree.holds(f"{above}/bonding"),
            # Of masters a virtual machine's own interface alone has a device: netvsc_vf_join,
            # drivers/net/hyperv/netvsc_drv.c; failover_slave_register, net/core/failover.c.
            fast_path=place is not None and not place.startswith("devices/virtual/"),
            representor=is_representor(port_name, switch),
        )
        if len(tree.faults) > before and not tree.holds(path):
            del tree.faults[before:]  # it went while it was read, into a pod as a rule
            return None
        return netdev


def _carrier(tree: SysfsTree, path: str) -> bool | None:
    text = tree.text(path, required=False)
    if text in {"0", "1", None}:
        return None if text is None else text == "1"
    tree.blame(path, f"is neither 0 nor 1: {text!r}")
    return None
