"""The network functions of a sysfs tree: what a card is besides its RDMA devices.

devices.py takes them into the Survey, pools/rules/cards joins them with the devices. A function
counts by its PCI class, with or without a driver, interface or RDMA device. The virtual functions
of a card can be thousands, so what the kernel copies from their physical one is not read again.
Names and formats: Documentation/ABI/testing/sysfs-bus-pci and sysfs-class-net,
net/core/net-sysfs.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kube_rdma.adapters.kernel.sysfs.netdev import (
    is_auxiliary,
    is_bond,
    is_paravirtual,
    master_above,
    netdev_name,
)
from kube_rdma.adapters.kernel.sysfs.pci import FUNCTIONS, NETWORK_CLASS, PciTree, function_above
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, PciPosition

NETDEVS = "class/net"
LINK_TYPES = {"1": "ether", "32": "infiniband"}  # ARPHRD_*, include/uapi/linux/if_arp.h

_UP = 0x1  # IFF_UP
_FLAGS = re.compile(r"0x[0-9a-f]{1,8}")

_Netdevs = Mapping[str, tuple[Netdev, ...]]  # by the place of their function


def read_functions(tree: SysfsTree, pci: PciTree) -> tuple[Function, ...]:
    """Every function of class 02 (network), sorted by address; default routes are not in sysfs."""
    netdevs = _netdevs(tree)
    functions: dict[PciAddress, Function] = {}
    for name in pci.of_class({NETWORK_CLASS}):
        place = tree.place(f"{FUNCTIONS}/{name}", required=True)
        seat = pci.seat(place)
        ids = pci.ids(place) if place else None
        if place is None or seat is None or ids is None:
            continue
        functions[seat.pci] = Function(
            seat=seat,
            vendor=ids[0],
            device=ids[1],
            driver=tree.link(f"{place}/driver"),
            netdevs=netdevs.get(place, ()),
            acpi_index=pci.count(f"{place}/acpi_index"),
            vf_index=pci.vf_index(place),
        )
        for virtual in _virtual(tree, pci, place, seat, netdevs):
            functions[virtual.seat.pci] = virtual
    return tuple(functions[address] for address in sorted(functions))


def _virtual(
    tree: SysfsTree, pci: PciTree, physical: str, above: PciPosition, netdevs: _Netdevs
) -> Iterator[Function]:
    """The virtual functions of the physical one at the place `physical`.

    They have one vendor and one device id (pci_iov_add_virtfn(), drivers/pci/iov.c), which the
    first of them tells, and no number by the firmware, which knows nothing of them.
    """
    ids = None
    for address in above.virtual_functions:
        beside = f"{physical.rpartition('/')[0]}/{address}"
        listed = f"{FUNCTIONS}/{address}"
        place = beside if tree.holds(beside) else tree.place(listed, required=True)
        seat = pci.seat(place)
        ids = ids or (pci.ids(place) if place else None)
        if place is None or seat is None or ids is None:
            continue
        driver = tree.link(f"{place}/driver")
        index = pci.vf_index(place)
        yield Function(seat, *ids, driver, netdevs.get(place, ()), vf_index=index)


def _netdevs(tree: SysfsTree) -> _Netdevs:
    """The interfaces of each function. Those of a sub-function lie below it and are not its own."""
    netdevs: dict[str, tuple[Netdev, ...]] = {}
    for name in tree.names(NETDEVS, required=False):
        place = tree.place(f"{NETDEVS}/{name}")
        function = function_above(place)
        if place is None or function is None or not netdev_name(tree, NETDEVS, name):
            continue
        if any(is_auxiliary(part) for part in place[len(function) :].split("/")):
            continue
        before = len(tree.faults)
        netdev = _netdev(tree, name)
        if len(tree.faults) > before and not tree.holds(f"{NETDEVS}/{name}"):
            del tree.faults[before:]  # it went while it was read, into a pod as a rule
            continue
        netdevs[function] = (*netdevs.get(function, ()), netdev)
    return netdevs


def _netdev(tree: SysfsTree, name: str) -> Netdev:
    path = f"{NETDEVS}/{name}"
    carrier = _carrier(tree, f"{path}/carrier")
    flags = tree.text(f"{path}/flags", required=False)
    if flags and not _FLAGS.fullmatch(flags):
        tree.blame(f"{path}/flags", f"says {flags!r}, which is not of its form")
        flags = None
    master = master_above(tree, name)
    return Netdev(
        name=name,
        link_type=LINK_TYPES.get(tree.text(f"{path}/type", required=False) or "", ""),
        # A carrier can be read of an interface that is up, which a tree without flags tells by it.
        up=bool(int(flags, 16) & _UP) if flags else carrier is not None,
        carrier=carrier,
        master=master,
        bonded=master is not None and is_bond(tree, master),
        fast_path=master is not None and is_paravirtual(tree, master),
    )


def _carrier(tree: SysfsTree, path: str) -> bool | None:
    text = tree.text(path, required=False)
    if text in {"0", "1", None}:
        return None if text is None else text == "1"
    tree.blame(path, f"is neither 0 nor 1: {text!r}")
    return None
