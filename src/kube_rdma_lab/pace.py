"""Measures this machine's pace: how slow it is now, compared with the reference machine.

Limits of the lab's waits are seconds of the reference, which are multiplied by the pace. It is
measured before a lab boots, and once more before a wait is given up (patience.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

# A piece of work for every processor at once, as the machines of a lab want all of them. On the
# reference (two cores of 2.5 GHz, nothing beside it) it took 0.20 s, the start of Python included.
WORK = "n = 0\nfor i in range(1_000_000): n = (n * 31 + i) & 0xFFFFFFFF"
REFERENCE_SECONDS = 0.20
# Emulation has a pace of its own: below another hypervisor a page fault or a wake-up costs many
# times what it costs elsewhere, and the work above sees neither. Two machines booted after 12 s.
REFERENCE_BOOT_SECONDS = 12.0
SLOW = 1.5


def measure() -> float:
    """Measure this machine's pace: its time for a fixed piece of work, over the reference's.

    Limits of a control group count as well, for the work runs in the group of the caller.
    """
    argv = (sys.executable, "-I", "-S", "-c", WORK)
    begin = time.monotonic()
    working = [subprocess.Popen(argv) for _ in os.sched_getaffinity(0)]
    for process in working:
        process.wait()
    return (time.monotonic() - begin) / REFERENCE_SECONDS


def of_boot(seconds: float) -> float:
    """Return a lab machine's pace from the seconds that it took to boot; 1 is the reference's."""
    return seconds / REFERENCE_BOOT_SECONDS


def describe(pace: float, what: str = "machine") -> str:
    """Return a phrase with the pace of this machine, or of another `what`, for people."""
    return f"{'slow ' if pace >= SLOW else ''}{what}: {pace:.1f} × the reference"
