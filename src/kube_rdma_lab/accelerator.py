"""Finds out by a trial whether node VMs can run on KVM; without it they are emulated.

Inside other virtual machines /dev/kvm often opens and then fails on the first guest (seen: MSRs
that cannot be set, instructions that cannot be emulated). The trial is a guest that powers off.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma_lab.build.parts import MachineParts
from kube_rdma_lab.paths import cache_root
from kube_rdma_lab.processes import call

KVM = ("-accel", "kvm", "-cpu", "host")
EMULATION = ("-accel", "tcg,thread=multi", "-cpu", "max")
# Seconds of the reference (pace.py). A guest on working KVM is off again after about one.
PROBE_SECONDS = 8.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


async def choose(parts: MachineParts, slowness: float) -> tuple[str, ...]:
    """Return QEMU's options for KVM if it works on this machine, else for emulation.

    `slowness` is this machine's pace. KVM is tried once per boot of this machine; the cache folder
    keeps the result.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATION
    answer = recall()
    if answer is None:
        answer = await kvm_works(parts, PROBE_SECONDS * max(1.0, slowness))
        remember(answer)
    return KVM if answer else EMULATION


def recall() -> bool | None:
    """Return whether an earlier trial in this boot found KVM working; None without one."""
    try:
        return _memory().read_text() == "works"
    except FileNotFoundError:
        return None


def remember(works: bool) -> None:
    """Store the result of the KVM trial until the machine boots again."""
    for old in cache_root().glob("kvm-*"):
        old.unlink()
    _memory().write_text("works" if works else "fails")


def _memory() -> Path:
    return cache_root() / f"kvm-{BOOT_ID.read_text().strip()}"


async def kvm_works(parts: MachineParts, seconds: float) -> bool:
    """Boot a KVM guest that only powers off; return whether QEMU exits with 0 within `seconds`."""
    argv = [*parts.qemu.system_argv, "-machine", "q35", *KVM, "-m", "512", "-no-reboot"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-kernel", str(parts.kernel), "-initrd", str(parts.initrd)]
    argv += ["-append", "quiet panic=-1 rdinit=/bin/busybox -- poweroff -f"]
    try:
        await asyncio.wait_for(call(argv), seconds)
    except (Unavailable, TimeoutError):
        return False
    return True
