"""What the house rules look at: the files of this checkout that people write and read."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = "src/kube_base", "src/kube_client", "src/kube_rdma"

FENCED = re.compile(r"(?ms)^ *(`{3,})[^`\n]*\n.*?^ *\1 *$")

# Made by tools, never committed; the names in .gitignore.
_MADE_ANYWHERE = {".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_MADE_AT_THE_TOP = {".venv", ".hypothesis", ".import_linter_cache", "dist", "build"}


def files(*tops: str) -> Iterator[Path]:
    """Every file below the folders (or files) `tops`, or of the whole tree, in order of name."""
    for top in tops or [""]:
        start = ROOT / top
        if start.is_file():
            yield start
        for folder, below, names in os.walk(start):
            # What is taken out of `below` is not walked: .venv has more files than all the rest.
            made = _MADE_ANYWHERE | (_MADE_AT_THE_TOP if Path(folder) == ROOT else set())
            below[:] = sorted(name for name in below if name not in made)
            yield from (Path(folder, name) for name in sorted(names) if name not in made)


@cache
def texts(*tops: str) -> tuple[tuple[str, str], ...]:
    """Name relative to the root and content of every text file below `tops`."""
    return tuple(_texts(*tops))


def _texts(*tops: str) -> Iterator[tuple[str, str]]:
    for path in files(*tops):
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture, an archive


def is_generated(name: str) -> bool:
    """Protocol code that the compiler of protobuf wrote."""
    return name.endswith(("_pb2.py", "_pb2.pyi", "_grpc.py"))


def is_shell(name: str, text: str) -> bool:
    """A shell script, by ending or by its first line."""
    return name.endswith(".sh") or (text.startswith("#!") and "sh" in text.split("\n", 1)[0])


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, without the expressions, in which no function is defined."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)
