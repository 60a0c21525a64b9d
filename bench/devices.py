"""How long `kube-rdma devices` takes as a process, beside a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable
from kube_rdma_lab.native.tree_text import unpack

ROUNDS, ILL = 5, 1
TREES = Path(__file__).parents[1] / "tests" / "data" / "trees"


def seconds(argv: Sequence[str]) -> float:
    """Return the wall time of one process; it may have found something that is not well."""
    begin = time.perf_counter()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, ILL):
        raise Unavailable(f"`{' '.join(argv)}` ended with {done.returncode}")
    return time.perf_counter() - begin


def measure(context: Context) -> Iterator[Figure]:
    """Show every machine in turns with the bare interpreter; medians, of the slowest machine."""
    bare = [sys.executable, "-I", "-c", "pass"]
    command = [str(Path(sys.executable).with_name("kube-rdma")), "devices", "--sysfs"]
    taken: dict[str, float] = {}
    floor: list[float] = []
    for tree in sorted(path.parent for path in TREES.glob("*/tree.txt")):
        with tempfile.TemporaryDirectory() as folder:
            unpack((tree / "tree.txt").read_text(), Path(folder))
            rounds = range(context.times(ROUNDS))
            pairs = [(seconds([*command, folder]), seconds(bare)) for _ in rounds]
        taken[tree.name] = median(ours for ours, _ in pairs)
        floor += [bare for _, bare in pairs]
    slowest = max(taken, key=taken.__getitem__)
    note = f"{slowest}, the slowest of {len(taken)} trees; the quickest {min(taken.values()):.3f} s"
    yield Figure("slowest_ms", taken[slowest] * 1000, "ms", "≤ 250", note)
    ratio = taken[slowest] / median(floor)
    yield Figure("slowest_ratio", ratio, "×", "", f"a bare Python takes {median(floor):.3f} s")
