"""Recorded sysfs trees: what the cards of native nodes are made of.

A tree is a folder that `kube-rdma devices --record` wrote, or one of those that the tests of the
survey read as well (tests/data/trees), by name. kube_rdma_lab/topology_file.py asks whether one
exists, cards.py writes it out for a node.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_lab.paths import PACKAGE

# In a wheel the trees lie in the package, in a checkout where the tests have them.
FOLDERS = (PACKAGE / "trees", PACKAGE.parents[1] / "tests/data/trees")
TEXT = "tree.txt"


def names() -> tuple[str, ...]:
    """Return the names of the trees that come with the lab."""
    return tuple(sorted(path.parent.name for path in _folder().glob(f"*/{TEXT}")))


def check(tree: str) -> None:
    """Refused when no tree of this name or at this path exists."""
    if tree in names() or (Path(tree).is_absolute() and (Path(tree) / "class").is_dir()):
        return
    raise Refused(
        f"there is no recorded tree {tree!r}",
        remedy=f"Choose one of {', '.join(names())}, or the path of a folder that"
        " `kube-rdma devices --record` wrote",
    )


def write(tree: str, target: Path) -> None:
    """Write a tree to the folder `target`, which must not exist."""
    check(tree)
    if tree in names():
        unpack((_folder() / tree / TEXT).read_text(), target)
    else:
        shutil.copytree(tree, target, symlinks=True)


def _folder() -> Path:
    return next((path for path in FOLDERS if path.is_dir()), FOLDERS[-1])
