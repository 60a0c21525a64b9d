"""A file that people write has at most 600 lines, a function at most 50, and no argument is packed.

Protocol code made by the compiler is excepted, and so are pure tables: modules with nothing but a
docstring, imports and assignments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .tree import is_generated, is_python, is_shell, statements, texts

MAX_FILE = 600
MAX_FUNCTION = 50
PACKED = re.compile(r"\*\s*\(")  # as a file has it in which packed arguments can be
CODE = ("src", "tests", "tools", "bench", "chaos", "shim", "examples", ".ci", "Makefile")


def is_code(name: str, text: str) -> bool:
    """Python, shell, C, Go or the Makefile; lists of modules (go.mod, go.sum) are not."""
    written = is_python(name, text) or is_shell(name, text)
    return written or name.endswith(("Makefile", ".c", ".h", ".go"))


def is_table(tree: ast.Module) -> bool:
    """A module that only names values."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    return all(isinstance(node, allowed) for node in tree.body)


def too_long(name: str, text: str) -> Iterator[str]:
    """One sentence for each breach in one file."""
    lines = text.count("\n")
    # To parse takes long, and a function in a file this short is short too.
    tree = ast.parse(text) if is_python(name, text) and lines >= MAX_FUNCTION else None
    if lines > MAX_FILE and not (tree and is_table(tree)):
        yield f"{name}: the file has {lines} lines, {MAX_FILE} are allowed"
    for node in statements(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION:
                place = f"{name}:{node.lineno}: the function {node.name}"
                yield f"{place} has {length} lines, {MAX_FUNCTION} are allowed"


def packed(name: str, text: str) -> Iterator[str]:
    """One sentence for each call whose arguments stand in a tuple that is unpacked at once."""
    if not is_python(name, text) or not PACKED.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        for argument in node.args if isinstance(node, ast.Call) else ():
            match argument:
                case ast.Starred(value=ast.Tuple(elts=parts)) if not any(
                    isinstance(part, ast.Starred) for part in parts
                ):
                    yield f"{name}:{argument.lineno}: arguments are packed; write them plainly"


def test_sizes() -> None:
    """Every file and function in the tree keeps the limits."""
    code = [(name, text) for name, text in texts(*CODE) if is_code(name, text)]
    assert any(name.startswith("src/") for name, _ in code)
    rules = (too_long, packed)
    written = [(name, text) for name, text in code if not is_generated(name)]
    breaches = [line for rule in rules for n, t in written for line in rule(n, t)]
    assert not breaches, "\n" + "\n".join(breaches)


def test_a_long_file_is_found() -> None:
    """A file one line too long is named with its count; a shell file too."""
    text = "def f():\n    return 1\n" + "x = 1\n" * (MAX_FILE - 1)
    assert list(too_long("a.py", text)) == ["a.py: the file has 601 lines, 600 are allowed"]
    assert list(too_long("a.sh", "true\n" * (MAX_FILE + 1))) == [
        "a.sh: the file has 601 lines, 600 are allowed"
    ]


def test_a_long_function_is_found() -> None:
    """A function, a method or a nested function one line too long is named with its line."""
    text = "class C:\n    async def f(self):\n" + "        pass\n" * MAX_FUNCTION
    assert list(too_long("a.py", text)) == [
        "a.py:2: the function f has 51 lines, 50 are allowed",
    ]
    assert not list(too_long("a.py", text.replace("        pass\n", "", 1)))


def test_a_table_may_be_long() -> None:
    """Values alone may go on; one function among them makes the file code."""
    table = '"""Modes."""\nfrom x import y\n' + "A = 1\n" * MAX_FILE
    assert not list(too_long("a.py", table))
    assert list(too_long("a.py", table + "def f(): pass\n"))


def test_packed_arguments_are_found() -> None:
    """A tuple that is unpacked where it is written hides how many arguments a call has."""
    assert list(packed("a.py", "f(1,\n  *(2, 3))\n")) == [
        "a.py:2: arguments are packed; write them plainly"
    ]
    assert not list(packed("a.py", "f(*rest, *(g(x) for x in y), *(*a, b))\n"))
