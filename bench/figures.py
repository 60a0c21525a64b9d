"""A figure, what there is in place of one, and how both are shown: a row when it is known.

A benchmark may take an hour and end at any moment: what it has measured until then is out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass

import click

from kube_base.errors import KubeError


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `key` is stable in the JSON output, `goal` is for people."""

    key: str
    value: float
    unit: str
    goal: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A part without figures and why, in one sentence; not `failed`: nothing is amiss."""

    key: str
    reason: str
    failed: bool = True


Row = Figure | Absent
Show = Callable[[str, Row], None]  # a benchmark's name, and what came of it
WIDTHS = (10, 34, 12, 18)  # a longer cell moves its line, no other


def attempt(key: str, measure: Callable[[], Iterable[Row]]) -> Generator[Row, None, None]:
    """Give what a part measures, then why it went no further where it failed."""
    try:
        yield from measure()
    except KubeError as error:
        yield Absent(key, sentence(error))
    except Exception as error:  # noqa: BLE001  whatever a part does, the others are measured
        yield Absent(key, f"{type(error).__name__}: {sentence(error)}")


def despite(measure: Callable[[], object], rows: Callable[[], Iterable[Row]]) -> Iterator[Row]:
    """Measure in turns, then give `rows` of what was measured; also where that ended early."""
    try:
        measure()
    except BaseException:
        yield from rows()
        raise
    yield from rows()


def streamed(rows: AsyncIterator[Figure]) -> Iterator[Figure]:
    """Give figures of asyncio as they come; what their maker has open is closed in its own task."""
    queue: asyncio.Queue[Figure | None] = asyncio.Queue()

    async def make() -> None:
        try:
            async for row in rows:
                queue.put_nowait(row)
        finally:
            queue.put_nowait(None)

    async def end(task: asyncio.Task[None]) -> None:
        await task

    with asyncio.Runner() as runner:
        task = runner.get_loop().create_task(make())
        while row := runner.run(queue.get()):
            yield row
        runner.run(end(task))


def sentence(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or ["it did not say why"])[0]


def table() -> Show:
    """Print rows as a table for a terminal, the benchmark's name before its first one."""
    last = ""

    def show(name: str, row: Row) -> None:
        nonlocal last
        if not last:
            _line("BENCHMARK", "FIGURE", "VALUE", "GOAL", "")
        shown, last = "" if name == last else name, name
        if isinstance(row, Figure):
            number = f"{row.value:.3g}" if row.value < 100 else f"{row.value:.0f}"
            _line(shown, row.key, f"{number} {row.unit}".strip(), row.goal, row.note)
        else:
            _line(shown, row.key, "failed" if row.failed else "not run", "", row.reason)

    return show


def _line(*cells: str) -> None:
    *first, note = cells
    text = "  ".join(cell.ljust(width) for cell, width in zip(first, WIDTHS, strict=True))
    click.echo(f"{text}  {note}".rstrip())


def json_lines() -> Show:
    """Print rows as JSON, an object a line: benchmark, key, and the value or why there is none."""

    def show(name: str, row: Row) -> None:
        fields = asdict(row)
        if isinstance(row, Figure):
            fields["value"] = round(row.value, 4)
        click.echo(json.dumps({"benchmark": name, **fields}, ensure_ascii=False))

    return show
