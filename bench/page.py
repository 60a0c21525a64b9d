"""`python -m bench.page`: writes the tables of docs/benchmarks.md and docs/scale.md.

From bench/results, behind bench/results.py. The tables have nothing that no run has measured; a
test compares them. `scale` and `scale-addresses` have a page of their own (bench/scale_page.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from bench import scale_page
from bench.results import Result, newest, read
from kube_rdma_tools.page_tables import BEGIN, put

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
APART = ("scale", "scale-addresses")


def written(page: str, by_benchmark: Mapping[str, Sequence[Result]]) -> str:
    """Return the page with the tables of these figures between its two marks."""
    return put(page, BEGIN.format("figures"), tables(by_benchmark).rstrip("\n"))


def tables(by_benchmark: Mapping[str, Sequence[Result]]) -> str:
    """Return a table for each benchmark, and one that says what the letters of machines mean."""
    by_benchmark = {name: group for name, group in by_benchmark.items() if name not in APART}
    results = [result for group in by_benchmark.values() for result in group]
    machines = sorted({result.machine for result in results})
    letters = {machine: chr(ord("A") + number) for number, machine in enumerate(machines)}
    legend = "".join(f"| {letters[name]} | {name} |\n" for name in machines)
    sections = (_section(name, group, letters) for name, group in by_benchmark.items())
    return "\n".join((*sections, f"| letter | machine |\n|---|---|\n{legend}"))


def _section(name: str, results: Sequence[Result], letters: Mapping[str, str]) -> str:
    module = importlib.import_module(f"bench.{name.replace('-', '_')}")
    meaning = (module.__doc__ or "").partition("\n")[0]
    rows = "".join(f"{line}\n" for line in _rows(results, letters))
    return f"### `make bench ARGS={name}`\n{meaning}\n\n{rows}"


def _rows(results: Sequence[Result], letters: Mapping[str, str]) -> Iterator[str]:
    yield "| figure | value | goal | more | day, commit, machine |"
    yield "|---|---|---|---|---|"
    for result in results:
        number = f"{result.value:.3g}" if abs(result.value) < 100 else f"{result.value:,.0f}"
        cells = (
            f"`{result.key}`",
            f"{number} {result.unit}".strip(),
            result.goal,
            result.note,
            f"{result.day}, {result.commit}, {letters[result.machine]}",
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write the pages of this checkout."""
    figures = newest(read())
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    of_scale = scale_page.written(
        scale_page.PAGE.read_text(encoding="utf-8"),
        [*chain(*(figures.get(one, ()) for one in APART))],
    )
    scale_page.PAGE.write_text(of_scale, encoding="utf-8")


if __name__ == "__main__":
    main()
