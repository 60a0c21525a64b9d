"""Growth is fitted as it is defined, numbers of agents are read, and the page shows what ran."""

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench import scale_page
from bench.__main__ import main
from bench.results import Result, newest, read
from bench.scale_fit import TARGET, Measured, carried, exponent, fitted
from bench.scale_fleet import Traffic

SIZES = st.sets(st.integers(min_value=2, max_value=2000), min_size=2, max_size=5)


@given(sizes=SIZES, slope=st.floats(-1, 3), factor=st.floats(0.01, 100))
def test_a_power_law_is_found_and_carried_on(sizes, slope, factor):
    values = {size: factor * size**slope for size in sizes}
    found = exponent(values)
    assert found == pytest.approx(slope, abs=1e-6)
    assert carried(values, slope) == pytest.approx(factor * TARGET**slope, rel=1e-6)


@pytest.mark.parametrize("values", [{}, {10: 3.0}, {10: 0.0, 100: 5.0}])
def test_what_was_seen_at_one_number_has_no_exponent(values):
    assert exponent(values) is None


def test_only_what_has_an_exponent_is_carried_on():
    series = {
        "requests": {10: Measured(20, ""), 100: Measured(200, "")},
        "lists": {10: Measured(0, ""), 100: Measured(0, "")},
    }
    rows = {row.key: row.value for row in fitted(series)}
    assert rows == {
        "exponent_requests": pytest.approx(1),
        "at_5000_requests": pytest.approx(10_000),
    }


@pytest.mark.parametrize("text", ["ten", "10,x", "1", "10,-5"])
def test_numbers_of_agents_that_are_none_are_refused(text):
    result = CliRunner().invoke(main, ["--agents", text, "scale"])
    assert result.exit_code == 2
    assert "such as 10,100" in result.output


def test_requests_are_counted_by_whole_words():
    """`nodes` is no part of `nodes/status`."""
    counts = {"patch nodes 200": 3, "patch nodes/status 200": 5, "list nodes 429": 1}
    traffic = Traffic([{"requests": counts, "answers": {}, "changes": {}, "errors": {}}] * 2)
    assert traffic.count("nodes") == 8
    assert traffic.count("patch", "nodes/status") == 10
    assert traffic.count("429") == 2


def of(key, value, unit="", note=""):
    return Result("2026-01-01", "c0ffee", "M", "scale", key, value, unit, "", note)


def test_each_number_of_agents_has_a_column():
    results = [
        of("agents_10_start_bytes", 2, "MB"),
        of("agents_1000_start_bytes", 300, "MB", "the largest"),
        of("exponent_start_bytes", 7),  # of another run
        of("at_5000_start_bytes", 7, "MB"),
        of("nics_80_addresses", 80),
    ]
    lines = list(scale_page.tables(results))
    assert lines[0] == ("| figure | 10 agents | 1,000 agents | exponent | 5,000 nodes | more |")
    assert lines[2] == ("| `start_bytes` | 2 MB | 300 MB | 1.09 | 1,728 MB | the largest |")
    assert "| `nics_80_addresses` | 80 |  |  |" in lines
    assert lines[-1] == "Measured 2026-01-01, commit c0ffee, on M."


def test_the_page_is_what_the_results_say():
    """`python -m bench.page` writes it."""
    page = scale_page.PAGE.read_text(encoding="utf-8")
    assert page == scale_page.written(page, newest(read()).get("scale", []))
