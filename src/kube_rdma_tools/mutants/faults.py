"""Single faults of a Python file: each is a small change that a hand could make.

First step of `make mutants`: run.py draws from the faults of all files. Pure: source in, faults
out. Code that no unit test has to notice is left out: annotations, decorators, imports,
TYPE_CHECKING blocks, docstrings, assertions, f-strings and log calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy

from kube_base.frozen import Frozen

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LOGGERS = frozenset({"log", "logger"})


class Mutation(Frozen):
    """One change of a file: `before` at `line` becomes `after`; `source` is the changed file."""

    line: int
    before: str
    after: str
    source: str


def faults(source: str) -> list[Mutation]:
    """Return all mutations of a file that this module knows, in the order of its lines.

    `source` is a module that compiles; so does that of each fault.
    """
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    changes = [
        _fault(text, starts, node, changed)
        for node in _code(ast.parse(source))
        for changed in _changes(node)
    ]
    return sorted(changes, key=lambda fault: fault.line)


def _fault(text: bytes, starts: list[int], node: ast.AST, changed: ast.AST) -> Mutation:
    """Return the mutation of the file in which `changed` replaces `node`."""
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first = starts[node.lineno - 1] + node.col_offset
    last = starts[node.end_lineno - 1] + node.end_col_offset
    after = ast.unparse(changed)
    # Parentheses keep an expression one, whatever stands around it and on however many lines.
    written = f"({after})" if isinstance(node, ast.expr) else after
    source = (text[:first] + written.encode() + text[last:]).decode()
    return Mutation(node.lineno, ast.unparse(node), after, source)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and expressions that have an effect when the program runs."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _silent(child):
                yield from _code(child)


def _silent(node: ast.AST) -> bool:
    """Decide whether a statement has no effect that tests should notice, such as a log call."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return True  # what a format string shows is changed where it is computed
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    if isinstance(value, ast.Constant):
        return True
    called = value.func if isinstance(value, ast.Call) else None
    owner = called.value if isinstance(called, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in _LOGGERS


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the changed versions of one syntax node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _with(node, "ops", [_swapped(node.ops[0])])
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        yield from _with(node, "op", _swapped(node.op))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from _with(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and not _is_nothing(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Continue | ast.Break | ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    ):
        yield ast.Pass()


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)


def _with(node: ast.AST, field: str, value: object) -> Iterator[ast.AST]:
    """Yield a copy of the node with `field` set to `value`, unless the value is None or [None]."""
    if value and value != [None]:
        copied = deepcopy(node)
        setattr(copied, field, value)
        yield copied


def _swapped(operator: ast.AST) -> ast.AST | None:
    other = _SWAPPED.get(type(operator))
    return other() if other else None


def _is_nothing(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
