"""The tables of `scale` in bench/results/README.md: a row for each figure, a column for each size.

Before bench/page.py, which has a list for every other word. Behind bench/results.py. Sizes may come
from several runs of the last day, so exponents are those of the columns that are shown. Where
another checkout was measured beside, a column has what that one comes to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bench.checkout import BESIDE
from bench.results import Result
from bench.scale_fit import TARGET, carried, exponent

_OF_SIZE = re.compile(rf"({BESIDE})?agents_(\d+)_(.+)")
_EXPONENT, _CARRIED, _RATIO = "exponent_", f"at_{TARGET}_", "_to_beside"


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Return the lines of both tables, and who measured them."""
    last = {_is_other(one): one.day for one in sorted(results, key=lambda one: one.day)}
    results = [one for one in results if one.day == last[_is_other(one)]]
    growing = {result.key.removeprefix(_EXPONENT) for result in results}
    cells: dict[str, dict[int, Result]] = {}
    beside: dict[str, dict[int, Result]] = {}
    for result in results:
        if (match := _OF_SIZE.fullmatch(result.key)) and not match[3].endswith(_RATIO):
            of = beside if match[1] else cells
            of.setdefault(match[3], {})[int(match[2])] = result
    others = dict.fromkeys(one.commit for row in beside.values() for one in row.values())
    sizes = sorted({size for row in cells.values() for size in row})
    heads = [*(f"{size:,} agents" for size in sizes), "exponent", f"{TARGET:,} nodes"]
    heads += [f"{TARGET:,} nodes of {commit}" for commit in others]
    yield _line("figure", *heads, "more")
    yield "|---" * (len(heads) + 2) + "|"
    for key, row in cells.items():
        yield _line(
            f"`{key}`",
            *(_number(row[size].value, row[size].unit) if size in row else "" for size in sizes),
            *(_growth(row) if key in growing else ("", "")),
            *(_growth(beside.get(key, {}))[1:] if key in growing else ("",))[: len(others)],
            row[max(row)].note,
        )
    yield from ("", _line("figure of many addresses", "value", "goal", "more"), "|---|---|---|---|")
    for result in filter(_is_other, results):
        value = _number(result.value, result.unit)
        yield _line(f"`{result.key}`", value, result.goal, result.note)
    runs = dict.fromkeys((one.day, one.commit, one.machine) for one in results)
    yield from ("", *(f"Measured {day}, commit {commit}, on {name}." for day, commit, name in runs))


def _is_other(result: Result) -> bool:
    known = (_EXPONENT, _CARRIED, "agents_", BESIDE)
    return not result.key.startswith(known)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _growth(row: Mapping[int, Result]) -> tuple[str, str]:
    """The exponent, and what it comes to; nothing where there is none."""
    values = {size: result.value for size, result in row.items()}
    slope = exponent(values) if values else None
    if slope is None:
        return "", ""
    return f"{slope:.2f}", _number(carried(values, slope), row[max(row)].unit)


def _number(value: float, unit: str) -> str:
    return f"{f'{value:.3g}' if abs(value) < 100 else f'{value:,.0f}'} {unit}".strip()
