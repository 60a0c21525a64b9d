"""Where the time of a test run went: a short table at the end of every run with tests of the lab.

`make test` runs pytest twice. The first run leaves what it took in the file $KUBE_RDMA_TIMES, the
second one shows it with its own.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

FILE = "KUBE_RDMA_TIMES"
UNIT = "without a lab"
# Of other fixtures the name says it.
FIXTURES = {"lab": "machines: boot", "proof": "machines: demo", "native": "native: boot"}
SLOWEST = 10
SMALL = 0.02  # of all: files that took less share a line
BAR = 30


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Only where people read: the processes that run the unit tests for us have no terminal."""
    if config.pluginmanager.has_plugin("terminalreporter"):
        before = Path(os.environ.pop(FILE, os.devnull))  # no concern of runs that tests start
        config.pluginmanager.register(Times(before), "times")


class Times:
    """Notes how long everything takes; what a whole session shares belongs to no file or test."""

    def __init__(self, before):
        self._before = before
        self._began = time.monotonic()
        self._lab = False  # whether a test with one has run
        self._shared = 0.0  # seconds of shared fixtures in the test that runs now
        self._phases = Counter()
        self._tests = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """The lab's boot, for one."""
        begin = time.monotonic()
        result = yield
        if fixturedef.scope == "session":
            seconds = time.monotonic() - begin
            self._shared += seconds
            self._phases[FIXTURES.get(fixturedef.argname, fixturedef.argname)] += seconds
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """A test with its fixtures; not called where other processes run them."""
        begin, self._shared = time.monotonic(), 0.0
        self._lab |= phase(item) != UNIT
        result = yield
        self._phases[phase(item)] += time.monotonic() - begin - self._shared
        return result

    def pytest_runtest_logreport(self, report):
        """A part of a test."""
        shared = self._shared if report.when == "setup" else 0.0
        self._tests[report.nodeid] += report.duration - shared

    def pytest_terminal_summary(self, terminalreporter):
        """Leave the phases for the next run, or show all if this was one with a lab."""
        phases = Counter(json.loads(self._before.read_text() or "{}"))
        if self._lab:
            phases.update(self._phases)
            terminalreporter.section("where the time went")
            terminalreporter.write("\n".join((*table(phases), "", *slowest(self._tests), "")))
        else:
            phases[UNIT] += time.monotonic() - self._began
            self._before.write_text(json.dumps(phases))


def phase(item):
    """What a test's time is counted to."""
    if item.get_closest_marker("lab") is None:
        return UNIT
    return "bare machine" if "guest" in item.path.parts else item.path.stem


def table(phases):
    """A line for each phase, the longest first, and one for all small ones together."""
    whole = sum(phases.values())
    small = [name for name, seconds in phases.items() if seconds < SMALL * whole]
    large = [
        (name, seconds) for name, seconds in Counter(phases).most_common() if name not in small
    ]
    if (rest := sum(phases[name] for name in small)) >= 1:
        large.append((f"{len(small)} others", rest))
    for name, seconds in (*large, ("all", whole)):
        bar = "█" * round(BAR * seconds / whole) if name != "all" else ""
        yield f"  {name:<24} {shown(seconds):>11}  {bar}".rstrip()


def slowest(tests):
    """A line for each of the slowest tests."""
    yield "The slowest tests:"
    for test, seconds in Counter(tests).most_common(SLOWEST):
        yield f"  {seconds:6.1f} s  {test}"


def shown(seconds):
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
