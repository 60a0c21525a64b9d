"""Writes a tree of sysfs to a folder, out of the one text that an example machine is.

trees.py writes one out for a native node; tests read their surveys from the same texts
(tests/data/trees), and kube_rdma_testing/kernel/tree.py writes its own files through here. What a
line of a text means is the product's to say, which reads the same texts in memory.
"""

from __future__ import annotations

import os
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.recorded_text import read_entries


def unpack(text: str, root: Path) -> None:
    """Write the tree that a text describes; raise ValueError for a line of no meaning."""
    for entry in read_entries(text):
        if entry.target is not None:
            link(root, entry.path, entry.target)
        elif entry.content is not None:
            _made(root, entry.path).write_bytes(entry.content)
        else:
            (root / entry.path).mkdir(parents=True, exist_ok=True)


def write(root: Path, path: str, content: str) -> None:
    """Write one file and what stands above it; the last line end is added."""
    _made(root, path).write_text(f"{content}\n")


def link_to(root: Path, path: str, place: str) -> None:
    """Make a relative link, as sysfs has them, from `path` to `place`, both relative to `root`.

    It ends in the name of its target, also where that is above it (fs/kernfs/symlink.c).
    """
    above = os.path.relpath(Path(place).parent, Path(path).parent)
    link(root, path, str(Path(above, Path(place).name)))


def link(root: Path, path: str, target: str) -> None:
    """Make a link as it stands, and what stands above it."""
    _made(root, path).symlink_to(target)


def _made(root: Path, path: str) -> Path:
    """Make the folder of a path and return the whole path."""
    whole = root / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    return whole
