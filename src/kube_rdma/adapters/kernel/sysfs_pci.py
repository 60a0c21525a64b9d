"""The PCI side of a survey: where functions sit, how they are related, which of them are GPUs.

sysfs_seat.py asks for the seat of each RDMA device; sysfs.py takes the GPUs from here. Names and
formats: drivers/pci/pci-sysfs.c, drivers/pci/iov.c, Documentation/ABI/testing/sysfs-bus-pci. A card
can have hundreds of virtual functions, so a function is read once, and one without an RDMA device
is known by what links to it alone.
"""

from __future__ import annotations

import re

from kube_rdma.adapters.kernel.sysfs_tree import Tree
from kube_rdma.model.device import Gpu, PciAddress, Seat

FUNCTIONS = "bus/pci/devices"

_VIRTUAL = re.compile(r"virtfn(\d+)")
_HEX = re.compile(r"0x[0-9a-f]{1,8}")
_GPU_CLASSES = frozenset({0x03, 0x12})  # include/linux/pci_ids.h: display, processing accelerator


def pci_address(name: str) -> PciAddress | None:
    """The PCI function that a name stands for, if it stands for one."""
    try:
        return PciAddress(name)
    except ValueError:
        return None


def function_above(place: str | None) -> str | None:
    """The place of the nearest PCI function on the way up from `place`, itself included."""
    while place:
        above, _, last = place.rpartition("/")
        if pci_address(last):
            return place
        place = above
    return None


class PciTree:
    """The PCI functions of one sysfs tree. Faults go to the tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._seats: dict[str, Seat] = {}  # by the place of the function
        self._physical: dict[str, str] = {}  # place of a virtual function → of its physical one
        self._listed = dict.fromkeys(tree.names(FUNCTIONS, required=False))

    def seat(self, place: str | None) -> Seat | None:
        """The seat of the PCI function at or above `place`; None when there is none."""
        function = function_above(place)
        if function is None:
            return None
        if function not in self._seats:
            self._seats[function] = self._read(function)
        return self._seats[function]

    def check_relations(self) -> None:
        """Blame the links of physical and virtual functions that contradict each other.

        Only functions that were asked for are looked at: the links of one that nobody sits on
        change nothing in the survey.
        """
        for function, above in self._physical.items():
            virtual, physical = self._seats[function], self.seat(above)
            if physical and virtual.pci not in physical.virtual_functions:
                reason = f"names {physical.pci}, which does not list {virtual.pci}"
                self._tree.blame(f"{function}/physfn", reason)
        known = {seat.pci: seat for seat in self._seats.values()}
        for function, seat in self._seats.items():
            for name in seat.virtual_functions:
                other = known.get(name)
                if other and other.physical_function != seat.pci:
                    reason = f"lists {name}, which names {other.physical_function} instead"
                    self._tree.blame(function, reason)

    def gpus(self) -> tuple[Gpu, ...]:
        """Every function of a GPU's class, sorted by address.

        Asked last: virtual functions of RDMA cards are known by then and passed over unread.
        """
        virtual = {name for seat in self._seats.values() for name in seat.virtual_functions}
        found = (self._gpu(name) for name in self._listed if name not in virtual)
        return tuple(gpu for gpu in found if gpu is not None)

    def _gpu(self, name: str) -> Gpu | None:
        path = f"{FUNCTIONS}/{name}"
        # Only the class tells a GPU, so a tree recorded without it is one without GPUs.
        pci_class = self._number(f"{path}/class", required=False)
        if pci_class is None or pci_class >> 16 not in _GPU_CLASSES:
            return None
        seat = self.seat(self._tree.place(path, required=True))
        vendor, device = self._number(f"{path}/vendor"), self._number(f"{path}/device")
        if seat is None or vendor is None or device is None:
            return None
        driver = self._tree.place(f"{path}/driver")
        return Gpu(seat, pci_class, vendor, device, driver.rpartition("/")[2] if driver else None)

    def _read(self, function: str) -> Seat:
        tree = self._tree
        parts = function.split("/")
        path = tuple(address for part in parts if (address := pci_address(part)))
        first = next(i for i, part in enumerate(parts) if pci_address(part))
        physical = tree.link(f"{function}/physfn")
        total = None if physical else self._count(f"{function}/sriov_totalvfs")
        if physical and not pci_address(physical):
            tree.blame(f"{function}/physfn", f"leads to {physical!r}, which is no PCI function")
        elif physical and (above := tree.place(f"{function}/physfn", required=True)):
            self._physical[function] = above
        return Seat(
            pci=path[-1],
            root=parts[first - 1] if first else "",
            path=path,
            numa_node=self._numa(f"{function}/numa_node"),
            physical_function=pci_address(physical) if physical else None,
            virtual_functions=() if total is None else self._virtual(function),
            sriov_total=total,
        )

    def _virtual(self, function: str) -> tuple[PciAddress, ...]:
        """The virtual functions that a physical one lists, in the order of their index."""
        tree = self._tree
        names = (_VIRTUAL.fullmatch(name) for name in tree.names(function))
        found: dict[PciAddress, None] = {}
        for index in sorted(int(match[1]) for match in names if match):
            path = f"{function}/virtfn{index}"
            name = tree.link(path)
            address = pci_address(name) if name else None
            if name and address is None:
                tree.blame(path, f"leads to {name!r}, which is no PCI function")
            elif address in found:
                tree.blame(path, f"leads to {address}, as another one does")
            elif address and self._listed and address not in self._listed:
                tree.blame(path, f"leads to {address}, which {FUNCTIONS} does not show")
            elif address:
                found[address] = None
        return tuple(found)

    def _numa(self, path: str) -> int | None:
        """The NUMA node in a function's file; the kernel's -1 means none."""
        text = self._tree.text(path, required=False)
        if text is None or text == "-1":
            return None
        if text.isdecimal():
            return int(text)
        self._tree.blame(path, f"is no NUMA node: {text!r}")
        return None

    def _count(self, path: str) -> int | None:
        text = self._tree.text(path, required=False)
        if text is None or text.isdecimal():
            return None if text is None else int(text)
        self._tree.blame(path, f"is no number: {text!r}")
        return None

    def _number(self, path: str, *, required: bool = True) -> int | None:
        """A hexadecimal number as PCI files have it (``0x15b3``)."""
        text = self._tree.text(path, required=required)
        if text is None or _HEX.fullmatch(text):
            return None if text is None else int(text, 16)
        self._tree.blame(path, f"says {text!r}, which is not of its form")
        return None
