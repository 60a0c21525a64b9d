"""CONTRIBUTING.md is true: its tables are those of the folders, and what it points at is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from .tree import ROOT

PAGE = "CONTRIBUTING.md"
PRODUCT = ROOT / "src/kube_rdma"
FLOORS = ("model", "api", "rules", "views", "adapters", "programs")
# Where a capability may have a room, by the heading of the table. Adapters are cut by neighbour;
# only the API server's has files by capability, and only the agent's program rooms.
ROOMS: Mapping[str, str] = {
    **{floor: floor for floor in ("model", "api", "rules", "views")},
    "adapters/cluster": "adapters/cluster",
    "programs": "programs",
    "programs/agent": "programs/agent",
}
QUESTIONS = 40


def sentence(folder: Path) -> str:
    """The first line of a package's docstring, without what follows it."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace(" --- ", "---")


def floors() -> str:
    """What each floor of the product is, in its own words."""
    rows = [(f"`{floor}/`", sentence(PRODUCT / floor)) for floor in FLOORS]
    return table(("floor", "what is in it"), rows)


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


@cache
def capabilities() -> dict[str, dict[str, str]]:
    """By capability: where it has a room. A room that needs one file only is that file."""
    names = {
        floor: {
            path.stem: f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
            for path in sorted((PRODUCT / folder).iterdir())
            if path.stem.isidentifier() and not path.stem.startswith("_")
        }
        for floor, folder in ROOMS.items()
    }
    words = sorted(path.stem for path in (PRODUCT / "rules").iterdir() if path.is_dir())
    return {
        word: {floor: rooms[word] for floor, rooms in names.items() if word in rooms}
        for word in words
        if not word.startswith("_")
    }


def rooms() -> str:
    """Which rooms a capability has, floor by floor."""
    rows = [
        (word, sentence(PRODUCT / "rules" / word), *(places.get(floor, "") for floor in ROOMS))
        for word, places in capabilities().items()
    ]
    return table(("capability", "its rules", *ROOMS), rows)


TABLES = {"floors": floors, "packages": packages, "rooms": rooms, "tests": folders_of_tests}


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
    good = ["q", "`rules/phrases.py`", "`house/tree.py`", "[a](docs/agent.md)"]
    assert not list(faults([good]))
    for place, cell, words in (
        (1, "`rules/gone.py`", "there is no rules/gone.py"),
        (1, "`rules/phrases.py::gone`", "has no gone"),
        (1, "the rules", "names no file"),
        (2, "`house/gone.py`", "there is no house/gone.py"),
        (3, "somewhere", "is no page"),
    ):
        bad = [cell if place == at else text for at, text in enumerate(good)]
        (fault,) = faults([bad])
        assert words in fault
    assert list(faults([["q", "`rules/phrases.py`"]]))
