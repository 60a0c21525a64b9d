"""Figures that were kept, and the page that shows them: only what a run measured, goals with it."""

import pytest

from bench import goals, page, results
from bench.__main__ import LONG, QUICK
from bench.checkout import VARIABLE, turns
from bench.figures import Figure

RUN = {"machine": "m", "benchmark": "shim", "unit": "KiB", "goal": "≤ 64"}


def result(key, value, run="10:00:00", commit="aaa"):
    fields = {**RUN, "day": "2026-11-29", "key": key, "value": value, "run": run, "commit": commit}
    return results.Result(**fields)


def lines(*kept):
    return [line for line in goals.table(results.newest(kept)) if "`shim`" in line]


@pytest.mark.parametrize("place", page.PAGES, ids=lambda place: place.name)
def test_the_pages_are_those_of_the_kept_figures(place):
    text = place.read_text()
    assert "<!-- table: " in text
    assert page.written(text, results.read()) == text, "write it with `python -m bench.page`"


def test_each_goal_has_a_word():
    assert goals.goals().keys() <= {*QUICK, *LONG}


def test_a_missed_goal_is_shown_with_the_other_checkout_of_the_same_run():
    ours, other = result("aarch64_kib", 66.5), result("beside_aarch64_kib", 70, commit="bbb")
    assert "**66.5 KiB** | 70 KiB, 0.95 × |" in lines(ours, other)[-1]
    assert "| 64 KiB | – |" in lines(ours, other, result("aarch64_kib", 64, "11:00:00"))[-1]


def test_a_kept_figure_has_the_commit_of_its_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # which is no repository
    show = results.recording(lambda *row: None, tmp_path / "kept")
    for checkout in turns(1):
        show("shim", checkout.named(Figure("call_ms", 1.0, "ms")))
    ours, other = results.read(tmp_path / "kept")
    assert (ours.key, other.key, other.commit) == ("call_ms", "beside_call_ms", "unknown")
    assert ours.run == other.run
