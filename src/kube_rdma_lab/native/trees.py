"""Trees of sysfs: what the cards of native nodes are made of.

A tree is a folder that `kube-rdma devices --record` wrote, or one of the example machines that come
with kube-rdma (hardware/machines.py), by name. kube_rdma_lab/topology_file.py checks that it
exists, and cards.py writes it out for a node.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.hardware import machines
from kube_rdma_lab.native.tree_text import unpack


def names() -> tuple[str, ...]:
    """Return the names of the sysfs trees that come with kube-rdma."""
    return machines.names()


def check(tree: str) -> None:
    """Raise Refused if there is no sysfs tree of this name or at this path."""
    if tree in names() or (Path(tree).is_absolute() and (Path(tree) / "class").is_dir()):
        return
    raise Refused(
        f"there is no tree {tree!r}",
        remedy=f"Choose one of {', '.join(names())}, or the path of a folder that"
        " `kube-rdma devices --record` wrote",
    )


def write(tree: str, target: Path) -> None:
    """Write a sysfs tree to the folder `target`, which must not exist; raise as `check` does."""
    check(tree)
    if tree in names():
        unpack(machines.text_of(tree), target)
    else:
        shutil.copytree(tree, target, symlinks=True)
