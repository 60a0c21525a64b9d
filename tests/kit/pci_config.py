"""The configuration of a PCIe function as sysfs gives it to root: 4096 bytes with ACS or without.

Layout of extended capabilities: include/uapi/linux/pci_regs.h, PCI_EXT_CAP_*.
"""

from __future__ import annotations

import struct

_SIZE, _FIRST, _STEP = 4096, 0x100, 0x40
_ACS, _CONTROL = 0x0D, 6


def config(acs, ahead=()):
    """With ACS Control `acs`, None for a function without it, behind other capabilities."""
    data = bytearray(_SIZE)
    numbers = [*ahead, *([] if acs is None else [_ACS])]
    for index, number in enumerate(numbers):
        at = _FIRST + index * _STEP
        following = at + _STEP if number is not numbers[-1] else 0
        struct.pack_into("<I", data, at, number | 1 << 16 | following << 20)
        if number == _ACS:
            struct.pack_into("<H", data, at + _CONTROL, acs)
    return bytes(data)
