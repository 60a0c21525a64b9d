"""The goals of figures (goals.toml): a table of what was measured beside each, and what missed it.

A figure is a ratio to a control of the same run, or it is counted. A goal that is missed stays in
the table, with its reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from operator import ge, le
from pathlib import Path

import msgspec

from bench.checkout import BESIDE
from bench.results import Result
from kube_base.frozen import Frozen
from kube_rdma_tools.page_tables import markdown_row

FILE = Path(__file__).with_name("goals.toml")
_BOUND = re.compile(r"([≤≥]) ?([\d.,]+)")


class Goal(Frozen, forbid_unknown_fields=True):
    """What one figure is to reach."""

    row: str
    goal: str
    of: str
    reason: str = ""


def goals() -> Mapping[str, Mapping[str, Goal]]:
    """Return them by word and key."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return msgspec.convert(document, dict[str, dict[str, Goal]])


def missed(value: float, bound: str) -> bool:
    """Whether a value is beyond a bound such as "≤ 64 KiB"; never beyond what is none."""
    if not (match := _BOUND.match(bound)):
        return False
    within = le if match[1] == "≤" else ge
    return not within(value, float(match[2].replace(",", "")))


def table(by_benchmark: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Return the lines of the table, and those that say what was measured when.

    Both figures of a row come from the word's newest run.
    """
    yield markdown_row(
        ("figure", "beside", "goal", "newest", "before", "why it is missed", "benchmark")
    )
    yield "|---" * 7 + "|"
    runs: dict[str, dict[str, None]] = {}  # day and commit, by machine
    for word, by_key in goals().items():
        results = {result.key: result for result in by_benchmark.get(word, ())}
        for key, goal in by_key.items():
            ours, before = results.get(key), results.get(BESIDE + key)
            over = ours is not None and missed(ours.value, goal.goal)
            yield markdown_row(
                (
                    goal.row,
                    goal.of,
                    goal.goal,
                    f"**{number(ours)}**" if over else number(ours),
                    beside(ours, before),
                    goal.reason if over else "",
                    f"`{word}`",
                )
            )
            for one in filter(None, (ours, before)):
                runs.setdefault(one.machine, {})[f"{one.day}, commit {one.commit}"] = None
    yield from ("", *(f"Measured on {where}: {'; '.join(each)}." for where, each in runs.items()))


def number(result: Result | None) -> str:
    """Return what was measured, with its unit where that is no ratio."""
    if result is None:
        return "–"
    value = result.value
    text = f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{text} {result.unit}".strip()


def beside(ours: Result | None, other: Result | None) -> str:
    """Return the figure of the other checkout, and what ours is by it."""
    ratio = f", {ours.value / other.value:.2g} ×" if ours and other and other.value else ""
    return f"{number(other)}{ratio}"


def measured(result: Result) -> str:
    """Return the sentence that says who measured it."""
    return f"Measured {result.day}, commit {result.commit}, on {result.machine}."
