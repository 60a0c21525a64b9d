"""What came of each test, line by line as the plugin inside the machine writes it (inside.py).

run.py reads the machine's second serial line, which is a file here, while the tests run. A test has
a line when it begins and one when it has ended; so a machine that dies in between names the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


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
    """A report that a test began (no result) or ended; with an empty name, that pytest ended."""

    test: str
    result: InnerResult | None = None


def parse(text: str) -> ReportLine:
    """Parse a line of the results file into a ReportLine."""
    fields = json.loads(text)
    test = fields.pop("test")
    return ReportLine(
        test,
        InnerResult(**{**fields, "outcome": InnerOutcome(fields["outcome"])}) if fields else None,
    )


class ReportReader:
    """A reader that follows the results file; `size` is how many bytes it has read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self.size = 0

    def new(self) -> Iterator[ReportLine]:
        """Yield the complete lines written since the last call; keep an incomplete one."""
        with self._path.open("rb") as source:
            source.seek(self.size)
            data = source.read()
        self.size += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from (parse(line.decode()) for line in lines)
