"""The tables of CONTRIBUTING.md are those of the folders, and it is short."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from .tree import ROOT

PAGE = "CONTRIBUTING.md"
PRODUCT = ROOT / "src/kube_rdma"
MOST = 120  # lines: it is read in one go


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


def test_the_tables_of_folders_are_the_folders() -> None:
    """To accept a change, copy the shown table into CONTRIBUTING.md."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name, made in TABLES.items():
        written = re.search(
            rf"<!-- table: {name} -->\n(.*?)<!-- end of table -->\n", text, re.DOTALL
        )
        assert written, f"{PAGE} has no table {name}"
        assert written[1] == made(), f"{name}\n{made()}"


def test_it_is_short() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8").count("\n") <= MOST
