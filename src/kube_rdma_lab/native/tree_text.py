"""Writes a sysfs tree to a folder, from the one text that describes an example machine.

trees.py writes one out for a native node; tests read their surveys from the same texts
(tests/data/trees), and kube_rdma_testing/kernel/tree.py writes its own files through here. The
product defines the format of a text (recorded_text.py), and reads the same texts in memory.
"""

from __future__ import annotations

import os
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.recorded_text import read_entries


def unpack(text: str, root: Path) -> None:
    """Write the tree that a text describes below `root`; raise ValueError for an invalid line."""
    for entry in read_entries(text):
        if entry.target is not None:
            link(root, entry.path, entry.target)
        elif entry.content is not None:
            _made(root, entry.path).write_bytes(entry.content)
        else:
            (root / entry.path).mkdir(parents=True, exist_ok=True)


def write(root: Path, path: str, content: str) -> None:
    """Write a file below `root` with its parent folders; a final newline is added."""
    _made(root, path).write_text(f"{content}\n")


def link_to(root: Path, path: str, place: str) -> None:
    """Make a relative link, as sysfs has them, from `path` to `place`, both relative to `root`.

    Its last part is the target's name, also if the target is above it (fs/kernfs/symlink.c).
    """
    above = os.path.relpath(Path(place).parent, Path(path).parent)
    link(root, path, str(Path(above, Path(place).name)))


def link(root: Path, path: str, target: str) -> None:
    """Make a link below `root` with this target text, and its parent folders."""
    _made(root, path).symlink_to(target)


def _made(root: Path, path: str) -> Path:
    """Make the parent folders of a path below `root`; return the whole path."""
    whole = root / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    return whole
