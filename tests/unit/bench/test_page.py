"""Figures that were kept, and the page that shows them: only what a run measured, goals with it."""

import pytest

from bench import goals, page, results, scale_page

KEPT = results.read()
RUN = {"machine": "m", "benchmark": "shim", "unit": "KiB", "goal": "≤ 64"}


def result(key, value, run="10:00:00", commit="aaa"):
    fields = {**RUN, "day": "2026-11-29", "key": key, "value": value, "run": run, "commit": commit}
    return results.Result(**fields)


def lines(*kept):
    return [line for line in goals.table(results.newest(kept)) if "`shim`" in line]


@pytest.mark.parametrize("module", [page, scale_page])
def test_the_pages_are_those_of_the_kept_figures(module):
    figures = page.apart(KEPT) if module is scale_page else results.newest(KEPT)
    text = module.PAGE.read_text()
    assert module.written(text, figures) == text, "write it with `python -m bench.page`"


def test_each_goal_has_a_bound():
    for by_key in goals.goals().values():
        assert all(
            goals.missed(1e9, one.goal) != goals.missed(0, one.goal) for one in by_key.values()
        )


def test_a_missed_goal_is_shown_with_the_other_checkout_of_the_same_run():
    ours, other = result("aarch64_kib", 66.5), result("beside_aarch64_kib", 70, commit="bbb")
    assert "**66.5 KiB** | 70 KiB, 0.95 × |" in lines(ours, other)[-1]
    assert "| 64 KiB | – |" in lines(ours, other, result("aarch64_kib", 64, "11:00:00"))[-1]
