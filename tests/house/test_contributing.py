"""CONTRIBUTING.md is true: its tables are those of the folders, and what it points at is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from .tree import ROOT

PAGE = "CONTRIBUTING.md"
PRODUCT = ROOT / "src/kube_rdma"
QUESTIONS = 40


def sentence(folder: Path) -> str:
    """The first line of a package's docstring, without what follows it."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace(" --- ", "---")


def capabilities() -> str:
    """What each package of the product is, in its own words and in the order of its imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = contracts["tool"]["importlinter"]["contracts"]
    (order,) = (each["layers"] for each in listed if each.get("containers") == ["kube_rdma"])
    return table(("package", "what is in it"), [(f"`{n}/`", sentence(PRODUCT / n)) for n in order])


def packages() -> str:
    """What the other packages of src are, in their own words."""
    folders = sorted(path.parent for path in (ROOT / "src").glob("*/__init__.py"))
    rows = [(f"`{each.name}/`", sentence(each)) for each in folders if each != PRODUCT]
    return table(("package", "what is in it"), rows)


def folders_of_tests() -> str:
    """What a folder of tests is for, in its own words."""
    folders = sorted(path.parent for path in (ROOT / "tests").glob("*/__init__.py"))
    rows = [(f"`{folder.name}/`", sentence(folder)) for folder in folders]
    return table(("folder of `tests/`", "what is in it"), rows)


TABLES = {"capabilities": capabilities, "packages": packages, "tests": folders_of_tests}


def answers(text: str) -> list[list[str]]:
    """The rows of "Where is …": question, code, test, page."""
    part = text.partition("\n## Where is …\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[1:]


def faults(rows: list[list[str]]) -> Iterator[str]:
    """What of the answers is not there."""
    for row in rows:
        if len(row) != 4:
            yield f"{row[0]}: a question, its code, its test and its page are four cells"
            continue
        question, code, test, page = row
        for cell, top in ((code, PRODUCT), (test, ROOT / "tests")):
            places = re.findall(r"`([^`]+)`", cell)
            if not places:
                yield f"{question}: {cell} names no file"
            for place in places:
                name, _, symbol = place.partition("::")
                path = next((at for at in (top / name, ROOT / name) if at.exists()), None)
                if path is None:
                    yield f"{question}: there is no {place}"
                elif symbol and f"def {symbol}(" not in path.read_text(encoding="utf-8"):
                    yield f"{question}: {name} has no {symbol}"
        if not re.search(r"\]\([\w./#-]+\.md[^)]*\)", page):
            yield f"{question}: {page} is no page"


def test_the_tables_of_folders_are_the_folders() -> None:
    """To accept a change, copy the shown table into CONTRIBUTING.md."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name, made in TABLES.items():
        written = re.search(
            rf"<!-- table: {name} -->\n(.*?)<!-- end of table -->\n", text, re.DOTALL
        )
        assert written, f"{PAGE} has no table {name}"
        assert written[1] == made(), f"{name}\n{made()}"


def test_every_question_has_an_answer_that_is_there() -> None:
    rows = answers((ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(rows) >= QUESTIONS
    assert len({row[0] for row in rows}) == len(rows)
    assert not list(faults(rows))


def test_planted_faults_are_found() -> None:
    good = ["q", "`lib/phrases.py`", "`house/tree.py`", "[a](docs/agent.md)"]
    assert not list(faults([good]))
    for place, cell, words in (
        (1, "`rules/gone.py`", "there is no rules/gone.py"),
        (1, "`lib/phrases.py::gone`", "has no gone"),
        (1, "the rules", "names no file"),
        (2, "`house/gone.py`", "there is no house/gone.py"),
        (3, "somewhere", "is no page"),
    ):
        bad = [cell if place == at else text for at, text in enumerate(good)]
        (fault,) = faults([bad])
        assert words in fault
    assert list(faults([["q", "`lib/phrases.py`"]]))
