"""What the kernel writes of a PCIe link, for the metrics and for the doctor.

drivers/pci/pci-sysfs.c, current_link_width and current_link_speed with their max_: lanes as a
number, and "16.0 GT/s PCIe". They say 255 or "Unknown" where the hardware does not tell.
"""

from __future__ import annotations

import re

_LANES = re.compile(r"[0-9]{1,3}")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_UNKNOWN = 255  # PCIE_LNK_WIDTH_UNKNOWN of include/linux/pci.h


def lanes(text: str) -> int:
    """How many; 0 where it is not told."""
    number = int(text) if _LANES.fullmatch(text) else 0
    return number if number < _UNKNOWN else 0


def lane_speed(text: str) -> float:
    """GT/s of a lane; 0 where it is not told."""
    match = _SPEED.match(text)
    return float(match[1]) if match else 0.0
