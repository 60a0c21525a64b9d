"""A page says "never", "always" or "no harm" only where a comment names the test that shows it.

The comment, `<!-- held by: FILE::TEST -->`, stands in the same paragraph, list item or row of a
table, or directly below it. Readers do not see it; whoever changes the sentence or the test finds
the other one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from .tree import COMMENT, FENCED, ROOT, texts

ABSOLUTE = re.compile(r"(?i)\b(?:never|always|no harm)\b")
_CODE = re.compile(r"(`+).*?\1")
_HELD_BY = re.compile(r"<!-- held by: (\S+?)::(\S+) -->")
_BEGINS_ANEW = re.compile(r"\s*(?:[-*+] |\d+\. |\||#|>)")


def passages(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items, rows and headings by first line, each with the comments below."""
    text = FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    begin, lines = 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        goes_on = line.lstrip().startswith("<!-- held by") or not line.strip()
        after_a_gap = bool(lines) and not lines[-1].strip()
        if lines and not goes_on and (after_a_gap or _BEGINS_ANEW.match(line) or is_comment(lines)):
            yield begin, "\n".join(lines)
            begin, lines = number, []
        lines.append(line)
    yield begin, "\n".join(lines)


def is_comment(lines: list[str]) -> bool:
    """Whether the last line is nothing but a comment, behind which Markdown begins a paragraph."""
    return lines[-1].strip().startswith("<!--") and lines[-1].strip().endswith("-->")


@cache
def names(file: str) -> frozenset[str]:
    """What may stand behind `::` of a file: functions, classes and their methods."""
    path = ROOT / file
    if not file.startswith("tests/") or not path.is_file():
        return frozenset()
    return frozenset(_names(ast.parse(path.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield within + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}::")
        if isinstance(node, ast.Assign):  # as hypothesis wants a state machine
            yield from (within + name.id for name in node.targets if isinstance(name, ast.Name))


def faults(page: str, text: str) -> Iterator[str]:
    """A promise without a test, and a test that is not there."""
    for line, passage in passages(text):
        held_by = _HELD_BY.findall(passage)
        for file, test in held_by:
            if test not in names(file) or not test.rpartition("::")[2].lower().startswith("test"):
                yield f"{page}:{line}: there is no test {file}::{test}"
        if (word := ABSOLUTE.search(_CODE.sub("", COMMENT.sub("", passage)))) and not held_by:
            yield f"{page}:{line}: {word[0]!r} without <!-- held by: FILE::TEST -->; or say less"


def pages() -> Iterator[tuple[str, str]]:
    """What users read: not decisions, which are of their day."""
    for name, text in texts("docs", "README.md", "SECURITY.md"):
        if name.endswith(".md") and not name.startswith("docs/decisions/"):
            yield name, text


def test_no_page_promises_what_no_test_shows() -> None:
    """Each absolute word has its test beside it, and each test that a page names is there."""
    assert len(list(pages())) > 20
    found = [fault for page in pages() for fault in faults(*page)]
    assert not found, "\n" + "\n".join(found)


HERE = "tests/house/test_promises.py::test_no_page_promises_what_no_test_shows"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It never fails.", [1]),
        ("It does\nno harm.\n\nNext.", [1]),
        ("Fine.\n\nAlways.", [3]),
        (f"- It never fails.\n- It holds. <!-- held by: {HERE} -->", [1]),
        (f"| a | never |\n|---|---|\n| b | c <!-- held by: {HERE} --> |", [1]),
        (f"Never.\n\nBetween.\n\n<!-- held by: {HERE} -->", [1]),
        (f"<!-- held by: {HERE} -->\nIt never fails.", [2]),
        ("```sh\nnever\n```\nIt never fails.", [4]),
        ("It never fails. <!-- held by: tests/no/such.py::test_it -->", [1]),
        (f"It never fails.\n<!-- held by: {HERE}_at_all -->", [1]),
        ("It holds.\n\n<!-- held by: tests/house/test_promises.py::pages -->", [1]),
        ("It holds. <!-- held by: src/kube_rdma/__init__.py::test_it -->", [1]),
    ],
)
def test_planted_faults_are_found(text: str, lines: list[int]) -> None:
    """With the place where their passage begins."""
    places = [fault.split(": ")[0] for fault in faults("x.md", text)]
    assert places == [f"x.md:{line}" for line in lines]


@pytest.mark.parametrize(
    "text",
    [
        f"It never\nfails.\n<!-- held by: {HERE} -->\n\nNext.",
        f"It never fails.\n\n<!-- held by: {HERE} -->\n<!-- held by: {HERE} -->\n",
        f"| a | never <!-- held by: {HERE} --> |",
        f"- One.\n- It never\n  fails.\n  <!-- held by: {HERE} -->\n- Three.",
        "```yaml\nrestartPolicy: Always # never\n```\n`imagePullPolicy: Always`",
        "<!-- not run: never on this machine -->",
        "It does not fail, and nevertheless stops.",
    ],
)
def test_what_is_held_or_no_promise_is_none(text: str) -> None:
    """Beside or below it; code and comments promise nothing."""
    assert not list(faults("x.md", text))
