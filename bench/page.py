"""`python -m bench.page`: writes the tables of docs/benchmarks.md and docs/scale.md.

From bench/results, behind bench/results.py. The tables have nothing that no run has measured; a
test compares them. The word `scale` has a page of its own (bench/scale_page.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import goals, scale_page
from bench.checkout import BESIDE
from bench.goals import beside, measured, missed, number
from bench.results import Result, last_of_each_key, newest, read
from kube_rdma_tools.page_tables import BEGIN, markdown_row, put

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
APART = ("scale", "scale-addresses")


def written(page: str, by_benchmark: Mapping[str, Sequence[Result]]) -> str:
    """Return the page with the tables of these figures between their marks."""
    page = put(page, BEGIN.format("goals"), "\n".join(goals.table(by_benchmark)))
    return put(page, BEGIN.format("figures"), "\n".join(tables(by_benchmark)))


def apart(results: Iterable[Result]) -> list[Result]:
    """Return the figures of the page of scale: its sizes may come from several runs."""
    return last_of_each_key(each for each in results if each.benchmark in APART)


def tables(by_benchmark: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Return the lines of a table for each benchmark."""
    for name, results in by_benchmark.items():
        if name in APART:
            continue
        yield from (f"### `make bench ARGS={name}`", _meaning(name), "")
        yield from _rows(results)
        yield from ("", *dict.fromkeys(map(measured, results)), "")


def _meaning(name: str) -> str:
    module = importlib.import_module(f"bench.{name.replace('-', '_')}")
    return (module.__doc__ or "").partition("\n")[0]


def _rows(results: Sequence[Result]) -> Iterator[str]:
    """Return a row for each figure of a run, with that of the other checkout where it has one."""
    before = {each.key: each for each in results if each.key.startswith(BESIDE)}
    heads = ("figure", "value", *(("before",) if before else ()), "goal", "more")
    yield markdown_row(heads)
    yield "|---" * len(heads) + "|"
    for result in results:
        if result.key.startswith(BESIDE):
            continue
        other = before.get(BESIDE + result.key)
        over = ", missed" if missed(result.value, result.goal) else ""
        others = (beside(result, other),) if before else ()
        cells = (f"`{result.key}`", number(result), *others, result.goal + over, result.note)
        yield markdown_row(cells)


def main() -> None:
    """Write the pages of this checkout."""
    results = read()
    page = written(PAGE.read_text(encoding="utf-8"), newest(results))
    PAGE.write_text(page, encoding="utf-8")
    scale = scale_page.PAGE.read_text(encoding="utf-8")
    scale_page.PAGE.write_text(scale_page.written(scale, apart(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
