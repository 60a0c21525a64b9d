"""Where the time of a test run went: a short table at the end of every run with tests of the lab.

`make test` runs pytest twice. The first run leaves what it took in the file $KUBE_RDMA_TIMES, the
second one shows it with its own.
"""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

FILE = "KUBE_RDMA_TIMES"
UNIT = "without a lab"
# Of other fixtures the name says it.
FIXTURES = {"lab": "machines: boot", "proof": "machines: demo", "native": "native: boot"}
LAB = "lab"  # the mark
SHARED = "seconds of shared fixtures"
SLOWEST = 10
SMALL = 0.02  # of all: files that took less share a line
BAR = 30


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """The table only where people read: the processes that run tests for us have no terminal."""
    if config.pluginmanager.has_plugin("terminalreporter"):
        before = Path(os.environ.pop(FILE, os.devnull))  # no concern of runs that tests start
        config.pluginmanager.register(Times(before), "times")
    config.pluginmanager.register(Shared(), "shared")


class Shared:
    """Notes in each report whether it is of a lab's test, and what it took to make shared things.

    These belong to no file or test. Properties of a report also come from other processes.
    """

    def __init__(self):
        self._seconds = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """The lab's boot, for one; what it asks for itself has its own line."""
        begin, inner = time.monotonic(), self._seconds.total()
        result = yield
        if fixturedef.scope in ("session", "package"):
            seconds = time.monotonic() - begin - (self._seconds.total() - inner)
            self._seconds[FIXTURES.get(fixturedef.argname, fixturedef.argname)] += seconds
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Each part of a test has a report of its own."""
        report = yield
        report.user_properties.append((LAB, item.get_closest_marker(LAB) is not None))
        if self._seconds:  # a test may ask for a fixture while it runs
            report.user_properties.append((SHARED, dict(self._seconds)))
            self._seconds.clear()
        return report


class Times:
    """Adds up the reports of all tests, whichever process ran them."""

    def __init__(self, before):
        self._before = before
        self._began = time.monotonic()
        self._lab = False  # whether a test with one has run
        self._phases = Counter()
        self._tests = Counter()

    def pytest_runtest_logreport(self, report):
        """A part of a test."""
        properties = dict(report.user_properties)
        self._lab |= properties.get(LAB, False)
        shared = properties.get(SHARED, {})
        seconds = report.duration - sum(shared.values())
        self._phases.update(shared)
        self._phases[phase(report)] += seconds
        self._tests[report.nodeid] += seconds

    def pytest_terminal_summary(self, terminalreporter):
        """Leave the phases for the next run, or show all if this was one with a lab."""
        before = float(self._before.read_text() or 0)
        whole = before + time.monotonic() - self._began
        if self._lab:
            phases = Counter({UNIT: before}) + self._phases
            terminalreporter.section("where the time went")
            lines = (*table(phases, whole), "", *slowest(self._tests), "")
            terminalreporter.write("\n".join(lines))
        else:
            self._before.write_text(str(whole))


def phase(report):
    """What the time of a part of a test is counted to; xdist's report of a crash has no mark."""
    if not dict(report.user_properties).get(LAB):
        return UNIT
    path = Path(report.nodeid.partition("::")[0])
    return "bare machine" if "guest" in path.parts else path.stem


def table(phases, whole):
    """A line for each phase, the longest first, one for all small ones together, one for the run.

    The run took `whole` seconds, less than all phases together where some ran side by side.
    """
    total = sum(phases.values())
    small = [name for name, seconds in phases.items() if seconds < SMALL * total]
    large = [
        (name, seconds) for name, seconds in Counter(phases).most_common() if name not in small
    ]
    if (rest := sum(phases[name] for name in small)) >= 1:
        large.append((f"{len(small)} others", rest))
    for name, seconds in large:
        bar = "█" * round(BAR * seconds / total)
        yield f"  {name:<24} {shown(seconds):>11}  {bar}".rstrip()
    beside = f"  ({shown(total)} of tests, side by side)" if total > 1.1 * whole else ""
    yield f"  {'all':<24} {shown(whole):>11}{beside}"


def slowest(tests):
    """A line for each of the slowest tests."""
    yield "The slowest tests:"
    for test, seconds in Counter(tests).most_common(SLOWEST):
        yield f"  {seconds:6.1f} s  {test}"


def shown(seconds):
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
