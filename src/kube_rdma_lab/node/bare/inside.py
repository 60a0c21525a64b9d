"""Plugin of the pytest that runs in the bare machine: reports tests as they begin and end.

The file `results` is the machine's second serial line, or a file of its host. It gets a JSON object
when a test begins, and one with the result when it has ended. The last object has no test's name.
kube_rdma_lab/bare/results.py reads them. Every few seconds a sign of life is written.

Before the first test the plugin waits for the file `modules`. If a test does not end, it prints the
stacks of Python and the kernel, and then reports it. The outer run then gives the machine up.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

RUN = Path(os.environ["LAB_RUN"])  # where node/bare/init has put both files
WORST_LAST = ("passed", "skipped", "failed")

BEAT_SECONDS = 5.0  # between two signs of life
# A test may last so many times as long as the machine took from the kernel's start to here.
LONG_STARTS = float(os.environ["LAB_LONG_STARTS"])
STARTED = float(Path("/proc/uptime").read_text().split()[0])

parts: list[pytest.TestReport] = []  # of the test that runs now: its setup, call and teardown
ended = [Event()]  # set when the test that runs now has ended


writing = Lock()  # two threads write lines, and a long one goes out in pieces


def say(**fields: Any) -> None:
    """Append a JSON line to the results, which the process outside the machine reads."""
    with writing, (RUN / "results").open("a") as line:
        line.write(json.dumps(fields) + "\n")


def beat() -> None:
    """Write a line without fields every few seconds, for as long as the machine is alive."""
    while True:
        time.sleep(BEAT_SECONDS)
        say()


def pytest_configure() -> None:
    """Start the thread that writes signs of life."""
    Thread(target=beat, daemon=True).start()


def pytest_collection_finish() -> None:
    """Wait until init has loaded the kernel modules, before the first test begins."""
    while not (RUN / "modules").exists():  # should one be missing, init ends the machine
        time.sleep(0.02)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Report to the outer run that a test begins."""
    parts.clear()
    say(test=nodeid)
    ended[0] = Event()
    Thread(target=tell_when_long, args=(nodeid, ended[0]), daemon=True).start()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the report of a test's phase until the test ends."""
    parts.append(report)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Report the end of a test, with the worst outcome of its phases."""
    ended[0].set()
    outcome = max((part.outcome for part in parts), key=WORST_LAST.index)
    say(
        test=nodeid,
        outcome=outcome,
        seconds=sum(part.duration for part in parts),
        text="\n".join(why(part) for part in parts if part.outcome == outcome != "passed"),
        facts={name: str(value) for name, value in parts[-1].user_properties},
    )


def tell_when_long(test: str, end: Event) -> None:
    """If a test runs too long, print stacks to the console, then report the test."""
    if end.wait(LONG_STARTS * STARTED):
        return
    with Path("/dev/console").open("w") as console:
        print(f"\n{test} runs longer than {LONG_STARTS:.0f} starts", file=console, flush=True)
        faulthandler.dump_traceback(console)
        for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                state = (task / "stat").read_text().rpartition(")")[2].split()[0]
                # The kernel's own tasks have no words; idle, they explain nothing.
                if state in "DR" or Path(f"/proc/{task.name}/cmdline").read_bytes():
                    name = (task / "comm").read_text().strip()
                    print(f"{task.name} {name} {state}", file=console)
                    print((task / "stack").read_text(), file=console, flush=True)
    say(test=test, long=True)


def why(part: pytest.TestReport) -> str:
    """Return why a test was skipped, or its traceback with output and the last kernel messages."""
    if part.skipped:
        return str(part.longrepr[2]) if isinstance(part.longrepr, tuple) else part.longreprtext
    words = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    kernel = ("The kernel", "\n".join(words.splitlines()[-10:]))
    printed = (f"--- {name} ---\n{text}" for name, text in (*part.sections, kernel))
    return "\n".join((part.longreprtext, *printed))


def pytest_sessionfinish() -> None:
    """Report the end of the session by a line without a test."""
    say(test="")
