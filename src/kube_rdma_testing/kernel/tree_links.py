"""A fake kernel's PCIe links: files of a card and of the port above it, in a tree of sysfs.

The trees of tree.py have none. What no kernel could show is refused (drivers/pci/pci-sysfs.c: a
width in lanes, a speed as a text).
"""

from __future__ import annotations

import re
from pathlib import Path

from kube_rdma_lab.native.tree_text import write

_SPEED = re.compile(r"Unknown|\d+\.\d GT/s PCIe")
_WIDTHS = frozenset({0, 1, 2, 4, 8, 12, 16, 32, 255})
PcieEnd = tuple[int, str]
"""The lanes at one end of a link, and the speed of a lane."""

FULL: PcieEnd = (16, "32.0 GT/s PCIe")


def write_link(
    root: Path,
    device: str,
    now: PcieEnd = FULL,
    most: PcieEnd = FULL,
    above: PcieEnd | None = None,
) -> None:
    """Write the PCIe link of a device's card, and the maximum of the port `above`.

    Raise ValueError for a width or a speed that no kernel shows, and for a device without a card.
    """
    place = (root / "class/infiniband" / device / "device").resolve()
    if not place.is_dir():
        raise ValueError(f"{device} has no card")
    ends = [(place, "current", now), (place, "max", most)]
    if above is not None:
        ends.append((place.parent, "max", above))
    for folder, name, (lanes, speed) in ends:
        if lanes not in _WIDTHS or not _SPEED.fullmatch(speed):
            raise ValueError(f"no kernel has a link of {lanes} lanes with {speed!r}")
        below = folder.relative_to(root.resolve())
        write(root, f"{below}/{name}_link_width", str(lanes))
        write(root, f"{below}/{name}_link_speed", speed)
