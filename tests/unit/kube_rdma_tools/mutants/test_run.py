"""A fault in a small checkout is noticed by the test that concerns it, or by none."""

from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_tools.mutants.__main__ import row
from kube_rdma_tools.mutants.places import files, stages
from kube_rdma_tools.mutants.run import MutationTrial, draw

RULE = Path("src/kube_rdma/pools/rules/rule.py")
SOURCE = "def least(a, b):\n    return a if a < b else b\n\n\ndef unused(a):\n    return a + 1\n"
TEST = """
from kube_rdma.pools.rules.rule import least


def test_least():
    assert least(1, 2) {} 1
"""


@pytest.fixture
def checkout(tmp_path):
    """One module of the product with one test."""
    root = tmp_path / "checkout"
    for path, text in {
        **{place / "__init__.py": "" for place in list(RULE.parents)[:3]},
        RULE: SOURCE,
        Path("tests/unit/pools/rules/test_rule.py"): TEST.format("=="),
        Path("tests/model/test_none.py"): "def test_none():\n    pass\n",
        Path("pytest.ini"): "[pytest]\nmarkers =\n    slow: s\n    lab: l\n",
        Path(
            "conftest.py"
        ): "from hypothesis import settings\nsettings.register_profile('quick')\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_what_a_test_demands_is_noticed_and_what_none_does_is_not(checkout, tmp_path):
    drawn = sorted(draw(checkout, [RULE], 1, 100), key=lambda one: one.fault.line)
    outcomes = list(MutationTrial(checkout, tmp_path / "copy", 1).outcomes(drawn))
    by_change = {one.drawn.fault.after: one.noticed_by for one in outcomes}
    assert "test_least" in by_change["a if not a < b else b"]
    assert by_change["a - 1"] == ""
    assert "NOT NOTICED" in row(outcomes[-1])
    assert (checkout / RULE).read_text() == SOURCE


def test_a_test_that_fails_anyway_notices_nothing(checkout, tmp_path):
    (checkout / "tests/unit/pools/rules/test_rule.py").write_text(TEST.format("!="))
    drawn = draw(checkout, [RULE], 1, 1)
    with pytest.raises(Unavailable, match="test_least fails without a fault"):
        list(MutationTrial(checkout, tmp_path / "copy", 1).outcomes(drawn))


def test_a_draw_is_the_same_again(checkout):
    assert draw(checkout, [RULE], 7, 3) == draw(checkout, [RULE], 7, 3)


def test_the_nearest_tests_come_first_and_all_at_last(checkout):
    first, last = stages(checkout, RULE)
    assert first == ["tests/unit/pools/rules"]
    assert last == ["tests/unit", "tests/model"]


def test_a_room_that_there_is_not_is_refused(checkout):
    with pytest.raises(Refused, match="there is no such room"):
        files(checkout, ["kitchen"])
