"""The outer half of the kernel tests: an item for each test of vm/, all from one machine.

pytest collects vm/ here as it does in the machine, so names, parameters, `-k` and `-m` mean the
same in both. Instead of calling a test's function, an item asks what JUnit says of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma_lab.bare import Outcome, run

CHECKOUT = Path(__file__).parents[2]


class Machine:
    """The run in the bare machine, made when it is first asked for; its failure is remembered."""

    def __init__(self, session):
        self._session = session
        self._answer = None

    @property
    def answer(self):
        """The run, or why there was none; None as long as nobody asked."""
        return self._answer

    def run(self):
        """What came of the chosen tests; Refused or Unavailable, every time, if nothing did."""
        if self._answer is None:
            self._answer = Unavailable("the machine's run was broken off; an earlier test says why")
            self._answer = self._boot()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def _boot(self):
        chosen = [item.nodeid for item in self._session.items if isinstance(item, Inside)]
        home = self._session.config._tmp_path_factory.mktemp("bare")
        try:
            return run(CHECKOUT, chosen, home)
        except (Refused, Unavailable) as error:
            return error


class FailedInsideError(Exception):
    """A test failed in the machine; the text is its traceback there."""


class Inside(pytest.Item):
    """A test that runs in the bare machine."""

    def __init__(self, *, machine, **options):
        super().__init__(**options)
        self._machine = machine

    def runtest(self):
        """Pass, skip or fail as the test did in the machine."""
        try:
            result = self._machine.run().results.get(self.nodeid)
        except Refused as reason:
            _skip(str(reason))
        if result is None:
            raise FailedInsideError("the machine says nothing of this test: pytest ended before it")
        if result.outcome is Outcome.SKIPPED:
            _skip(result.text)
        if result.outcome is Outcome.FAILED:
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
