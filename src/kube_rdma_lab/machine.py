"""One node as a QEMU machine: its command line, its console, its life.

A NodeSpec goes in, a running VM comes out. Node files travel as a second cpio archive behind the
common initramfs, so that every node boots the same disk, kernel and images.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab.build import cpio
from kube_rdma_lab.build.parts import Parts
from kube_rdma_lab.network import tap
from kube_rdma_lab.processes import Program, call, running
from kube_rdma_lab.topology import RDMA_MTU, NodeSpec

KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0"
# Bus numbers of the two sockets' PCIe roots; the gap leaves room for what hangs below.
BUS_NUMBERS = {0: 32, 1: 64}


def numa(node: NodeSpec) -> list[str]:
    """Options that split memory and processors evenly over the node's NUMA nodes."""
    share = node.memory_mib // node.numa_nodes
    argv: list[str] = []
    for number in range(node.numa_nodes):
        argv += ["-object", f"memory-backend-ram,id=mem{number},size={share}M"]
        argv += ["-numa", f"node,nodeid={number},cpus={number},memdev=mem{number}"]
    return argv


def interfaces(node: NodeSpec) -> list[str]:
    """Options for the cluster NIC and the cards, each card below the PCIe root of its socket.

    Every device names its bus: with a pxb present QEMU would otherwise place it there.
    """
    argv = ["-netdev", f"tap,id=net0,ifname={tap(node, 0)},script=no,downscript=no"]
    argv += ["-device", f"virtio-net-pci,netdev=net0,mac={node.mac(0)},bus=pcie.0,romfile="]
    for socket in sorted({nic.numa_node for nic in node.nics}):
        options = f"id=socket{socket},bus_nr={BUS_NUMBERS[socket]},bus=pcie.0,numa_node={socket}"
        argv += ["-device", f"pxb-pcie,{options}"]
    for position, nic in enumerate(node.nics, start=1):
        port, net = f"port{position}", f"net{position}"
        argv += [
            "-device",
            f"pcie-root-port,id={port},bus=socket{nic.numa_node},chassis={position}",
        ]
        argv += ["-netdev", f"tap,id={net},ifname={tap(node, position)},script=no,downscript=no"]
        options = f"netdev={net},mac={node.mac(position)},bus={port},host_mtu={RDMA_MTU},romfile="
        argv += ["-device", f"virtio-net-pci,{options}"]
    return argv


@dataclass(frozen=True, slots=True)
class Boot:
    """What all machines of a lab boot from, and how they run (accelerator.py)."""

    parts: Parts
    accelerator: tuple[str, ...]


def command_line(node: NodeSpec, boot: Boot, initrd: Path, disk: Path) -> list[str]:
    """Return the whole QEMU command line of a node."""
    parts = boot.parts
    argv = [*parts.qemu.system_argv, "-name", node.name, "-machine", "q35"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"]
    argv += [*boot.accelerator, "-smp", str(node.cpus), "-m", str(node.memory_mib), "-no-reboot"]
    argv += numa(node)
    argv += ["-kernel", str(parts.kernel), "-initrd", str(initrd), "-append", KERNEL_ARGUMENTS]
    root = f"file={parts.root_disk},format=raw,if=none,id=root,readonly=on,file.locking=off"
    images = f"file={disk},format=qcow2,if=none,id=images,cache=unsafe"
    for name, options in (("root", root), ("images", images)):
        argv += ["-drive", options, "-device", f"virtio-blk-pci,drive={name},bus=pcie.0"]
    argv += ["-device", "virtio-rng-pci,bus=pcie.0"]
    return argv + interfaces(node)


def write_initrd(common: Path, files: Path, target: Path) -> None:
    """Write the initramfs of one node: the common archive, and behind it `files` as /lab.

    The kernel unpacks concatenated archives in turn. /lab holds the node's keys: root's alone.
    """
    lab = cpio.Entry("lab", stat.S_IFDIR | 0o700)
    own = cpio.archive([lab, *cpio.from_folder(files, "lab")])
    target.write_bytes(common.read_bytes() + own)


@contextlib.asynccontextmanager
async def machine(node: NodeSpec, boot: Boot, state: Path, files: Path) -> AsyncIterator[Program]:
    """Run a node's VM until the scope closes; `files` is the folder that it finds as /lab.

    Its console goes to logs/<node>.console.log.
    """
    home = state / "nodes" / node.name
    initrd, disk = home / "initrd", home / "images.qcow2"
    write_initrd(boot.parts.initrd, files, initrd)
    backing = ("-b", boot.parts.image_disk, "-F", "raw")
    await call((*boot.parts.qemu.img_argv, "create", "-q", "-f", "qcow2", *backing, disk))
    console = state / "logs" / f"{node.name}.console.log"
    async with running(node.name, command_line(node, boot, initrd, disk), console) as program:
        yield program
