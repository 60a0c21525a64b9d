"""Makes each function of a copy of the source note its name, so a run shows which tests call it.

Beside faults.py, for run.py. Pure: source in, source out. Noting costs less than tracing, which
slows the whole interpreter.
"""

from __future__ import annotations

import ast

NOTED = "noted_calls"
"""The name of a set of called functions, an attribute of builtins so that every module sees it."""


def noting(source: str, file: str) -> str:
    """Return the source in which each outermost function adds ``FILE NAME`` to the noted calls."""
    tree = ast.parse(source)
    _note(tree.body, file, "")
    return ast.unparse(tree)


def _note(body: list[ast.stmt], file: str, prefix: str) -> None:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_docstring = ast.get_docstring(node) is not None
            key = f"{file} {prefix}{node.name}"
            node.body.insert(has_docstring, ast.parse(f"{NOTED}.add({key!r})").body[0])
        elif isinstance(node, ast.ClassDef):
            _note(node.body, file, f"{prefix}{node.name}.")
        else:
            for part in ("body", "orelse", "finalbody"):
                _note(getattr(node, part, []), file, prefix)
