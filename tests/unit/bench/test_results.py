"""Figures that are recorded are read again, and the page shows the newest of each key."""

import json

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.figures import Absent, Figure
from bench.page import PAGE, tables, written
from bench.results import newest, read, recording
from kube_base.errors import Refused


def shown(folder, *rows):
    """Record rows, and return what was shown beside."""
    told = []
    show = recording(lambda name, row: told.append((name, row)), folder)
    for row in rows:
        show("devices", row)
    return told


def test_a_figure_is_shown_recorded_and_read_again(tmp_path):
    row = Figure("ratio", 1.23456, "x", "≤ 2", "to the floor")
    assert shown(tmp_path, row, Absent("other", "no card")) == [
        ("devices", row),
        ("devices", Absent("other", "no card")),
    ]
    (result,) = read(tmp_path)
    assert (result.benchmark, result.key, result.value) == ("devices", "ratio", 1.235)
    assert (result.unit, result.goal, result.note) == ("x", "≤ 2", "to the floor")
    assert "GiB, Linux" in result.machine


def test_the_last_figure_of_a_key_counts(tmp_path):
    shown(tmp_path, Figure("a", 1, "s"), Figure("b", 2, "s"))
    shown(tmp_path, Figure("a", 3, "s"))
    by_benchmark = newest(read(tmp_path))
    assert [(one.key, one.value) for one in by_benchmark["devices"]] == [("a", 3), ("b", 2)]
    assert "| `a` | 3 s |" in tables(by_benchmark)


@pytest.mark.parametrize("line", ["{", "[]", '{"key": 1}', json.dumps({"value": "fast"})])
def test_a_line_that_is_no_figure_is_named(tmp_path, line):
    (tmp_path / "2026-01-01.jsonl").write_text(f"{line}\n")
    with pytest.raises(Refused, match=r"2026-01-01\.jsonl:1"):
        read(tmp_path)


def test_short_figures_are_not_recorded():
    result = CliRunner().invoke(main, ["--short", "--record", "devices"])
    assert result.exit_code == 2
    assert "leave one of the two out" in result.output


def test_the_page_is_what_the_results_say():
    """`python -m bench.page` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, newest(read()))
