"""No files import each other in a circle: whoever reads one can read what it stands on first."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath

from .test_names import PACKAGES, modules
from .tree import statements


def module(name: str) -> str:
    """What a file is imported as."""
    parts = PurePath(name.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of every import, late ones and those for types alone too."""
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def circle(files: Mapping[str, str]) -> tuple[str, ...]:
    """The modules of one circle among files by name; nothing if there is none."""
    names = {module(name) for name in files}
    below: dict[str, set[str]] = {}
    for name, text in files.items():
        wanted = (
            inside if (inside := f"{source}.{word}") in names else source
            for source, word in imported(ast.parse(text))
        )
        below[module(name)] = {other for other in wanted if other in names} - {module(name)}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        members: list[str] = error.args[1]
        return tuple(members)
    return ()


def test_no_files_stand_on_each_other() -> None:
    assert circle(dict(modules(*PACKAGES))) == ()


def test_a_planted_circle_is_found() -> None:
    """Through a late import, and one that is for types alone."""
    files = {
        "src/a/x.py": "def f():\n    from a import y\n",
        "src/a/y.py": "if TYPE_CHECKING:\n    from a.z import Z\n",
        "src/a/z.py": "import a.x\n",
    }
    assert set(circle(files)) == {"a.x", "a.y", "a.z"}
    assert circle({name: text for name, text in files.items() if "z" not in name}) == ()
