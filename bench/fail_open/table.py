"""Rows of waves as they come, and the score of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Lock

import click

from bench.fail_open.steps import Plan
from bench.fail_open.waves import Wave
from kube_rdma_tools.fail_open.judge import Score, Verdict, score

COLUMNS = {
    "way": 6,
    "fault": 8,
    "step": 10,
    "pods": 4,
    **{str(verdict): len(verdict) for verdict in Verdict},
    "recovered": 9,
    "seconds": 7,
}
REASON = 160  # characters of the commonest reason
SHOWN = (Verdict.WITHOUT, Verdict.SILENT, Verdict.UNCLEAR)  # a line for each pod


class Table:
    """What was measured; ways are measured side by side, so each row is written whole."""

    def __init__(self) -> None:
        self.waves: list[Wave] = []
        self.failures = 0
        self._lock = Lock()

    def begin(self) -> None:
        """Print the head."""
        click.echo(_line(tuple(COLUMNS)))

    def show(self, wave: Wave) -> None:
        """Print a wave's row; below it why pods were refused, and each that failed open."""
        plan = wave.plan
        counts = [str(wave.count(verdict)) for verdict in Verdict]
        cells = [plan.way.name, plan.fault, plan.step, str(len(wave.judgements)), *counts]
        row = _line([*cells, str(wave.recovered), f"{wave.seconds:.0f}"])
        with self._lock:
            self.waves.append(wave)
            click.echo("\n".join((row, *_notes(wave))))

    def failed(self, plan: Plan, why: str) -> None:
        """Print why a wave has no row."""
        with self._lock:
            self.failures += 1
            click.echo(f"{_line([plan.way.name, plan.fault, plan.step])}  not measured: {why}")

    @property
    def total(self) -> Score:
        """Of all waves."""
        return score([one for wave in self.waves for one in wave.judgements])


def _notes(wave: Wave) -> Iterator[str]:
    for one in wave.judgements:
        if one.verdict in SHOWN:
            late = f", came after {one.late} s" if one.late is not None else ""
            yield f"    {one.pod} {one.verdict}: {one.why}{late}"
    reasons = Counter(one.why for one in wave.judgements if one.verdict is Verdict.REFUSED)
    for why, count in reasons.most_common(1):
        yield f"    {count} refused: {why[:REASON]}"


def _line(cells: Sequence[str]) -> str:
    widths = COLUMNS.values()
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()
