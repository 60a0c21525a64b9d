"""Writes down what was looked up in Debian's archives, so that later builds need not ask.

Builders ask here which kernel is current, and of which day the packages in Debian's trees are.
The answers stay until the user asks for newer packages. The kernel is also looked up again when the
store has lost the one that was found.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict
from pathlib import Path

from kube_rdma_lab.build import debian, kernel
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import cache_root


def archive() -> debian.Archive:
    """Return the private apt archive of the suite that has the kernel."""
    return debian.Archive(kernel.SUITE, cache_root() / "apt" / kernel.SUITE)


def stamp(*, update: bool) -> str:
    """Return the day of the packages in Debian's trees; `update` or a first call sets today's."""
    path = cache_root() / "packages-of"
    if update or not path.exists():
        _write(path, dt.datetime.now(dt.UTC).date().isoformat())
    return path.read_text().strip()


def current_kernel(store: Store, *, update: bool) -> kernel.Resolved:
    """Return the kernel to boot: the last one found, or the archive's current one.

    The archive is asked if `update`, or if the store lacks the last one. Raise as `kernel.resolve`
    does.
    """
    path = cache_root() / "kernel.json"
    cached = _read(path)
    if cached and not update and store.has("kernel", kernel.inputs_of(cached)):
        return cached
    resolved = kernel.resolve(archive(), store.shell("kernel-resolution"))
    _write(path, json.dumps(asdict(resolved), indent=2))
    return resolved


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text + "\n")
    fresh.rename(path)


def _read(path: Path) -> kernel.Resolved | None:
    try:
        return kernel.Resolved(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # a file of another version, or none: looking it up again is all it costs
