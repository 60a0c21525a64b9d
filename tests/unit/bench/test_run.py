"""A run of benchmarks: each row is shown at once, and no end of one is the end of the others."""

import signal

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.context import Context
from bench.figures import Absent, Figure
from bench.run import ALL_MEASURED, FAILED, INTERRUPTED, Run
from kube_base.errors import Unavailable

ONE, TWO = Figure("one_ms", 1.0, "ms", "≤ 2"), Figure("two_ms", 254.0, "ms", "", "of three")
LONG = 600.0


def measures(context):
    yield ONE


def refuses(context):
    raise Unavailable("the agent has ended")


def interrupted(context):
    yield ONE
    signal.raise_signal(signal.SIGINT)
    yield TWO


def endless(context):
    yield ONE
    while True:  # and never at rest: a signal just before a system call would not end that
        pass


def rows_of(*benchmarks, limit=LONG):
    """The exit code of a run, and what it has shown."""
    rows = []
    run = Run(Context(), lambda *row: rows.append(row), limit)
    return run.all({each.__name__: each for each in benchmarks}), rows


def test_a_figure_is_shown_before_the_next_one_is_measured():
    rows = []

    def looks(context):
        yield ONE
        assert rows == [("looks", ONE)]
        yield TWO

    run = Run(Context(), lambda *row: rows.append(row), LONG)
    assert run.all({"looks": looks}) == ALL_MEASURED
    assert rows == [("looks", ONE), ("looks", TWO)]


def test_a_figure_of_two_checkouts_has_a_ratio():
    rows = rows_of(lambda context: iter([ONE, Figure("beside_one_ms", 2.0, "ms")]))[1]
    assert rows[-1][1] == Figure("one_ms_to_beside", 0.5, "×")


def test_one_that_refuses_is_a_row_and_the_others_go_on():
    absent = ("refuses", Absent("refuses", "the agent has ended"))
    assert rows_of(refuses, measures) == (FAILED, [absent, ("measures", ONE)])


def test_one_that_takes_too_long_is_a_row_and_the_others_go_on():
    code, rows = rows_of(endless, measures, limit=0.05)
    late = ("endless", Absent("endless", "it was not done within 0.05 s"))
    assert (code, rows[-2:]) == (FAILED, [late, ("measures", ONE)])


def test_an_interrupt_keeps_what_was_measured_and_names_what_was_not():
    done, begun = ("measures", ONE), ("interrupted", ONE)
    assert rows_of(measures, interrupted, refuses) == (
        INTERRUPTED,
        [
            done,
            begun,
            ("interrupted", Absent("interrupted", "interrupted before it was done")),
            ("refuses", Absent("refuses", "interrupted before it began")),
        ],
    )


@pytest.mark.parametrize("words", [["nonsense"], ["--limit", "0"]])
def test_bad_input_gets_a_sentence(words):
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 2
    assert "Error: Invalid value" in ended.stderr
