"""How long `kube-rdma devices` takes as a process, beside a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_rdma_lab.native.tree_text import unpack

ROUNDS = 15
TREES = Path(__file__).parents[1] / "tests" / "data" / "trees"


def seconds(argv: Sequence[str]) -> float:
    """Return the wall time of one process."""
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def measure(context: Context) -> Iterator[Row]:
    """Show every recorded tree in turns with the bare interpreter; medians."""
    rounds = context.times(ROUNDS)
    for tree in sorted(path.parent for path in TREES.glob("*/tree.txt")):
        name = tree.name.replace("-", "_")
        yield from attempt(name, partial(_figures, name, tree / "tree.txt", rounds))


def _figures(name: str, tree: Path, rounds: int) -> Iterator[Figure]:
    bare = [sys.executable, "-I", "-c", "pass"]
    command = [str(Path(sys.executable).with_name("kube-rdma")), "devices", "--sysfs"]
    with tempfile.TemporaryDirectory() as folder:
        unpack(tree.read_text(), Path(folder))
        pairs = [(seconds([*command, folder]), seconds(bare)) for _ in range(rounds)]
    ours, floor = (median(column) for column in zip(*pairs, strict=True))
    times = f"{ours / floor:.1f} × a bare Python ({floor * 1000:.0f} ms)"
    yield Figure(f"{name}_ms", ours * 1000, "ms", "≤ 250", times)
