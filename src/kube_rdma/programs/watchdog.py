"""Ends a program of kube-rdma whose event loop hangs, with the stacks of all threads in its log.

Runs beside the loop of each program that stays (process.until_signal), in a thread that asks
the loop to answer. It takes the place of a liveness probe: a probe starts a process each time and
takes a starved program for a hung one (docs/decisions/0013-liveness.md). The kubelet starts an
ended container again, and the journal says where to go on.
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

import structlog

from kube_rdma.rules.hang import PATIENCE, TICK, Spent, silence

EXIT_CODE = 5  # broken, as of the command's other errors
_THREADS = Path("/proc/self/task")

log = structlog.get_logger()


@contextmanager
def watched(tick: float = TICK, patience: float = PATIENCE) -> Iterator[None]:
    """End this process if the running loop is silent for `patience` seconds inside the block.

    Where the kernel does not count what threads wait for processors, nothing is watched: a starved
    program could not be told from a hung one.
    """
    if not waits():
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


def waits() -> Mapping[str, float]:
    """Seconds for which each thread of this process has waited for a processor so far.

    The second number of schedstat (Documentation/scheduler/sched-stats.rst); a kernel that does
    not count has zeros everywhere.
    """
    seconds = {}
    for thread in _THREADS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, or no kernel counts
            _, waited, slices = (thread / "schedstat").read_text().split()
            if int(slices):
                seconds[thread.name] = int(waited) / 1e9
    return seconds


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
    """What the clocks show now."""

    def __init__(self) -> None:
        self._clock, self._ran, self._waited = time.monotonic(), time.process_time(), waits()

    def since(self, before: _Look) -> Spent:
        """What went by between two looks."""
        waited = (now - before._waited.get(name, 0.0) for name, now in self._waited.items())
        return Spent(self._clock - before._clock, self._ran - before._ran, sum(waited))


def _end(patience: float) -> None:
    """Write where every thread is, and end.

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
