"""`python -m bench.page`: writes the tables of docs/benchmarks.md and bench/results/README.md.

From bench/results, behind bench/results.py. The tables have nothing that no run has measured; a
test compares them. The word `scale` has tables of its own (bench/scale_page.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import goals, scale_page
from bench.checkout import BESIDE
from bench.goals import beside, measured, missed, number
from bench.results import FOLDER, Result, last_of_each_key, newest, read
from kube_rdma_tools.page_tables import BEGIN, markdown_row, put

PAGES = (Path(__file__).parents[1] / "docs" / "benchmarks.md", FOLDER / "README.md")
APART = ("scale", "scale-addresses")


def written(page: str, results: Sequence[Result]) -> str:
    """Return the page with the tables of these figures between those marks that it has."""
    by_benchmark = newest(results)
    # Sizes of `scale` may come from several runs.
    scale = last_of_each_key(each for each in results if each.benchmark in APART)
    made = {
        "goals": goals.table(by_benchmark),
        "figures": tables(by_benchmark),
        "scale": scale_page.tables(scale),
    }
    for name, lines in made.items():
        if BEGIN.format(name) in page:
            page = put(page, BEGIN.format(name), "\n".join(lines))
    return page


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
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
