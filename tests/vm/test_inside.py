"""The plugin inside of the machine, run here: what it says of a test is what came of it."""

import os
import subprocess
import sys

import pytest

from kube_rdma_lab.bare.results import InnerOutcome, ReportLine, ReportReader
from kube_rdma_lab.bare.run import INSIDE

TESTS = """
import os, pytest

def test_good(record_property):
    record_property("ms", 7)

def test_bad():
    print("printed")
    assert 1 == 2, "a traceback"

def test_not_here():
    pytest.skip("not here")

@pytest.fixture
def left():
    yield
    raise OSError("at teardown")

def test_left(left):
    pass

@pytest.mark.parametrize("way", ["a/b::c"])
class TestMany:
    def test_in_a_class(self, way):
        pass

def test_dies():
    if "DIE" in os.environ:
        os._exit(1)
"""


@pytest.fixture
def lines(tmp_path):
    """What is said of TESTS; `settings` are variables of their environment."""

    def run(**settings):
        (tmp_path / "modules").touch()
        (tmp_path / "test_some.py").write_text(TESTS)
        (tmp_path / "pytest.ini").touch()
        paths = {"LAB_RUN": str(tmp_path), "PYTHONPATH": str(INSIDE), "LAB_LONG_STARTS": "15"}
        words = ("-m", "pytest", "-p", "inside", "-p", "no:cacheprovider", "test_some.py")
        environment = {**os.environ, **paths, **settings}
        done = subprocess.run(
            (sys.executable, *words),
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "collected 6 items" in done.stdout
        return list(ReportReader(tmp_path / "results").new())

    return run


def test_each_test_begins_and_ends_under_its_node_id(lines):
    said = lines()
    assert said.pop() == ReportLine("")
    begun = [line.test for line in said if line.result is None]
    assert begun == [line.test for line in said if line.result]
    assert "test_some.py::TestMany::test_in_a_class[a/b::c]" in begun


def test_results_are_what_came_of_the_tests(lines):
    """With traceback and what was printed, the reason of a skip, the figures of a benchmark."""
    results = {line.test.partition("::")[2]: line.result for line in lines() if line.result}
    assert results["test_good"].outcome is InnerOutcome.PASSED
    assert results["test_good"].facts == {"ms": "7"}
    bad = results["test_bad"]
    assert (bad.outcome, "a traceback" in bad.text, "printed" in bad.text) == ("failed", True, True)
    assert results["test_not_here"].outcome is InnerOutcome.SKIPPED
    assert "not here" in results["test_not_here"].text
    assert results["test_left"].outcome is InnerOutcome.FAILED
    assert "at teardown" in results["test_left"].text


def test_of_a_test_that_takes_pytest_with_it_only_the_beginning_is_said(lines):
    assert lines(DIE="yes")[-1] == ReportLine("test_some.py::test_dies")
