"""Dated figures: `--record` keeps what a run measures in bench/results; README.md there shows it.

One file per day, a line of JSON per figure, appended as it comes, so that a run that ends early
keeps what it has. Figures of one key are compared only with their machine beside them.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.checkout import BESIDE, TO_BESIDE, checkouts
from bench.figures import Figure, Row, Show
from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma_tools.release.version import commit_of

FOLDER = Path(__file__).parent / "results"


class Result(Frozen):
    """One figure with its day, the commit that was measured and the machine that measured it.

    `commit` is short, with + where the checkout had changes; of keys that begin with `beside_` it
    is the other checkout's. Figures with the same `run`, a time of that day, come from one run.
    `unit`, `goal` and `note` are those of bench/figures.Figure.
    """

    day: str
    commit: str
    machine: str
    benchmark: str
    key: str
    value: float
    unit: str = ""
    goal: str = ""
    note: str = ""
    run: str = ""


def recording(show: Show, folder: Path = FOLDER) -> Show:
    """Return a Show that also appends figures to the file of today, in UTC.

    Not what a figure is by that of the other checkout: both are there.
    """
    begin = datetime.now(UTC)
    file = folder / f"{begin:%Y-%m-%d}.jsonl"
    commits = {each.prefix: commit_of(each.folder, "+") for each in checkouts()}
    of_all = {"machine": this_machine(), "run": f"{begin:%H:%M:%S}"}

    def both(name: str, row: Row) -> None:
        show(name, row)
        if isinstance(row, Figure) and not row.key.endswith(TO_BESIDE):
            commit = commits[BESIDE if row.key.startswith(BESIDE) else ""]
            fields = {"commit": commit, **of_all, "benchmark": name, **asdict(row)}
            fields["value"] = float(f"{row.value:.4g}")
            folder.mkdir(exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(fields, ensure_ascii=False) + "\n")

    return both


def read(folder: Path = FOLDER) -> list[Result]:
    """Return all figures, oldest first; raise Refused with the line that cannot be read."""
    results = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            try:
                fields = msgspec.json.decode(line, type=dict[str, object])
                results.append(msgspec.convert({"day": file.stem, **fields}, Result))
            except msgspec.MsgspecError as error:
                raise Refused(
                    f"it is no figure: {error}",
                    where=f"{file}:{number}",
                    remedy="write a line as `make bench ARGS=--record` does, or remove it",
                ) from error
    return results


def newest(results: Iterable[Result]) -> Mapping[str, list[Result]]:
    """Return by benchmark the figures of its newest run, in the order in which they came."""
    by_benchmark: dict[str, list[Result]] = {}
    for result in results:
        group = by_benchmark.setdefault(result.benchmark, [])
        if group and (group[-1].day, group[-1].run) != (result.day, result.run):
            group.clear()
        group.append(result)
    return by_benchmark


def last_of_each_key(results: Iterable[Result]) -> list[Result]:
    """Return the last figure of each key, whatever run it comes from."""
    return list({(result.benchmark, result.key): result for result in results}.values())


def this_machine() -> str:
    """Return what a figure depends on: processors, memory in GiB, kernel."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.+)$", cpu, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model[1] if model else platform.machine()
    kernel = platform.release().partition("-")[0]
    return f"{os.cpu_count()} × {name}, {memory:.0f} GiB, Linux {kernel}"
