"""A fake kernel's counters: the files of a port that count, written into a tree of sysfs.

The trees of tree.py have none. What no kernel could show is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kube_rdma_lab.native.tree_text import write

_NAME = re.compile(r"\w+", re.ASCII)
FOLDERS = ("counters", "counters_ext", "hw_counters")


def write_counters(root: Path, port: str, folder: str, values: Mapping[str, int | str]) -> None:
    """Write counter files of a port, such as ``mlx5_0/ports/1``, with numbers or texts.

    Raise ValueError for a folder, a name or a number that no kernel shows, and for a missing port.
    """
    place = (root / "class/infiniband" / port).resolve()
    if not (place / "state").exists():
        raise ValueError(f"there is no port {port}")
    if folder not in FOLDERS:
        raise ValueError(f"no kernel has a folder {folder!r}")
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"no kernel has a counter {name!r}")
        if isinstance(value, int) and not 0 <= value < 1 << 64:
            raise ValueError(f"{value} has no place in 64 bits")
        write(root, str((place / folder / name).relative_to(root.resolve())), str(value))
