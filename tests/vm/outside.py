"""The outer half of the kernel tests: an item for each test of guest/, all from one machine.

pytest collects guest/ here as it does in the machine, so names, parameters, `-k` and `-m` mean the
same in both. Instead of calling a test's function, an item waits until it has ended in the machine,
which runs beside the tests before it (lab/conftest.py orders them).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pytest

from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma_lab.bare import InnerOutcome, progress

CHECKOUT = Path(__file__).parents[2]


class Machine:
    """The run in the bare machine; a thread follows it while this one runs other tests.

    `events` starts it, as `bare.progress` does. What ends it early is told to every test after.
    """

    def __init__(self, session, events=progress):
        self._session = session
        self._events = events
        self._thread = None
        self._news = SimpleQueue()
        self._over = None
        self._results = {}
        self.seconds = []  # of each test's beginning and end, since its machine's start
        self.silent = []  # what is to be told of machines that stood still
        self.home = None

    @property
    def chosen(self):
        """The node ids of the tests of this run that are the machine's."""
        return [item.nodeid for item in self._session.items if isinstance(item, Inside)]

    def begin(self):
        """Start the machine, unless it was started."""
        if self._thread:
            return
        self.home = self._session.config._tmp_path_factory.mktemp("bare")
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._follow(self.chosen))
        # A daemon: whatever ends this process ends the thread, and that the machine (machine.py).
        self._thread = Thread(target=self._live, daemon=True)
        self._thread.start()

    async def _follow(self, chosen):
        """Pass on each event, and at last what ended them."""
        try:
            async with aclosing(self._events(CHECKOUT, chosen, self.home)) as events:
                async for event in events:
                    self._news.put(event)
        except Exception as error:  # noqa: BLE001  it belongs to the tests that wait for news
            self._news.put(error)
        else:
            self._news.put(Unavailable("pytest ended in the machine before this test"))

    def _live(self):
        """The thread: until the machine has ended, or `close`."""
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def result(self, test):
        """What came of a test, as soon as it has ended; Refused or Unavailable if nothing can."""
        self.begin()
        while test not in self._results:
            if self._over:
                raise self._over
            match self._news.get():
                case Exception() as error:
                    self._over = error
                case event:
                    self.seconds.append(event.seconds)
                    self.silent += [event.silent] if event.silent else []
                    if event.result:
                        self._results[event.test] = event.result
        return self._results[test]

    def close(self):
        """End the machine."""
        if self._thread:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()


class Beside:
    """A plugin of the run that starts the machine with its first test that needs a lab.

    Native nodes wait more than they work, and emulation takes one processor. Where there is no
    second one, the machine starts with the first of its own tests.
    """

    def __init__(self, machine, processors):
        self._machine = machine
        self._processors = processors

    def pytest_runtest_setup(self, item):
        """Whose test it is does not matter."""
        if self._processors > 1 and item.get_closest_marker("lab") and self._machine.chosen:
            self._machine.begin()


class FailedInsideError(Exception):
    """A test failed in the machine; the text is its traceback there."""


class Inside(pytest.Item):
    """A test that runs in the bare machine; `seconds` is how long it took there."""

    def __init__(self, *, machine, **options):
        super().__init__(**options)
        self._machine = machine
        self.seconds = None

    def runtest(self):
        """Pass, skip or fail as the test does in the machine."""
        try:
            result = self._machine.result(self.nodeid)
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
