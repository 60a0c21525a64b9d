"""What the device plugin costs in another checkout and in this one: both, in turns, twice.

KUBE_RDMA_BESIDE names the other checkout, as for bench/beside.py, which compares their labs. Each
measures itself, by benchmarks that both have and that need no lab. Of each the order is other,
this, this, other, so that a machine that becomes slower meanwhile is no difference between the two.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.beside import HERE, NO_OTHER, VARIABLE, other_checkout
from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_base.errors import Unavailable

BENCHMARKS = ("allocate", "events", "attach", "imports")


def measure(context: Context) -> Iterator[Row]:
    """Measure both; nothing where no other is named."""
    if not (other := other_checkout()):
        yield NO_OTHER
        return
    for benchmark in BENCHMARKS:
        yield from attempt(benchmark, partial(_beside, benchmark, other, context))


def _beside(benchmark: str, other: Path, context: Context) -> Iterator[Figure]:
    runs: dict[Path, list[Mapping[str, float]]] = {other: [], HERE: []}
    for checkout in (other, HERE, HERE, other):
        runs[checkout].append(figures(checkout, benchmark, short=context.short))
    yield from ratios(benchmark, runs[HERE], runs[other])


def figures(checkout: Path, benchmark: str, *, short: bool) -> dict[str, float]:
    """Let a checkout measure itself, by its own sources; raise Unavailable where it cannot."""
    python = checkout / ".venv/bin/python"
    argv = (str(python), "-m", "bench", "--json", *["--short"][: int(short)], benchmark)
    inherited = {name: text for name, text in os.environ.items() if name != VARIABLE}
    sources = f"{checkout}/src{os.pathsep}{checkout}"
    done = subprocess.run(
        argv,
        cwd=checkout,
        env={**inherited, "PYTHONPATH": sources},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"`{' '.join(argv)}` failed in {checkout}")
    rows = (json.loads(line) for line in done.stdout.splitlines())
    return {row["key"]: row["value"] for row in rows if "value" in row}


def ratios(
    benchmark: str, runs: Sequence[Mapping[str, float]], others: Sequence[Mapping[str, float]]
) -> Iterator[Figure]:
    """Return the least of this checkout as a part of the other's; below 1 is less.

    The least, for what else the machine does only adds. Only keys that all runs have, and none that
    is zero there. The note has each run: how far two of one checkout lie apart is noise.
    """
    for key in runs[0]:
        if not all(key in run for run in (*runs, *others)):
            continue
        mine, theirs = ([run[key] for run in each] for each in (runs, others))
        if min(theirs):
            note = f"{_numbers(theirs)} there, {_numbers(mine)} here"
            yield Figure(f"{benchmark}_{key}_to_beside", min(mine) / min(theirs), "×", "", note)


def _numbers(values: Sequence[float]) -> str:
    return " and ".join(f"{value:.3g}" for value in values)
