"""What commands print goes through cli/output, and a name in a printed command is quoted.

There every character that a terminal acts on is replaced; shlex.quote makes one word of a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .tree import PRODUCT, is_generated, texts

# Files that print by themselves what holds no text from outside, or what only programs read.
PRINTING = {
    "cli/main.py": "errors, through plain",
    "cli/output.py": "it is the way out",
    "cli/claim.py": "manifests of the caller's own words, which install/views writes",
    "cli/config.py": "a schema of the model",
    "cli/devices.py": "a line of JSON, NCCL's topology file, a sentence of its own",
    "cli/discover.py": "manifests, which install/views writes, below comments through plain",
    "cli/doctor.py": "a bundle for a program",
    "cli/ip.py": "manifests, which install/views writes",
    "cli/nccl_env.py": "a script that is a file of the product",
    "cli/preflight.py": "a termination message through plain, and lines of the product",
    "cli/render.py": "manifests and notes of the product",
    "cli/top.py": "documents",
    "cli/verify.py": "rows that `written` made",
}
COMMAND = re.compile(r"(kubectl|ip link|kube-rdma (ip|explain|claim)) (?!get nodereports)[^;,]*$")
# What the product itself chooses, never a neighbour.
OWN = re.compile(
    r"_names\(\w+\)|what|path|timeout|"
    r"[A-Z_]+|kind|mtu|widest|word|only|more|command|place\.number|policy\.kind\.lower\(\)"
)


def bare(tree: ast.AST) -> Iterator[int]:
    """Lines of texts in which a value stands behind a command's name and is not quoted."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        quoted = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and "quote(" in ast.unparse(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for text in ast.walk(function):
            if isinstance(text, ast.JoinedStr):
                yield from _bare_of(text, quoted)


def _bare_of(text: ast.JoinedStr, quoted: set[str]) -> Iterator[int]:
    before = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            before += str(part.value)
            continue
        assert isinstance(part, ast.FormattedValue)
        value = ast.unparse(part.value)
        if COMMAND.search(before) and not (
            value.startswith("quote(") or value in quoted or OWN.fullmatch(value)
        ):
            yield part.lineno
        before += "x"


def _trees(words: str) -> Iterator[tuple[str, ast.AST]]:
    """Of the files in which one of the words stands, for the others cannot have what is sought."""
    for name, text in texts(*PRODUCT):
        if name.endswith(".py") and not is_generated(name) and re.search(words, text):
            yield name.removeprefix("src/kube_rdma/"), ast.parse(text)


def test_names_in_commands_are_quoted() -> None:
    trees = _trees("kubectl|ip link|kube-rdma ")
    found = {name: lines for name, tree in trees if (lines := [*bare(tree)])}
    assert not found


def test_commands_print_in_one_place() -> None:
    printing = {
        name
        for name, tree in _trees("click.echo")
        if name.startswith("cli/") and any(_prints(node) for node in ast.walk(tree))
    }
    assert printing == PRINTING.keys()


def _prints(node: ast.AST) -> bool:
    """Whether it is a call of click.echo with more than a constant."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "click.echo"
        and not isinstance(node.args[0], ast.Constant)
    )


def test_planted_faults_are_found() -> None:
    planted = "def f(n):\n    a = quote(n)\n    return f'See kubectl describe {%s}'"
    assert [*bare(ast.parse(planted % "n.name"))] == [3]
    assert not [*bare(ast.parse(planted % "quote(n.name)"))]
    assert not [*bare(ast.parse(planted % "a"))]
    assert _prints(ast.parse("click.echo(text)").body[0].value)  # type: ignore[attr-defined]
