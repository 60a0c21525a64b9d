"""Ends a program of kube-rdma whose event loop hangs, with the stacks of all threads in its log.

It runs beside the loop of each program that stays (lib/logs.until_signal), in a thread that asks
the loop to answer. It takes the place of a liveness probe: a probe starts a process each time and
takes a starved program for a hung one (docs/decisions/0013-liveness.md). The kubelet starts an
ended container again, and the journal says where to go on.

That time passes proves nothing. On a node whose processors are all taken by a job a program is late
but well, and to end it would only cost more.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from kube_base.frozen import Frozen

EXIT_CODE = 5  # broken, as of the command's other errors
_THREADS = Path("/proc/self/task")
TICK = 60.0  # seconds between two looks, each of which wakes two threads
# Seconds of silence after which a program hangs. Its longest step, imports on a slow emulated
# processor, takes a tenth of it.
PATIENCE = 120.0

log = structlog.get_logger()


class Spent(Frozen):
    """Seconds between two looks: of the clock, and of all threads running or ready to run."""

    passed: float  # of the clock
    ran: float  # on a processor
    waited: float  # ready to run, without a processor


def silence(before: float, spent: Spent, tick: float = TICK) -> float:
    """Return the seconds for which the event loop has been silent though it could have run.

    `before` are those seconds at the last look. A loop that spins runs. One that is blocked leaves
    time in which no thread runs or waits for a processor. Of that time a look counts at most
    `tick`, as a late look shows that the program was stopped or frozen.
    """
    return before + max(spent.ran, min(spent.passed, tick) - spent.waited)


@contextmanager
def watched(tick: float = TICK, patience: float = PATIENCE) -> Iterator[None]:
    """End this process if the running loop is silent for `patience` seconds inside the block.

    Where the kernel does not count how long threads wait for processors, nothing is watched: a
    starved program would look like a hung one.
    """
    if not threads():
        log.warning("hang detection disabled", why=f"{_THREADS}/*/schedstat counts nothing")
        yield
        return
    loop, ended = asyncio.get_running_loop(), threading.Event()
    thread = threading.Thread(
        target=_watch, args=(loop, ended, tick, patience), name="watchdog", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class ThreadTimes(NamedTuple):
    """The scheduling counters of one thread (Documentation/scheduler/sched-stats.rst)."""

    waited: float  # seconds without a processor, up to when it last got one
    slices: int  # times that it got one
    ready: bool  # it has one, or waits for one, now


def threads() -> Mapping[str, ThreadTimes]:
    """Return the scheduling counters of this process's threads by id; {} if the kernel has none."""
    counted = {}
    for thread in _THREADS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, or no kernel counts
            _, waited, slices = (thread / "schedstat").read_text().split()
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            if int(slices):
                counted[thread.name] = ThreadTimes(int(waited) / 1e9, int(slices), state == "R")
    return counted


def _watch(
    loop: asyncio.AbstractEventLoop, ended: threading.Event, tick: float, patience: float
) -> None:
    answered = threading.Event()
    answered.set()
    silent, before = 0.0, _Look()
    while not ended.wait(tick):
        now = _Look()
        if answered.is_set():
            answered.clear()
            silent = 0.0
            loop.call_soon_threadsafe(answered.set)
        else:
            silent = silence(silent, now.since(before), tick)
        before = now
        if silent >= patience:
            _end(patience)


class _Look:
    """The clocks and the scheduling counters of the threads at one moment."""

    def __init__(self) -> None:
        self._clock, self._ran, self._threads = time.monotonic(), time.process_time(), threads()

    def since(self, before: _Look) -> Spent:
        """Return the seconds since an earlier look that passed, that threads ran, and waited."""
        passed = self._clock - before._clock
        waited = (
            # The kernel adds a wait to its count when it ends: one that lasts is seen by its state.
            passed if thread.ready and thread.slices <= then.slices else thread.waited - then.waited
            for name, thread in self._threads.items()
            for then in (before._threads.get(name, _NEW),)
        )
        return Spent(passed, self._ran - before._ran, sum(waited))


_NEW = ThreadTimes(0.0, 0, ready=False)


def _end(patience: float) -> None:
    """Write the stacks of all threads to standard error, and end this process at once.

    Nothing here waits: the loop may hang because nobody reads the log, or hold a lock of it.
    """
    stderr = sys.__stderr__.fileno() if sys.__stderr__ else 2
    os.set_blocking(stderr, False)
    event = f'event="event loop hung, program ended" seconds={patience:.0f}'
    try:
        os.write(stderr, f"level=critical {event}\n".encode())
        faulthandler.dump_traceback(stderr, all_threads=True)
    finally:
        os._exit(EXIT_CODE)
