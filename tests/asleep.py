"""A test without a lab that sleeps for a minute fails, and so none of its waits has a deadline.

A wake-up that is lost never comes, or by a timer five minutes later, and nobody sees it. What
counts is the sleep of this process and its children, neither their work nor their wait for a
processor (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`), so a slow machine
changes nothing.
"""

import contextlib
import os
import signal
import time

import pytest

SECONDS = 60.0
LOOK_SECONDS = 5.0


def awake(process="self"):
    """By process, this and those below it: the seconds in which it worked or wanted to."""
    found = {process: 0.0}
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  tests replace Path
            with open(f"/proc/{process}/task/{thread}/schedstat") as file:  # noqa: PTH123
                worked, waited, _ = file.read().split()
                found[process] += (int(worked) + int(waited)) / 1e9
            with open(f"/proc/{process}/task/{thread}/children") as file:  # noqa: PTH123
                for child in file.read().split():
                    found |= awake(child)
    return found


class Sleep:
    """What a test has slept, by looks at a clock and at what was `awake` meanwhile.

    Where a process has begun or ended since the last look, something was done.
    """

    def __init__(self, clock=time.monotonic, awake=awake):
        self._clock, self._awake = clock, awake
        self._last, self.seconds = (0.0, {}), 0.0

    def look(self, *_):
        """Add what passed since the last look; fail the test after a minute of sleep."""
        (before, did), now, does = self._last, self._clock(), self._awake()
        if did.keys() == does.keys():
            self.seconds += max(0.0, now - before - sum(does.values()) + sum(did.values()))
        self._last = now, does
        if self.seconds >= SECONDS:
            slept, self.seconds = self.seconds, 0.0  # its clean-up has as long
            pytest.fail(
                f"The test slept for {slept:.0f} s while nothing of it worked: what it waits for"
                " was missed, or comes by a timer. Wait for the condition itself."
            )


@contextlib.contextmanager
def watched(item):
    """Look at a part of a test again and again; a lab's is paced by its machines."""
    if item.get_closest_marker("lab"):
        yield
        return
    before = signal.signal(signal.SIGALRM, Sleep().look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Fixtures wait too."""
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """The test itself."""
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """What ends fixtures waits for what they started."""
    with watched(item):
        return (yield)
