"""A run of benchmarks: each row is shown at once, and no end of one is the end of the others."""

import asyncio
import json
import signal

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.context import Context
from bench.figures import Absent, Figure, attempt, despite, json_lines, streamed, table
from bench.run import ALL_MEASURED, FAILED, INTERRUPTED, Run, within
from kube_base.errors import Unavailable

ONE, TWO = Figure("one_ms", 1.0, "ms", "≤ 2"), Figure("two_ms", 254.0, "ms", "", "of three")
LONG = 600.0


def measures(context):
    yield ONE


def refuses(context):
    raise Unavailable("the agent has ended")


def breaks(context):
    yield ONE
    raise ValueError("no card\nand more")


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


def test_one_that_refuses_is_a_row_and_the_others_go_on():
    absent = ("refuses", Absent("refuses", "the agent has ended"))
    assert rows_of(refuses, measures) == (FAILED, [absent, ("measures", ONE)])


def test_one_that_breaks_keeps_what_it_had_measured():
    """Its row is one sentence, whatever the error is and however long."""
    absent = ("breaks", Absent("breaks", "ValueError: no card"))
    assert rows_of(breaks, measures) == (FAILED, [("breaks", ONE), absent, ("measures", ONE)])


def test_one_that_measures_nothing_has_failed():
    def nothing(context):
        return ()

    assert rows_of(nothing) == (FAILED, [("nothing", Absent("nothing", "it measured nothing"))])


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


def test_the_limit_ends_what_asyncio_runs():
    """As Ctrl-C does: what it has open is closed."""
    closed = []

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    with pytest.raises(Unavailable, match="not done within"), within(0.05):
        asyncio.run(wait())
    assert closed


def test_the_limit_ends_with_what_it_was_for():
    with within(LONG):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_table_has_the_name_once_and_why_a_figure_is_missing(capsys):
    show = table()
    for row in (("first", ONE), ("first", TWO), ("second", Absent("card", "it is gone"))):
        show(*row)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["BENCHMARK", "FIGURE", "VALUE", "GOAL"],
        ["first", "one_ms", "1", "ms", "≤", "2"],
        ["two_ms", "254", "ms", "of", "three"],
        ["second", "card", "failed", "it", "is", "gone"],
    ]


def test_json_has_an_object_for_each_row(capsys):
    show = json_lines()
    show("first", ONE)
    show("second", Absent("card", "it is gone"))
    figure, absent = map(json.loads, capsys.readouterr().out.splitlines())
    assert {"benchmark": "first", "key": "one_ms", "value": 1.0, "unit": "ms"}.items() <= (
        figure.items()
    )
    assert absent == {
        "benchmark": "second", "key": "card", "reason": "it is gone", "failed": True,
    }  # fmt: skip


def test_what_has_nothing_to_do_is_no_failure(monkeypatch):
    monkeypatch.delenv("KUBE_RDMA_BESIDE", raising=False)
    ended = CliRunner().invoke(main, ["beside"])
    assert ended.exit_code == ALL_MEASURED
    assert "not run" in ended.stdout


@pytest.mark.parametrize("words", [["nonsense"], ["--limit", "0"]])
def test_bad_input_gets_a_sentence(words):
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 2
    assert "Error: Invalid value" in ended.stderr


def test_what_was_measured_before_an_error_is_shown_before_it():
    times = []

    def turns():
        times.append(1.0)
        raise Unavailable("the node has ended")

    rows = attempt("turns", lambda: despite(turns, lambda: [Figure("one", sum(times), "ms")]))
    assert list(rows) == [Figure("one", 1.0, "ms"), Absent("turns", "the node has ended")]


def test_figures_of_asyncio_come_one_by_one():
    done = []

    async def figures():
        yield ONE
        await asyncio.sleep(0)
        done.append(True)
        yield TWO
        raise Unavailable("the agent has ended")

    rows = attempt("agent", lambda: streamed(figures()))
    assert next(rows) == ONE
    assert list(rows) == [TWO, Absent("agent", "the agent has ended")]
    assert done


def test_the_end_of_a_run_closes_what_its_coroutine_has_open():
    closed = []

    async def figures():
        try:
            yield ONE
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    with pytest.raises(Unavailable, match="not done within"), within(0.05):
        list(streamed(figures()))
    assert closed
