"""One node as a machine with a kernel of its own: its files, its disk, its console, its life.

A NodeSpec goes in, a running machine comes out: QEMU's (qemu_machine.py) or a user-mode kernel
(user_mode_machine.py). Node files travel as a second cpio archive behind the common initramfs, so
that all machines boot the same disk and images. Nodes that are no machines are in native/.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab import qemu_machine, user_mode_machine
from kube_rdma_lab.build import cpio
from kube_rdma_lab.build.parts import MachineParts
from kube_rdma_lab.processes import Program, call, running
from kube_rdma_lab.topology import NodeKind, NodeSpec


@dataclass(frozen=True, slots=True)
class Boot:
    """The files that all machines of a lab boot from, and QEMU's options (accelerator.py)."""

    parts: MachineParts
    accelerator: tuple[str, ...]


def write_initrd(common: Path, files: Path, target: Path) -> None:
    """Write the initramfs of one node: the common archive, followed by `files` as /lab.

    The kernel unpacks concatenated archives in turn. /lab holds the node's keys, which only root
    may read.
    """
    lab = cpio.ArchiveEntry("lab", stat.S_IFDIR | 0o700)
    own = cpio.archive([lab, *cpio.from_folder(files, "lab")])
    target.write_bytes(common.read_bytes() + own)


@contextlib.asynccontextmanager
async def machine(node: NodeSpec, boot: Boot, state: Path, files: Path) -> AsyncIterator[Program]:
    """Run a node's machine until the scope closes; `files` is the folder that it finds as /lab.

    Its console goes to logs/<node>.console.log.
    """
    home = state / "nodes" / node.name
    initrd = home / "initrd"
    write_initrd(boot.parts.initrd, files, initrd)
    argv, disk = _command_line(node, boot, initrd, home)

    async def new_disk() -> None:
        # Before each first boot: one that was broken off leaves a disk that nobody should mount. A
        # machine that is switched on again (switch.py) goes on with its own.
        disk.unlink(missing_ok=True)
        if node.kind is NodeKind.MACHINE:  # a user-mode kernel makes its own
            backing = ("-b", boot.parts.image_disk, "-F", "raw")
            await call((*boot.parts.qemu.img_argv, "create", "-q", "-f", "qcow2", *backing, disk))

    console = state / "logs" / f"{node.name}.console.log"
    async with running(node.name, argv, console, new_disk) as program:
        yield program


def _command_line(node: NodeSpec, boot: Boot, initrd: Path, home: Path) -> tuple[list[str], Path]:
    """Return the command line of a node's kernel or QEMU, and the path of its own disk.

    That disk is an overlay of the images' disk.
    """
    if node.kind is NodeKind.USER_MODE:
        disk = home / "images.cow"
        return user_mode_machine.command_line(node, boot.parts, initrd, disk), disk
    disk = home / "images.qcow2"
    argv = qemu_machine.command_line(node, boot.parts, boot.accelerator, initrd, disk)
    return argv, disk
