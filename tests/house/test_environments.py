"""The page on hardware says of each environment what shows it: a test, and one that exists.

So it does of each program of others; `works` stands there only of what ran itself, in a version.
"""

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


def others(text: str) -> list[list[str]]:
    """The cells of the other table's rows: program, version, verdict, what ran of it."""
    (table,) = re.findall(r"(?ms)^\| program \|.*?\n\n", text)
    lines = table.strip().split("\n")[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def faults(text: str) -> Iterator[str]:
    """One sentence for each row that promises what nothing shows."""
    rows = environments(text) if "| environment |" in text else []
    for name, version, verdict, shown in others(text) if "| program |" in text else []:
        rows.append([name, verdict, shown])
        if (verdict == "works") is not bool(re.search(r"\d", version)):
            yield f"{name}: {verdict} in version {version}"
    for name, verdict, shown in rows:
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
    assert len(others(text)) > 10
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


def test_a_planted_program_is_found() -> None:
    """One that works in no version, one that does not though its version is told."""
    head = "| program | version | verdict | shown by |\n|---|---|---|---|\n"
    test = "`tests/house/test_needs.py`"
    rows = (
        f"| a | none | works | {test} |\n| b | 1.2 | rules | {test} |\n| c | 1.2 | works | x |\n\n"
    )
    assert list(faults(head + rows)) == [
        "a: works in version none",
        "b: rules in version 1.2",
        "c: names no test",
    ]
