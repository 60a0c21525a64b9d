"""The table at the end of a run with a lab: what it adds up, and that two runs share it."""

import os
import re
import subprocess
import sys

import pytest

from tests.times import FILE, UNIT, Times, phase, shown, slowest, table

from .tree import ROOT

PROJECT = """
import pytest

@pytest.fixture(scope="session")
def lab():
    pass

@pytest.mark.lab
def test_on_the_lab(lab):
    pass

def test_without():
    pass
"""


@pytest.fixture
def run(tmp_path):
    """Run tests of a small project with the plugin; what pytest prints."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = lab")
    (tmp_path / "test_some.py").write_text(PROJECT)
    (tmp_path / "times.json").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FILE: str(tmp_path / "times.json")}

    def run_chosen(marks):
        words = ("-m", "pytest", "-p", "tests.times", "-p", "no:cacheprovider", "-m", marks)
        done = subprocess.run(
            (sys.executable, *words),
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    return run_chosen


def test_the_second_run_shows_what_both_took(run):
    """The first has no lab and is silent; its phase, the boot and each file have a line."""
    assert "where the time went" not in run("not lab")
    told = run("lab").partition("where the time went")[2]
    names = re.findall(r"(?m)^  (\S.*?)  +\S+ s", told)
    assert {"without a lab", "all"} <= set(names)
    assert "test_some.py::test_on_the_lab" in told


def test_the_report_of_a_process_that_died_is_counted(tmp_path):
    """It has no properties of ours, and names the test in which it died."""
    before = tmp_path / "before"
    before.touch()
    report = pytest.TestReport(
        "tests/test_a.py::test_b", ("tests/test_a.py", 1, "test_b"), {}, "failed", "died", "call"
    )
    times = Times(before)
    times.pytest_runtest_logreport(report)
    assert phase(report) == UNIT


def test_long_phases_come_first_and_short_ones_share_a_line():
    lines = list(table({"boot": 60, "a": 1, "test_long": 638, "b": 1}, 700))
    assert [line.split("  ")[1] for line in lines] == ["test_long", "boot", "2 others", "all"]
    assert "10 min 38 s  █" in lines[0]
    assert lines[-1].endswith("11 min 40 s")


def test_a_run_of_several_processes_took_less_than_its_tests():
    assert list(table({"a": 60, "b": 60}, 70))[-1].endswith(
        "1 min 10 s  (2 min 00 s of tests, side by side)"
    )


def test_the_slowest_tests_are_named_with_their_seconds():
    assert list(slowest({f"t{number}": float(number) for number in range(20)}))[1:3] == [
        "    19.0 s  t19",
        "    18.0 s  t18",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (754, "12 min 34 s")]
)
def test_seconds_are_said_as_people_say_them(seconds, words):
    assert shown(seconds) == words
