"""Reads the PCIe links of RDMA cards: what they run at, and what card and slot can.

For `kube-rdma doctor` alone; the survey needs none of it. The slot is the port above the card, a
root port or a switch's lower side. What the files say reads pcie_text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.sysfs.pci import FUNCTIONS
from kube_rdma.adapters.kernel.sysfs.pcie_text import lane_speed, lanes
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.pcie import PcieLink
from kube_rdma.model.survey import Survey

_SYSFS = Path("/sys")


def read_pcie(survey: Survey, sysfs: SysfsRoot | None = None) -> tuple[PcieLink, ...]:
    """The links of all cards with an RDMA device; raise Unavailable where none says anything.

    A virtual function has no link of its own, so that of its card is read.
    """
    tree = SysfsTree(sysfs or _SYSFS)
    seats = tuple(_seats(survey))
    links = tuple(link for seat in seats if (link := _link(tree, seat)))
    if seats and not links:
        raise Unavailable("the kernel tells no PCIe link of any card")
    return links


def _seats(survey: Survey) -> Iterator[PciPosition]:
    """Where the cards are, each once."""
    of_devices = (device.seat for device in survey.devices if device.seat)
    wanted = dict.fromkeys(seat.physical_function or seat.pci for seat in of_devices)
    seats = {one.seat.pci: one.seat for one in survey.functions}
    return (seats[pci] for pci in wanted if pci in seats)


def _link(tree: SysfsTree, seat: PciPosition) -> PcieLink | None:
    """The link of a card; None where its speed or its width is not told."""
    ends = seat.path[-2:]  # the slot, if it is not the root complex itself, and the card
    speed, width = _speed(tree, seat.pci, "current"), _width(tree, seat.pci, "current")
    speeds = [one for pci in ends if (one := _speed(tree, pci, "max"))]
    widths = [one for pci in ends if (one := _width(tree, pci, "max"))]
    if not (speed and width and speeds and widths):
        return None
    return PcieLink(seat.pci, width, speed, min(widths), min(speeds))


def _speed(tree: SysfsTree, pci: PciAddress, which: str) -> float:
    """GT/s of a lane; 0 where it is not told."""
    return lane_speed(tree.text(f"{FUNCTIONS}/{pci}/{which}_link_speed", required=False) or "")


def _width(tree: SysfsTree, pci: PciAddress, which: str) -> int:
    """Lanes; 0 where they are not told."""
    return lanes(tree.text(f"{FUNCTIONS}/{pci}/{which}_link_width", required=False) or "")
