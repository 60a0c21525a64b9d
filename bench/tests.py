"""How long a checkout's tests take, and what its demo costs where nothing has been built.

`make test` and `.ci/run` are as warm as the caches of this user: have run them once before. The
demo gets an empty cache, so it downloads and compiles all that it needs. Its cost is processor time
of all processes, also of those that outlive the command, as a lab does: this process adopts them
(PR_SET_CHILD_SUBREAPER), and ends the lab. All of it takes hours, so give a `--limit`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from bench.checkout import VARIABLE, Checkout, checkouts
from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_base.errors import Unavailable

IN_TURNS = True
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MINUTES = {"test_minutes": ("make", "test"), "ci_minutes": (".ci/run",)}
SHORT = ("make", "help")


def measure(context: Context) -> Iterator[Row]:
    """Run each command in all checkouts, one after the other."""
    for key, command in MINUTES.items():
        for checkout in checkouts():
            words = SHORT if context.short else command
            yield from attempt(checkout.prefix + key, partial(_minutes, checkout, key, words))
    for checkout in checkouts():
        words = SHORT if context.short else ("make", "demo")
        yield from attempt(checkout.prefix + "demo", partial(_demo, checkout, words))


def _minutes(checkout: Checkout, key: str, command: Sequence[str]) -> Iterator[Figure]:
    begin, before = time.monotonic(), _cpu_seconds()
    _run(checkout, command)
    note = (
        f"{_cpu_seconds() - before:.0f} s of CPU; load average at its end {os.getloadavg()[0]:.0f}"
    )
    yield checkout.named(Figure(key, (time.monotonic() - begin) / 60, "min", "", note))


def _demo(checkout: Checkout, command: Sequence[str]) -> Iterator[Figure]:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as cache:
        begin, before = time.monotonic(), _cpu_seconds()
        try:
            _run(checkout, command, KUBE_RDMA_CACHE=cache)
        finally:
            _run(checkout, (checkout.program, "lab", "down"), KUBE_RDMA_CACHE=cache)
        seconds = time.monotonic() - begin
        with suppress(ChildProcessError):
            while os.wait():
                pass
    used = _cpu_seconds() - before
    yield checkout.named(Figure("demo_cpu_seconds", used, "s", "", f"in {seconds:.0f} s"))


def _run(checkout: Checkout, command: Sequence[str], **more: str) -> None:
    """Run a command as a person does there; its output stays where it fails."""
    left_out = {VARIABLE, "PYTHONPATH"}
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    with tempfile.NamedTemporaryFile(delete=False, prefix="bench-tests-") as log:
        done = subprocess.run(
            command,
            cwd=checkout.folder,
            env={**environment, **more},
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed in {checkout.folder}, see {log.name}")
    Path(log.name).unlink()


def _cpu_seconds() -> float:
    """What processes have used that have ended as descendants of this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
