"""What the project's own words take: `make test` and CI where all is built, a demo where nothing.

They run in a clone of each checkout's commit with a cache of their own: `make demo` fills it, which
is the cold one, and what tests need besides is built before they are timed. Most of an hour for a
checkout, so this word runs only by its name: `make bench ARGS="--limit 20000 tests"`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.checkout import Checkout, checkouts
from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable

IN_TURNS = True
BY_NAME = True  # not in a run of all words
DEMO, TEST, CI = ("make", "demo"), ("make", "test"), (".ci/run",)
DOWN = (".venv/bin/kube-rdma", "lab", "down")
BUILD = ("make", "ready-kernel"), (".venv/bin/python", "-m", "tests.kit.parts")
NOTHING = ("make", "help")
LAST_LINES = 200  # of the output of a word that failed: each test's traceback is in them


def measure(context: Context) -> Iterator[Figure]:
    """All three, of one checkout after the other; with `short` each is `make help`."""
    words = [NOTHING] * 6 if context.short else (DEMO, DOWN, *BUILD, TEST, CI)
    demo, *between, test, ci = words
    for checkout in checkouts():
        with tempfile.TemporaryDirectory() as folder:
            run = Words(checkout, Path(folder))
            _, cpu = run.took(demo)
            yield checkout.named(Figure("demo_cpu_seconds", cpu, "s"))
            for word in between:
                run.took(word)
            for key, word in (("test_minutes", test), ("ci_minutes", ci)):
                yield checkout.named(Figure(key, run.took(word)[0] / 60, "min"))


class Words:
    """Runs words in a clone of a checkout's commit, in which nothing is built."""

    def __init__(self, checkout: Checkout, folder: Path) -> None:
        self._clone, self._output = folder / "clone", folder / "output"
        cache = {"KUBE_RDMA_CACHE": str(folder / "cache"), "HOME": str(folder)}
        self._environment = checkout.environment(**cache)
        del self._environment["PYTHONPATH"]  # the clone has its own sources
        quiet = ("-c", "advice.detachedHead=false")
        subprocess.run(["git", *quiet, "clone", "-q", checkout.folder, self._clone], check=True)

    def took(self, words: Sequence[str]) -> tuple[float, float]:
        """Return the seconds that a word takes, and its processors'; Unavailable if it fails."""
        began, before = time.monotonic(), _worked()
        with self._output.open("w") as output:
            done = subprocess.run(
                words,
                cwd=self._clone,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            last = self._output.read_text().splitlines()[-LAST_LINES:]
            print(*last, sep="\n", file=sys.stderr)
            raise Unavailable(f"`{' '.join(words)}` ended with {done.returncode}")
        return time.monotonic() - began, _worked() - before


def _worked() -> float:
    """Seconds of processor of all that this process started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
