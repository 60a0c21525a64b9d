"""A test without a lab that sleeps for a minute fails, though what it asks for comes in the end.

A lost wake-up is put right by the next timer: the test passes, five minutes later, and nobody sees
it. What counts is the sleep of this process alone, neither its work nor its wait for a processor
(Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`), so a slow machine changes
nothing. While a child works the test waits for good reason.
"""

import contextlib
import glob
import os
import resource
import time

import pytest

SECONDS = 60.0
WORKED = 0.01  # seconds of children that are work
TICKS = os.sysconf("SC_CLK_TCK")


def awake():
    """Seconds in which this process worked or wanted to."""
    with open("/proc/self/schedstat") as file:  # noqa: PTH123  tests put stand-ins into Path
        worked, waited, _ = file.read().split()
    return (int(worked) + int(waited)) / 1e9


def work_of_children():
    """Seconds that children worked, those that have ended and those that run, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + _work_below("self")


def _work_below(process):
    """Seconds of all that this process and those below it have started and not yet waited for."""
    total = 0.0
    with contextlib.suppress(OSError):  # it has just ended
        for listed in glob.glob(f"/proc/{process}/task/*/children"):  # noqa: PTH207
            with open(listed) as file:  # noqa: PTH123
                for child in file.read().split():
                    total += _work(child) + _work_below(child)
    return total


def _work(process):
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS  # utime, stime, cutime, cstime
    return 0.0


def judge(asleep, children, allowed=SECONDS):
    """Fail a test that waited for nothing that works."""
    if asleep >= allowed and children < WORKED:
        pytest.fail(
            f"The test slept for {asleep:.0f} s while nothing of it worked: what it waits for was"
            " missed, or comes by a timer. Wait for the condition itself.",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Time the test itself; a lab's is paced by its machines."""
    began, slept, children = time.monotonic(), awake(), work_of_children()
    result = yield
    if not pyfuncitem.get_closest_marker("lab"):
        asleep = time.monotonic() - began - (awake() - slept)
        judge(asleep, work_of_children() - children)
    return result
