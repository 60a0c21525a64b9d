"""Names the folders of the lab's package and of what it makes."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).parent
CACHE_VARIABLE = "KUBE_RDMA_CACHE"


def cache_root() -> Path:
    """Return the folder of everything that can be built again.

    It is `$KUBE_RDMA_CACHE` if set, else `kube-rdma` in the user's cache folder (XDG base directory
    specification). The folder may not exist yet. It may be deleted while no lab and no build runs.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "kube-rdma"
