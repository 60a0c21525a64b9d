"""nccl_env.sh on a node of eight cards with full tables, beside the script of seed S1."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.figures import Absent, Figure, Row
from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma_testing.kernel.gid_trees import (
    NO_GID,
    Entry,
    PortFiles,
    Tree,
    mapped,
    seed_script,
    sourced,
)

CARDS, GIDS, ROUNDS = 8, 128, 5
LINK = "fe80:0000:0000:0000:0000:00ff:fe00:0001"


def tree() -> Tree:
    """As mlx5 shows it: both versions of the link's own GID and of an address, then nothing."""
    devices = {}
    for card in range(CARDS):
        own = [(LINK, "IB/RoCE v1"), (LINK, "RoCE v2")]
        own += [(mapped(f"10.0.{card}.1"), version) for _, version in own]
        gids = {str(n): Entry(NO_GID, None, None) for n in range(GIDS)}
        gids |= {str(n): Entry(gid, version) for n, (gid, version) in enumerate(own)}
        devices[f"mlx5_{card}"] = {"1": PortFiles(gids)}
    return Tree(devices, own4=tuple(f"10.0.{card}.1" for card in range(CARDS)))


def seconds(shell: str, script: Path, root: Path, rounds: int) -> float:
    """Median of a shell that sources the script."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        done = sourced(shell, script, root)
        taken.append(time.perf_counter() - begin)
        assert done.code == 0, done
    return median(taken)


def measure(context: Context) -> Iterator[Row]:
    """In one run; without the seeds beside the checkout there is no ratio."""
    with tempfile.TemporaryDirectory(prefix="nccl-") as folder:
        root = Path(folder, "tree")
        tree().write(root)
        rounds = context.times(ROUNDS, 1)
        shells = [name for name in ("dash", "bash") if shutil.which(name)]
        ours = {}
        for name in shells:
            ours[name] = seconds(name, NCCL_ENV, root, rounds)
            yield Figure(f"{name}_ms", 1000 * ours[name], "ms", "", f"{CARDS} cards × {GIDS} GIDs")
        if not (text := seed_script()):
            yield Absent("seed", "the seeds do not lie beside this checkout", failed=False)
            return
        seed = Path(folder, "seed.sh")
        seed.write_text(text.replace("/sys/class/", f"{root}/sys/class/"))
        theirs = seconds("bash", seed, root, context.times(3, 1))
        ratio = theirs / max(ours.values())
        yield Figure("seed_ms", 1000 * theirs, "ms")
        yield Figure("seed_ratio", ratio, "×", "≥ 20", "the seed's by the slower of ours")
