"""The page on hardware says of each environment what shows it: a test, and one that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tree import ROOT

PAGE = "docs/hardware.md"
VERDICTS = {"works", "rules", "not run"}
TEST = re.compile(r"`(tests/[^`]+)`")


def environments(text: str) -> list[list[str]]:
    """The cells of the table's rows: environment, verdict, what shows it."""
    (table,) = re.findall(r"(?ms)^\| environment \|.*?\n\n", text)
    lines = table.strip().split("\n")[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def faults(text: str) -> Iterator[str]:
    """One sentence for each row that promises what nothing shows."""
    for name, verdict, shown in environments(text):
        tests = TEST.findall(shown)
        if verdict not in VERDICTS:
            yield f"{name}: {verdict} is none of the verdicts"
        if not tests:
            yield f"{name}: names no test"
        for path in tests:
            if not (ROOT / path).is_file():
                yield f"{name}: there is no {path}"
            elif "def test_" not in (ROOT / path).read_text(encoding="utf-8"):
                yield f"{name}: {path} has no test"


def test_each_environment_is_shown_by_tests() -> None:
    """Whoever moves a test says so there."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert len(environments(text)) > 20
    assert not list(faults(text))


def test_a_planted_promise_is_found() -> None:
    """A verdict of another kind, a row without a test, a file that is not there or has none."""
    head = "| environment | verdict | shown by |\n|---|---|---|\n"
    rows = (
        "| a | fine | `tests/house/test_needs.py` |\n"
        "| b | works | somebody |\n"
        "| c | rules | `tests/house/test_gone.py` |\n"
        "| d | rules | `tests/house/tree.py` |\n\n"
    )
    assert list(faults(head + rows)) == [
        "a: fine is none of the verdicts",
        "b: names no test",
        "c: there is no tests/house/test_gone.py",
        "d: tests/house/tree.py has no test",
    ]
