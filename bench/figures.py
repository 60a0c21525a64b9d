"""A figure, and the table that shows many."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `key` is stable in the JSON output, `goal` is for people."""

    key: str
    value: float
    unit: str
    goal: str = ""
    note: str = ""


def as_json(results: dict[str, Sequence[Figure]]) -> str:
    """Return all figures as one JSON object: benchmark → key → value."""
    plain = {
        name: {figure.key: round(figure.value, 4) for figure in figures}
        for name, figures in results.items()
    }
    return json.dumps(plain, indent=2)


def as_table(results: dict[str, Sequence[Figure]]) -> str:
    """Return all figures as a table for a terminal."""
    rows = [("BENCHMARK", "FIGURE", "VALUE", "GOAL", "")]
    for name, figures in results.items():
        for index, figure in enumerate(figures):
            shown = f"{figure.value:.3g}" if figure.value < 100 else f"{figure.value:.0f}"
            value = f"{shown} {figure.unit}".strip()
            rows.append(("" if index else name, figure.key, value, figure.goal, figure.note))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
