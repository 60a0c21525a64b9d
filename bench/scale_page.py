"""The tables of docs/scale.md: a row for each figure of `scale`, a column for each size.

Beside bench/page.py, which has a list for every other word. Behind bench/results.py. Sizes may come
from several runs, so exponents are those of the columns that are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.results import Result
from bench.scale_fit import TARGET, carried, exponent
from kube_rdma_tools.page_tables import BEGIN, put

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
_OF_SIZE = re.compile(r"agents_(\d+)_(.+)")
_EXPONENT, _CARRIED = "exponent_", f"at_{TARGET}_"


def written(page: str, results: Sequence[Result]) -> str:
    """Return the page with the tables of these figures between its two marks."""
    return put(page, BEGIN.format("scale"), "\n".join(tables(results)))


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Return the lines of both tables, and who measured them."""
    growing = {result.key.removeprefix(_EXPONENT) for result in results}
    cells: dict[str, dict[int, Result]] = {}
    for result in results:
        if match := _OF_SIZE.fullmatch(result.key):
            cells.setdefault(match[2], {})[int(match[1])] = result
    sizes = sorted({size for row in cells.values() for size in row})
    heads = [*(f"{size:,} agents" for size in sizes), "exponent", f"{TARGET:,} nodes", "more"]
    yield _line("figure", *heads)
    yield "|---" * (len(heads) + 1) + "|"
    for key, row in cells.items():
        yield _line(
            f"`{key}`",
            *(_number(row[size].value, row[size].unit) if size in row else "" for size in sizes),
            *(_growth(row) if key in growing else ("", "")),
            row[max(row)].note,
        )
    others = [result for result in results if _is_other(result)]
    yield from ("", _line("figure of many addresses", "value", "goal", "more"), "|---|---|---|---|")
    for result in others:
        value = _number(result.value, result.unit)
        yield _line(f"`{result.key}`", value, result.goal, result.note)
    runs = dict.fromkeys((one.day, one.commit, one.machine) for one in results)
    yield from ("", *(f"Measured {day}, commit {commit}, on {name}." for day, commit, name in runs))


def _is_other(result: Result) -> bool:
    return not _OF_SIZE.fullmatch(result.key) and not result.key.startswith((_EXPONENT, _CARRIED))


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _growth(row: Mapping[int, Result]) -> tuple[str, str]:
    """The exponent, and what it comes to; nothing where there is none."""
    values = {size: result.value for size, result in row.items()}
    slope = exponent(values)
    if slope is None:
        return "", ""
    return f"{slope:.2f}", _number(carried(values, slope), row[max(row)].unit)


def _number(value: float, unit: str) -> str:
    return f"{f'{value:.3g}' if abs(value) < 100 else f'{value:,.0f}'} {unit}".strip()
