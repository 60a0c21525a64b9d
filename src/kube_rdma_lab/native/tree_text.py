"""A tree of sysfs as one text: the form of the recorded cards that come with the lab.

trees.py writes one out for a native node; tests read their surveys from the same texts
(tests/data/trees), and kube_rdma_testing/kernel/tree.py writes its own files through here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_RANGE = re.compile(r"(.*)/\{(\d+)\.\.(\d+)\}")


def unpack(manifest: str, root: Path) -> None:
    r"""Write the tree that a manifest describes; ValueError for a line that says nothing.

    A line is ``path: content`` (``\n`` inside stands for a line end, the last one is added),
    ``path -> target`` for a link, or ``path/`` for a directory. ``gids/{4..255}: 0000:…`` stands
    for a range of files. After ``[folder]`` paths lie in that folder, but for one that begins with
    /; a target that begins with / becomes the relative one that sysfs has. Blank lines and lines
    that begin with # are passed over.
    """
    folder = ""
    for text in manifest.splitlines():
        if not text.strip() or text.startswith("#"):
            continue
        if text.startswith("[") and text.endswith("]"):
            folder = f"{text[1:-1]}/"
            continue
        line = text[1:] if text.startswith("/") else folder + text
        path, arrow, target = line.partition(" -> ")
        name, colon, content = line.partition(": ")
        if arrow and target.startswith("/"):
            link_to(root, path, target[1:])
        elif arrow:
            link(root, path, target)
        elif colon:
            for expanded in _expanded(name):
                write(root, expanded, content.replace("\\n", "\n"))
        elif line.endswith("/"):
            (root / line).mkdir(parents=True, exist_ok=True)
        else:
            raise ValueError(f"neither file nor link nor directory: {text!r}")


def _expanded(path: str) -> list[str]:
    match = _RANGE.fullmatch(path)
    if not match:
        return [path]
    return [f"{match[1]}/{index}" for index in range(int(match[2]), int(match[3]) + 1)]


def write(root: Path, path: str, content: str) -> None:
    """Write one file and what stands above it; the last line end is added."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{content}\n")


def link_to(root: Path, path: str, place: str) -> None:
    """A relative link, as sysfs has them, from `path` to `place`, both relative to the root."""
    link(root, path, os.path.relpath(place, Path(path).parent))


def link(root: Path, path: str, target: str) -> None:
    """Make a link as it stands, and what stands above it."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(target)
