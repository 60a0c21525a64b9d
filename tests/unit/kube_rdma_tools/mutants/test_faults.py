"""Faults are single changes of code that compiles, and of nothing that no test should notice."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.mutants.faults import faults
from kube_rdma_tools.mutants.places import files
from tests.house.tree import ROOT

SILENT = '''
"""A module's words: 1 < 2."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from a import b
def f(x: int = None) -> "1 < 2":
    """And a function's."""
    assert x != 3
    log.info("told", number=4)
    return None
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "a <= b"),
        ("a == b", "a != b"),
        ("a in b", "a not in b"),
        ("a and b", "a or b"),
        ("a + b", "a - b"),
        ("not a", "a"),
        ("True", "False"),
        ("7", "8"),
        ("a if b else c", "a if not b else c"),
    ],
)
def test_an_expression_has_its_fault(before, after):
    changed = [fault for fault in faults(f"x = {before}\n") if fault.before == before]
    assert [fault.after for fault in changed] == [after]
    assert ast.unparse(ast.parse(changed[0].source)) == f"x = {after}"


@pytest.mark.parametrize(
    ("statement", "after"),
    [("return a", "return None"), ("call(a)", "pass"), ("a += b", "pass"), ("break", "pass")],
)
def test_a_statement_has_its_fault(statement, after):
    loop = f"def f():\n    for a in b:\n        {statement}\n"
    assert after in [fault.after for fault in faults(loop)]


def test_words_and_types_and_lines_for_the_log_have_none():
    assert [fault.before for fault in faults(SILENT)] == []


@given(st.sampled_from(files(ROOT, ["rules", "agent"])), st.randoms())
def test_each_fault_of_a_file_compiles_and_differs_in_one_place(file, chance):
    """Over the files that get them."""
    source = (ROOT / file).read_text(encoding="utf-8")
    possible = faults(source)
    if possible:
        fault = chance.choice(possible)
        compile(fault.source, str(file), "exec")
        assert ast.dump(ast.parse(fault.source)) != ast.dump(ast.parse(source))
        lines = fault.source.splitlines()
        assert lines[: fault.line - 1] == source.splitlines()[: fault.line - 1]
