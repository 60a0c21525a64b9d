"""QEMU's command line for the bare machine: hardware for a survey to find, no network outside.

Two sockets with a card each. The first has a ghost of a GPU too (a display without a driver), the
second an SR-IOV card (igb). The cards are plugged into one hub inside QEMU, so the machine needs
nothing of the host's network. Results leave it on a second serial line.
"""

from __future__ import annotations

from pathlib import Path

from kube_rdma_lab.build.testroot import BareParts
from kube_rdma_lab.qemu_machine import BUS_NUMBERS, KERNEL_ARGUMENTS
from kube_rdma_lab.topology import RDMA_MTU

MEMORY_MIB = 1024
SOCKETS = (0, 1)
# QEMU's model, the socket and what its MAC ends with; the guest finds its cards by MAC.
CARDS = (
    (f"virtio-net-pci,host_mtu={RDMA_MTU},romfile=", 0, "01"),
    (f"virtio-net-pci,host_mtu={RDMA_MTU},romfile=", 1, "02"),
    ("igb,romfile=", 1, "03"),
)
MAC = "52:54:00:00:00"
GHOST, GHOST_SOCKET = "bochs-display,vgamem=4M", 0


def command_line(
    parts: BareParts, accelerator: tuple[str, ...], initrd: Path, results: Path, kernel: str = ""
) -> list[str]:
    """Return QEMU's command line for a bare machine, with the guest's console on stdout.

    `kernel` adds words to the kernel's command line, where they replace those of equal names. QEMU
    dies with the thread that starts it: kill -9 leaves no machine behind.
    """
    argv = ["setpriv", "--pdeathsig", "KILL", "--", *parts.qemu.system_argv, "-machine", "q35"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-serial", "stdio", "-serial", f"file:{results}"]
    argv += [
        *accelerator,
        "-smp",
        f"{len(SOCKETS)},sockets={len(SOCKETS)}",
        "-m",
        str(MEMORY_MIB),
        "-no-reboot",
    ]
    argv += ["-kernel", str(parts.kernel), "-initrd", str(initrd), "-append", words(kernel)]
    root = f"file={parts.disk},format=raw,if=none,id=root,readonly=on,file.locking=off"
    argv += ["-drive", root, "-device", "virtio-blk-pci,drive=root,bus=pcie.0"]
    argv += ["-device", "virtio-rng-pci,bus=pcie.0"]
    return [*argv, *_sockets(), *_cards()]


def words(own: str) -> str:
    """Return the kernel's command line with the words `own`, which replace those of equal names.

    Appending them would not do: what `audit=0` has turned off stays off (kernel/audit.c).
    """
    names = {word.partition("=")[0] for word in own.split()}
    general = (word for word in KERNEL_ARGUMENTS.split() if word.partition("=")[0] not in names)
    return " ".join((*general, *own.split()))


def _sockets() -> list[str]:
    """Return QEMU's options for the NUMA nodes, each with a CPU, memory and a PCIe root."""
    argv: list[str] = []
    for number in SOCKETS:
        size = MEMORY_MIB // len(SOCKETS)
        bridge = f"id=socket{number},bus_nr={BUS_NUMBERS[number]},bus=pcie.0,numa_node={number}"
        argv += ["-object", f"memory-backend-ram,id=mem{number},size={size}M"]
        argv += ["-numa", f"node,nodeid={number},cpus={number},memdev=mem{number}"]
        argv += ["-device", f"pxb-pcie,{bridge}"]
    return argv


def _cards() -> list[str]:
    """Return QEMU's options for cards and ghost, each on its own port below a socket."""
    argv: list[str] = []
    for position, (model, socket, mac) in enumerate(CARDS, start=1):
        port, net = f"port{position}", f"net{position}"
        argv += ["-device", f"pcie-root-port,id={port},bus=socket{socket},chassis={position}"]
        argv += ["-netdev", f"hubport,id={net},hubid=0"]
        argv += ["-device", f"{model},netdev={net},mac={MAC}:{mac},bus={port}"]
    ghost = f"pcie-root-port,id=ghost,bus=socket{GHOST_SOCKET},chassis={len(CARDS) + 1}"
    return [*argv, "-device", ghost, "-device", f"{GHOST},bus=ghost"]
