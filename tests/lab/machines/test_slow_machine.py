"""On half of the machine's CPU, and beside busy programs, everything takes longer and passes."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma_lab import lab as labs
from tests.groups import RUN, own

from .test_documents import BY_OTHERS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
NAME = "held"
HERE = "tests/lab/machines"
PAGES = ("test_documents.py", *sorted(set(BY_OTHERS.values())))


def test_the_demo_passes_on_half_of_the_machine(machine):
    """From boot to table, in a control group with half of the processors' time."""
    demo = (sys.executable, "-m", "kube_rdma.cli.main", "lab", "demo", "--name", own(NAME))
    labs.down(own(NAME))
    try:
        done = subprocess.run(
            [ROOT / "tools/held", "50", *demo], capture_output=True, text=True, check=False
        )
    finally:
        labs.down(own(NAME))
    assert done.returncode == 0, done.stderr
    assert "slow machine" in done.stderr.splitlines()[0]
    assert "two pods talk RDMA" in done.stdout


@pytest.fixture
def busy():
    """A program on each processor that never waits."""
    with contextlib.ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0))):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


def test_every_page_is_followed_to_its_end_beside_busy_processors(machine, busy):
    """README and all examples, on a lab of their own, by the files that follow them."""
    words = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
    files = (f"{HERE}/{name}" for name in PAGES)
    environment = {**os.environ, RUN: "busy"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
