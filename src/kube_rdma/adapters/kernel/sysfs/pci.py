"""Reads PCI functions: where they sit, how they are related, which are GPUs, how fast links are.

netdev.py asks for the position of each RDMA device and for the network functions; devices.py takes
the GPUs from here. Names and formats come from drivers/pci/pci-sysfs.c, drivers/pci/iov.c and
Documentation/ABI/testing/sysfs-bus-pci. A card can have hundreds of virtual functions, so a
function is read once. Of virtual ones some files are not read, such as the class, which is that of
their card. The doctor and the metrics read links, which no survey has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.card import IommuGroup
from kube_rdma.model.device import Gpu, PciAddress, PcieLink, PciPosition
from kube_rdma.model.survey import Survey

FUNCTIONS = "bus/pci/devices"

NETWORK_CLASS = 0x02  # base class, include/linux/pci_ids.h

_NO_IOMMU = "vfio-noiommu"
_VIRTUAL = re.compile(r"virtfn(\d+)")
_HEX = re.compile(r"0x[0-9a-f]{1,8}")
_GPU_CLASSES = frozenset({0x03, 0x12})  # include/linux/pci_ids.h: display, processing accelerator


@lru_cache(1 << 14)
def pci_address(name: str) -> PciAddress | None:
    """Return a text as a PCI address; None if the text is not one."""
    try:
        return PciAddress(name)
    except ValueError:
        return None


def function_above(place: str | None) -> str | None:
    """Return the path of the nearest PCI function at or above `place`, None without one."""
    while place:
        above, _, last = place.rpartition("/")
        if pci_address(last):
            return place
        place = above
    return None


class PciTree:
    """The PCI functions of one sysfs tree; what cannot be read becomes a fault of the tree."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._positions: dict[str, PciPosition] = {}  # by the place of the function
        self._physical: dict[str, str] = {}  # place of a virtual function → of its physical one
        self._indexes: dict[PciAddress, int] = {}  # N of the virtfnN that leads to a function
        self._classes: dict[str, int | None] = {}
        self._groups: dict[str, IommuGroup] = {}  # each with all of its devices, by number
        self._listed = dict.fromkeys(tree.names(FUNCTIONS, required=False))

    def position(self, place: str | None) -> PciPosition | None:
        """Return the position of the PCI function at or above `place`, None without one."""
        function = function_above(place)
        if function is None:
            return None
        if function not in self._positions:
            self._positions[function] = self._read(function)
        return self._positions[function]

    def vf_index(self, place: str) -> int | None:
        """Return the index of the virtual function at `place`; None if it is not virtual."""
        position = self.position(place)
        if position is None or self.position(self._physical.get(place)) is None:
            return None
        return self._indexes.get(position.pci)

    def of_class(self, bases: Collection[int]) -> Iterator[str]:
        """Yield the addresses of PCI functions of these base classes, in order.

        Virtual functions of cards that were read by then are passed over unread: their class is
        that of their card (SR-IOV specification, 3.4.1.6). A card that the caller reads before it
        asks for the next address counts too.
        """
        for name in self._listed:
            if name in self._indexes:
                continue
            pci_class = self._class(name)
            if pci_class is not None and pci_class >> 16 in bases:
                yield name

    def ids(self, place: str) -> tuple[int, int] | None:
        """Return vendor and device id of the PCI function at `place`.

        Return None, and add a fault, if one cannot be read.
        """
        vendor, device = self._number(f"{place}/vendor"), self._number(f"{place}/device")
        return None if vendor is None or device is None else (vendor, device)

    def group(self, place: str) -> IommuGroup | None:
        """Return the IOMMU group of the PCI function at `place`, with the other devices in it.

        Return None without a group. Where there is no IOMMU, the group is called vfio-noiommu
        (vfio_noiommu_group_alloc, drivers/vfio/group.c).
        """
        tree, number = self._tree, self._tree.link(f"{place}/iommu_group")
        if number is None or not number.isdecimal():
            return None
        if number not in self._groups:  # without ACS all functions of a card are in one
            folder = f"kernel/iommu_groups/{number}"
            names = tree.names(f"{folder}/devices", required=False)
            every = tuple((one, tree.link(f"{folder}/devices/{one}/driver")) for one in names)
            guarded = tree.text(f"{folder}/name", required=False) != _NO_IOMMU
            self._groups[number] = IommuGroup(int(number), every, guarded)
        group, own = self._groups[number], place.rpartition("/")[2]
        return replace(group, others=tuple(one for one in group.others if one[0] != own))

    def check_relations(self) -> None:
        """Add faults where links between physical and virtual functions contradict each other.

        Only functions that were asked for are looked at: the links of one that nobody sits on
        change nothing in the survey.
        """
        for function, above in self._physical.items():
            virtual, physical = self._positions[function], self.position(above)
            if physical and virtual.pci not in physical.virtual_functions:
                reason = f"names {physical.pci}, which does not list {virtual.pci}"
                self._tree.blame(f"{function}/physfn", reason)
        positions_by_address = {position.pci: position for position in self._positions.values()}
        for function, position in self._positions.items():
            for name in position.virtual_functions:
                other = positions_by_address.get(name)
                if other and other.physical_function != position.pci:
                    reason = f"lists {name}, which names {other.physical_function} instead"
                    self._tree.blame(function, reason)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return every function of a GPU's class, sorted by address.

        Call it after the network functions, so that their virtual ones are passed over unread.
        """
        gpus = [self._gpu(name) for name in tuple(self.of_class(_GPU_CLASSES))]
        return tuple(gpu for gpu in gpus if gpu is not None)

    def _gpu(self, name: str) -> Gpu | None:
        path = f"{FUNCTIONS}/{name}"
        pci_class = self._class(name)
        position = self.position(self._tree.place(path, required=True))
        ids = self.ids(path)
        if position is None or ids is None or pci_class is None:
            return None
        driver = self._tree.place(f"{path}/driver")
        return Gpu(position, pci_class, *ids, driver.rpartition("/")[2] if driver else None)

    def _class(self, name: str) -> int | None:
        """Return a function's PCI class; None where the tree has no such file."""
        if name not in self._classes:
            self._classes[name] = self._number(f"{FUNCTIONS}/{name}/class", required=False)
        return self._classes[name]

    def _read(self, function: str) -> PciPosition:
        tree = self._tree
        parts = function.split("/")
        path = tuple(address for part in parts if (address := pci_address(part)))
        first = next(i for i, part in enumerate(parts) if pci_address(part))
        physical = tree.link(f"{function}/physfn")
        total = None if physical else tree.number(f"{function}/sriov_totalvfs")
        if physical and not pci_address(physical):
            tree.blame(f"{function}/physfn", f"leads to {physical!r}, which is not a PCI function")
        elif physical:
            # The target of physfn is beside the function as a rule.
            above: str | None = f"{function.rpartition('/')[0]}/{physical}"
            if above not in self._positions:
                above = tree.place(f"{function}/physfn", required=True)
            if above:
                self._physical[function] = above
        return PciPosition(
            pci=path[-1],
            root=parts[first - 1] if first else "",
            path=path,
            numa_node=self._numa(f"{function}/numa_node"),
            physical_function=pci_address(physical) if physical else None,
            virtual_functions=() if total is None else self._virtual(function),
            sriov_total=total,
        )

    def _virtual(self, function: str) -> tuple[PciAddress, ...]:
        """Return the virtual functions of a physical one, ordered by index."""
        tree = self._tree
        names = (_VIRTUAL.fullmatch(name) for name in tree.names(function))
        addresses: dict[PciAddress, None] = {}
        for index in sorted(int(match[1]) for match in names if match):
            path = f"{function}/virtfn{index}"
            name = tree.link(path)
            address = pci_address(name) if name else None
            if name and address is None:
                tree.blame(path, f"leads to {name!r}, which is not a PCI function")
            elif address in addresses:
                tree.blame(path, f"leads to {address}, as another one does")
            elif address and self._listed and address not in self._listed:
                tree.blame(path, f"leads to {address}, which {FUNCTIONS} does not show")
            elif address:
                addresses[address] = None
                self._indexes.setdefault(address, index)
        return tuple(addresses)

    def _numa(self, path: str) -> int | None:
        """Return the NUMA node of a PCI function; None if it has none (-1)."""
        text = self._tree.text(path, required=False)
        if text is None or text == "-1":
            return None
        if text.isdecimal():
            return int(text)
        self._tree.blame(path, f"is not a NUMA node: {text!r}")
        return None

    def _number(self, path: str, *, required: bool = True) -> int | None:
        """Return the hexadecimal number in a file of a PCI function, such as ``0x15b3``."""
        text = self._tree.matching(path, _HEX, required=required)
        return int(text, 16) if text else None


