"""Puts drawn faults into a copy of the source, one at a time, and runs the tests on it.

Last of `make mutants`: between places.py, which says what to run, and __main__.py, which shows it.
The checkout itself stays as it is; the tests are its own, and import the copy by PYTHONPATH.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma_tools.mutants.faults import Mutation, faults
from kube_rdma_tools.mutants.places import stages

# A fault may make a program wait or loop for ever: tests that take so many times what they take
# without it have noticed it.
PATIENCE = 20
LEAST_SECONDS = 120.0

_PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=quick")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class DrawnFault(Frozen):
    """A fault of a file, which is relative to the checkout."""

    file: Path
    fault: Mutation


class MutationOutcome(Frozen):
    """The outcome of a fault: the test that failed ("": all passed), and the seconds."""

    drawn: DrawnFault
    noticed_by: str
    seconds: float


class _Run(Frozen):
    """One run of pytest: whether it passed, the first test that did not, seconds."""

    passed: bool
    failed: str
    seconds: float


def draw(checkout: Path, files: Sequence[Path], seed: int, count: int) -> list[DrawnFault]:
    """Return `count` faults of these files, the same ones for the same seed and source.

    Each fault of all files is as likely as any other one.
    """
    possible = [
        DrawnFault(file, fault)
        for file in files
        for fault in faults((checkout / file).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(possible, min(count, len(possible)))  # noqa: S311 - a draw


class MutationTrial:
    """A copy of the source in `folder`, and how long the tests take on it without a fault."""

    def __init__(self, checkout: Path, folder: Path, workers: int) -> None:
        self._checkout = checkout
        self._workers = workers
        self._source = folder / "src"
        shutil.copytree(checkout / "src", self._source)
        self._without: dict[tuple[str, ...], float] = {}

    def outcomes(self, drawn: Sequence[DrawnFault]) -> Iterator[MutationOutcome]:
        """Yield what becomes of each fault, as it comes."""
        for mutated in drawn:
            begin = time.monotonic()
            yield MutationOutcome(mutated, self._noticed_by(mutated), time.monotonic() - begin)

    def _noticed_by(self, drawn: DrawnFault) -> str:
        mutated = self._source / drawn.file.relative_to("src")
        original = (self._checkout / drawn.file).read_text(encoding="utf-8")
        for stage in stages(self._checkout, drawn.file):
            limit = max(LEAST_SECONDS, PATIENCE * self._usual(tuple(stage)))
            mutated.write_text(drawn.fault.source, encoding="utf-8")
            try:
                run = self._pytest(stage, limit)
            finally:
                mutated.write_text(original, encoding="utf-8")
            if not run.passed:
                return run.failed
        return ""

    def _usual(self, stage: tuple[str, ...]) -> float:
        """Return the seconds of these tests without a fault; raise Unavailable if one fails."""
        if stage not in self._without:
            run = self._pytest(stage, None)
            if not run.passed:
                raise Unavailable(f"{run.failed} fails without a fault: what it notices is nothing")
            self._without[stage] = run.seconds
        return self._without[stage]

    def _pytest(self, tests: Sequence[str], limit: float | None) -> _Run:
        parallel = ("-n", str(self._workers), "--dist", "loadfile") if self._workers > 1 else ()
        words = [sys.executable, "-m", "pytest", *_PYTEST, *parallel, "-m", "not slow and not lab"]
        path = os.pathsep.join((str(self._source), str(self._checkout)))
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        begin = time.monotonic()
        with subprocess.Popen(
            [*words, *tests],
            cwd=self._checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return _Run(False, f"no end within {limit:.0f} s", time.monotonic() - begin)
        failed = _FAILED.search(printed)
        name = failed[1] if failed else f"pytest ended with {process.returncode}"
        return _Run(process.returncode == 0, name, time.monotonic() - begin)
