"""Programs that stand beside ours: floors of our own (go/) and what others run, from Go modules.

A fresh machine builds them: the compiler and all modules come from registries, by their digests.
"""

from __future__ import annotations

from pathlib import Path

from kube_rdma_lab.build.go import build_module
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import cache_root

MODULES = Path(__file__).with_name("go")


def built(module: str, modules: Path = MODULES) -> Path:
    """Return the folder with the programs of a module; it is built once."""
    # A store of its own: the lab's parts are counted and pruned without it.
    with Store(cache_root() / "bench") as store:
        return build_module(store, module, modules)