# PCIe links, for the metrics and for the doctor.

_LANES = re.compile(r"[0-9]{1,3}")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_UNKNOWN = 255  # PCIE_LNK_WIDTH_UNKNOWN of include/linux/pci.h


def pcie_rate(width: str, speed: str) -> tuple[int, float] | None:
    """Return a PCIe link's lanes, and GT/s of a lane; None if one of them is unknown."""
    lanes = int(width) if _LANES.fullmatch(width) else 0
    match = _SPEED.match(speed)
    return (lanes, float(match[1])) if match and 0 < lanes < _UNKNOWN else None


def pcie_link(
    pci: PciAddress, now: tuple[int, float] | None, ends: Iterable[tuple[int, float] | None]
) -> PcieLink | None:
    """Return a card's PCIe link, with the capability of its weaker end; None if unknown."""
    able = [end for end in ends if end is not None]
    if now is None or not able:
        return None
    return PcieLink(pci, *now, min(lanes for lanes, _ in able), min(speed for _, speed in able))


def read_pcie(survey: Survey, sysfs: SysfsRoot | None = None) -> tuple[PcieLink, ...]:
    """Return the links of cards with an RDMA device, and of the switches up to the root port.

    A virtual function has no link of its own, so that of its card is read. Raise Unavailable where
    the kernel tells no link of these cards.
    """
    tree = SysfsTree(sysfs)

    def rate(pci: PciAddress, which: str) -> tuple[int, float] | None:
        width, speed = (
            tree.text(f"{FUNCTIONS}/{pci}/{which}_link_{what}", required=False) or ""
            for what in ("width", "speed")
        )
        return pcie_rate(width, speed)

    def way_up(path: tuple[PciAddress, ...]) -> Iterator[PcieLink | None]:
        yield pcie_link(
            path[-1], rate(path[-1], "current"), (rate(pci, "max") for pci in path[-2:])
        )
        # In a switch is no link: of its ports one ends the link above, the other begins that below.
        for lower in range(len(path) - 3, 0, -2):
            ends = path[lower - 1 : lower + 1]
            now, most = ([rate(pci, which) for pci in ends] for which in ("current", "max"))
            if now[0] == now[1] and None not in most:  # of one link both ends say the same
                yield pcie_link(path[lower], now[0], most)

    of_devices = (device.position for device in survey.devices if device.position)
    wanted = dict.fromkeys(position.physical_function or position.pci for position in of_devices)
    by_address = {one.position.pci: one.position for one in survey.functions}
    positions = [by_address[pci] for pci in wanted if pci in by_address]
    # Cards of one switch share its link; a card in the root complex itself has no port above it.
    links = tuple(
        dict.fromkeys(link for position in positions for link in way_up(position.path) if link)
    )
    if positions and not links:
        raise Unavailable("the kernel tells no PCIe link of any card")
    return links
