"""Feeds a reader: Atheris, which follows the product's branches and keeps what reaches a new one.

Between table.py and __main__.py. Each target runs in a process of its own, forked after everything
was imported and instrumented once; it writes what it finds line by line, so that one that hangs or
is killed for its memory has told all before. Atheris is libFuzzer with instrumented bytecode; its
options are https://llvm.org/docs/LibFuzzer.html#options.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import time
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import atheris
import structlog

FOLLOWED = (
    *("kube_base", "kube_client", "kube_rdma", "kube_rdma_whereabouts"),
    *("h11", "prometheus_client", "tomllib", "wsproto", "yaml"),  # what reads for them
)

# It tells each module on standard error.
with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=list(FOLLOWED)):
    from tests.fuzz import corpus
    from tests.fuzz.target import FuzzTarget, ReaderDefect, tried

    import_module("tests.fuzz.table")  # what is imported here is followed

HANG_SECONDS = 30
"""For one input, until the process is ended."""

MOST_MEMORY = 2048
"""MiB of the process; without any input it has some 200."""

_MOST_DEFECTS = 20  # of a target: then it is mended first
_STATUS = re.compile(r"#(\d+)\t\w+\s+cov: \d+ ft: (\d+)")
_DONE = re.compile(r"Done (\d+) runs")


@dataclass(frozen=True)
class FuzzPlan:
    """How long a target is fed: so many inputs, and no more seconds; `seed` draws them."""

    inputs: int
    seconds: int
    seed: int


@dataclass(frozen=True)
class FuzzOutcome:
    """What came of a target. `features` are libFuzzer's: branches with how often they are taken."""

    target: str
    inputs: int
    features: int
    seconds: float
    defects: tuple[ReaderDefect, ...]


def run(target: FuzzTarget, plan: FuzzPlan, folder: Path) -> FuzzOutcome:
    """Feed a target; what it was fed lies in `folder`/corpus afterwards."""
    inputs = folder / "corpus"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate((*target.samples, *corpus.read(target))):
        (inputs / f"kept-{number}").write_bytes(data)
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _feed(target, plan, folder)
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - begin
    said = (folder / "log").read_text(errors="replace")
    defects = _defects(folder)
    if os.waitstatus_to_exitcode(status) and not defects:
        defects = (_killed(folder, said),)
    fed, features = _counted(said)
    return FuzzOutcome(target.name, fed, features, round(seconds, 1), defects)


def _feed(target: FuzzTarget, plan: FuzzPlan, folder: Path) -> None:
    """The rest of the child's life."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seen: set[tuple[str, str]] = set()

    def one(data: bytes) -> None:
        defect = tried(target, data)
        if defect is None or (defect.kind, defect.place) in seen:
            return
        seen.add((defect.kind, defect.place))
        fields = asdict(defect) | {"data": data.decode("latin-1")}
        with (folder / "defects").open("a") as file:
            file.write(json.dumps(fields) + "\n")
        if len(seen) >= _MOST_DEFECTS:
            os._exit(0)

    words = (
        *(f"-runs={plan.inputs}", f"-max_total_time={plan.seconds}", f"-seed={plan.seed}"),
        *(f"-max_len={target.most}", f"-timeout={HANG_SECONDS}", f"-rss_limit_mb={MOST_MEMORY}"),
        *(f"-artifact_prefix={folder}/artifact-", "-verbosity=1", str(folder / "corpus")),
    )
    atheris.Setup([target.file, *words], one, enable_python_coverage=True)
    atheris.Fuzz()
    os._exit(0)


def silent(*_: Any) -> Mapping[str, Any]:
    """Nobody reads what readers log of such bytes."""
    raise structlog.DropEvent


def _defects(folder: Path) -> tuple[ReaderDefect, ...]:
    file = folder / "defects"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = map(json.loads, lines)
    return tuple(ReaderDefect(**row | {"data": row["data"].encode("latin-1")}) for row in rows)


def _killed(folder: Path, said: str) -> ReaderDefect:
    """A process that did not come to its end: the input lies where libFuzzer has put it."""
    artifact = next(iter(sorted(folder.glob("artifact-*"))), None)
    data = artifact.read_bytes() if artifact else b""
    return ReaderDefect("ended", "", " ".join(said.split())[-300:], data)


def _counted(said: str) -> tuple[int, int]:
    statuses = _STATUS.findall(said)
    done = _DONE.findall(said)
    features = int(statuses[-1][1]) if statuses else 0
    fed = int(done[-1]) if done else (int(statuses[-1][0]) if statuses else 0)
    return fed, features
