"""The outer half of the kernel tests: an item for each test of guest/, all from one machine.

pytest collects guest/ here as it does in the machine, so names, parameters, `-k` and `-m` mean the
same in both. Instead of calling a test's function, an item waits until it has ended in the machine.
Files with the mark `kernel` have a machine of their own, whose kernel is given these words.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.bare import InnerOutcome, progress

CHECKOUT = Path(__file__).parents[2]


class Machine:
    """The run in the bare machine, followed as far as the test that is asked for.

    `events` starts it, as `bare.progress` does. What ends it early is told to every test after.
    """

    def __init__(self, session, events=progress):
        self._session = session
        self._begin = events
        self._loop = self._events = self._over = None
        self._results = {}
        self.seconds = []  # of each test's beginning and end, since its machine's start
        self.silent = []  # what is to be told of machines that stood still
        self.home = None

    def result(self, test):
        """What came of a test, as soon as it has ended; Refused or Unavailable if nothing can."""
        if self._loop is None:
            ours = (item for item in self._session.items if isinstance(item, Inside))
            chosen = [item.nodeid for item in ours if item.machine is self]
            self.home = self._session.config._tmp_path_factory.mktemp("bare")
            self._loop = asyncio.new_event_loop()
            self._events = self._begin(CHECKOUT, chosen, self.home)
        while test not in self._results:
            if self._over:
                raise self._over
            try:
                self._note(self._loop.run_until_complete(anext(self._events)))
            except StopAsyncIteration:
                self._over = Unavailable("pytest ended in the machine before this test")
            except Exception as error:  # noqa: BLE001  every test that has not ended is told
                self._over = error
        return self._results[test]

    def _note(self, event):
        """A test has begun or ended."""
        self.seconds.append(event.seconds)
        self.silent += [event.silent] if event.silent else []
        if event.result:
            self._results[event.test] = event.result

    def close(self):
        """End the machine."""
        if self._loop:
            self._loop.run_until_complete(self._events.aclose())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._loop = None

    def told(self):
        """Lines for the end of a run; nothing if the machine never ran a test."""
        if self.seconds:
            first, last = self.seconds[0], self.seconds[-1]
            yield f"bare machine: first test after {first:.1f} s, all after {last:.1f} s"
            yield f"its console and results: {self.home}"
        for text in self.silent:
            yield f"{text} Another machine went on from there."


class FailedInsideError(Exception):
    """A test failed in the machine; the text is its traceback there."""


class Inside(pytest.Item):
    """A test that runs in the bare machine; `seconds` is how long it took there."""

    def __init__(self, *, machine, **options):
        super().__init__(**options)
        self.machine = machine
        self.seconds = None

    def runtest(self):
        """Pass, skip or fail as the test does in the machine."""
        try:
            result = self.machine.result(self.nodeid)
        except Refused as reason:
            _skip(str(reason))
        self.seconds = result.seconds
        if result.outcome is InnerOutcome.SKIPPED:
            _skip(result.text)
        if result.outcome is InnerOutcome.FAILED:
            raise FailedInsideError(result.text)

    def repr_failure(self, excinfo, style=None):
        """Show the traceback of the machine, not ours."""
        if isinstance(excinfo.value, FailedInsideError | Unavailable):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Where the test is written."""
        return self.path, None, self.name


def _skip(reason):
    """Skip, with the reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        raise FailedInsideError(f"skipped, which CI does not accept: {reason}")
    pytest.skip(reason)
