"""QEMU of a newer Debian, run beside the machine's own libraries without a chroot.

Debian 12's QEMU, 7.2, has no SR-IOV card `igb`; trixie's 10.0 has. Its tree is only unpacked. The
programs start through the tree's own dynamic loader, so they see its C library. Yet they open the
machine's files, taps and /dev/kvm under their usual names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab.build import debian
from kube_rdma_lab.build.shell import Shell, ask
from kube_rdma_lab.build.store import Store

TREE = debian.DebianTree("trixie", "extract", ("qemu-system-x86", "qemu-utils"))
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
FIRMWARE = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")


@dataclass(frozen=True, slots=True)
class Qemu:
    """A Debian tree with QEMU, and the command lines that start its programs."""

    tree: Path

    @property
    def system_argv(self) -> tuple[str, ...]:
        """Return the command line that starts qemu-system-x86_64, without arguments."""
        folders = (word for folder in FIRMWARE for word in ("-L", str(self.tree / folder)))
        return (*self._program("qemu-system-x86_64"), *folders)

    @property
    def img_argv(self) -> tuple[str, ...]:
        """Return the command line that starts qemu-img, without arguments."""
        return self._program("qemu-img")

    def _program(self, name: str) -> tuple[str, ...]:
        loader = (str(self.tree / LOADER), "--library-path", str(self.tree / LIBRARIES))
        return (*loader, str(self.tree / "usr/bin" / name))


def build(store: Store, stamp: str) -> Qemu:
    """Return QEMU's tree from the store, built if missing; `stamp` is the day of the packages."""

    def make(folder: Path, shell: Shell) -> None:
        debian.unpack(TREE, folder / "tree", shell)
        qemu = Qemu(folder / "tree")
        # Proves that loader and libraries fit before anybody waits for a machine to boot.
        ask([*qemu.system_argv, "-version"])
        ask([*qemu.img_argv, "--version"])

    path = store.get("qemu", {**TREE.inputs(), "stamp": stamp}, make)
    return Qemu(path / "tree")
