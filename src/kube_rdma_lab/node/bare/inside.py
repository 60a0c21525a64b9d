"""Plugin of the pytest that runs in the bare machine: says how its tests go, while they go.

Into the file `results`, the machine's second serial line, it writes one JSON object for each test
that begins, one with the result when it has ended, and one without a name at the very end;
kube_rdma_lab/bare/results.py reads them. Before the first test it waits for the file `modules`.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

RUN = Path(os.environ["LAB_RUN"])  # where node/bare/init has put both files
WORST_LAST = ("passed", "skipped", "failed")

parts: list[pytest.TestReport] = []  # of the test that runs now: its setup, call and teardown


def say(**fields: Any) -> None:
    """Write a line for the outer run."""
    with (RUN / "results").open("a") as line:
        line.write(json.dumps(fields) + "\n")


def pytest_collection_finish() -> None:
    """Everything is imported, the first test comes next."""
    while not (RUN / "modules").exists():  # should one be missing, init ends the machine
        time.sleep(0.02)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    parts.clear()
    say(test=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A part of it is done."""
    parts.append(report)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """It has ended: the worst of its parts counts."""
    outcome = max((part.outcome for part in parts), key=WORST_LAST.index)
    say(
        test=nodeid,
        outcome=outcome,
        seconds=sum(part.duration for part in parts),
        text="\n".join(why(part) for part in parts if part.outcome == outcome != "passed"),
        facts={name: str(value) for name, value in parts[-1].user_properties},
    )


def why(part: pytest.TestReport) -> str:
    """Why it was skipped, or its traceback with what it printed and the kernel's last words."""
    if part.skipped:
        return str(part.longrepr[2]) if isinstance(part.longrepr, tuple) else part.longreprtext
    words = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    kernel = ("The kernel", "\n".join(words.splitlines()[-10:]))
    printed = (f"--- {name} ---\n{text}" for name, text in (*part.sections, kernel))
    return "\n".join((part.longreprtext, *printed))


def pytest_sessionfinish() -> None:
    """No test comes any more."""
    say(test="")
