"""Debian's qemu-user: programs of an Arm processor on this machine, one process at a time.

The program is put into the root that it serves, for it is linked statically. What it starts starts
nothing itself: that would need binfmt_misc, a setting of the whole machine.
"""

from __future__ import annotations

import shutil

from kube_rdma_lab.build import debian

TREE = debian.DebianTree("bookworm", "extract", ("qemu-user-static",))
NAME = "qemu-aarch64-static"


def put(store, stamp, root):
    """Put it into a root; return its path there, which comes before a command."""

    def make(folder, shell):
        debian.unpack(TREE, folder / "tree", shell)

    tree = store.get("qemu-user", {**TREE.inputs(), "stamp": stamp}, make) / "tree"
    shutil.copy(tree / "usr/bin" / NAME, root / NAME)
    return f"/{NAME}"
