"""The initramfs of all machines: mounts the root disk under an overlay and adds the node's files.

It carries busybox, the few modules that reach the root disk, and node/root/**, our own files of
the node. A lab appends one archive per node with files under /lab (cpio.py writes it).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from kube_rdma_lab.build import cpio
from kube_rdma_lab.build.kernel import Kernel, closure, module_name, read_builtin, read_dependencies
from kube_rdma_lab.build.root import BUSYBOX
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

NODE = PACKAGE / "node"
INIT = NODE / "initramfs/init"
NODE_ROOT = NODE / "root"
MODULES = ("virtio_pci", "virtio_blk", "ext4", "overlay")


def build(store: Store, base: Path, kernel: Kernel) -> Path:
    """Build the compressed initramfs of machines and return its path."""
    node = cpio.archive(map(_merged, cpio.from_folder(NODE_ROOT)))

    def make(folder: Path, _: Shell) -> None:
        system = cpio.archive(_system(base, kernel))
        (folder / "initrd.gz").write_bytes(cpio.compressed(system) + cpio.compressed(node))

    inputs = {
        "base": base.parent.name,
        "kernel": kernel.folder.name,
        "init": hashlib.sha256(INIT.read_bytes()).hexdigest(),
        "modules": " ".join(MODULES),
        "node": hashlib.sha256(node).hexdigest(),
    }
    return store.get("initrd", inputs, make) / "initrd.gz"


def _merged(entry: cpio.ArchiveEntry) -> cpio.ArchiveEntry:
    """Move an entry below node/, and from bin, sbin and lib, which are links in Debian, to usr/."""
    first = entry.path.split("/", 1)[0]
    usr = "usr/" if first in {"bin", "sbin", "lib"} else ""
    return replace(entry, path=f"node/{usr}{entry.path}")


def _system(base: Path, kernel: Kernel) -> list[cpio.ArchiveEntry]:
    files = closure(MODULES, read_dependencies(kernel.modules), read_builtin(kernel.modules))
    modules = [
        cpio.file(f"modules/{module_name(name)}.ko", (kernel.modules / name).read_bytes())
        for name in files
    ]
    order = "\n".join(map(module_name, files)) + "\n"
    return [
        cpio.file("init", INIT.read_bytes(), 0o755),
        cpio.file("bin/busybox", (base / BUSYBOX).read_bytes(), 0o755),
        cpio.file("modules/order", order.encode()),
        *modules,
    ]
