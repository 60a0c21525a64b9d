"""Reads the results of tests, line by line as the plugin in the machine, inside.py, writes them.

run.py reads the file while the tests run. A test has a line when it begins and one when it has
ended; so a machine that dies in between names the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

SIGN_OF_LIFE = b"{}"


class InnerOutcome(StrEnum):
    """The outcome of a test in the bare machine."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class InnerResult:
    """The result of one test in the bare machine; `text` is a traceback or why it was skipped.

    `facts` are the properties that it recorded (record_property), as a benchmark does.
    """

    outcome: InnerOutcome
    seconds: float
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportLine:
    """A report that a test began (no result) or ended; with an empty name, that pytest ended.

    `long` is true for a test that has begun and takes longer than any should.
    """

    test: str
    result: InnerResult | None = None
    long: bool = False


def parse(text: str) -> ReportLine:
    """Parse a line of the results file into a ReportLine."""
    fields = json.loads(text)
    test, long = fields.pop("test"), fields.pop("long", False)
    return ReportLine(
        test,
        InnerResult(**{**fields, "outcome": InnerOutcome(fields["outcome"])}) if fields else None,
        long,
    )


class ReportReader:
    """A reader that follows the results file; `size` is how many bytes it has read.

    A machine that is alive adds to the file every few seconds, also while a test runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self.size = 0

    def new(self) -> Iterator[ReportLine]:
        """Yield the reports written since the last call; keep an incomplete line."""
        with self._path.open("rb") as source:
            source.seek(self.size)
            data = source.read()
        self.size += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from (parse(line.decode()) for line in lines if line.strip() != SIGN_OF_LIFE)
