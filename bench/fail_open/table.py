"""Rows of waves as they come, and the score of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Lock

import click

from bench.fail_open.steps import Plan
from bench.fail_open.waves import Wave
from kube_rdma_tools.fail_open.judge import Judgement, PodVerdict, Score, score

COLUMNS = {
    "way": 6,
    "fault": 8,
    "step": 10,
    "pods": 4,
    **{str(verdict): len(verdict) for verdict in PodVerdict},
    "recovered": 9,
    "seconds": 7,
}
ALL_STEPS = "all"  # of the sums
REASON = 160  # characters of the commonest reason
SHOWN = (PodVerdict.WITHOUT, PodVerdict.SILENT, PodVerdict.UNCLEAR)  # a line for each pod


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
        row = _row((plan.way.name, plan.fault, plan.step), wave.judgements, wave.seconds)
        with self._lock:
            self.waves.append(wave)
            click.echo("\n".join((row, *_notes(wave))))

    def sums(self) -> None:
        """Print a row for each way and fault, all of its steps together."""
        keys = dict.fromkeys((wave.plan.way.name, wave.plan.fault) for wave in self.waves)
        for way, fault in sorted(keys):
            waves = [w for w in self.waves if (w.plan.way.name, w.plan.fault) == (way, fault)]
            judgements = [one for wave in waves for one in wave.judgements]
            seconds = sum(wave.seconds for wave in waves)
            click.echo(_row((way, fault, ALL_STEPS), judgements, seconds))

    def failed(self, plan: Plan, why: str) -> None:
        """Print why a wave has no row."""
        with self._lock:
            self.failures += 1
            click.echo(f"{_line([plan.way.name, plan.fault, plan.step])}  not measured: {why}")

    @property
    def total(self) -> Score:
        """Of all waves."""
        return score([one for wave in self.waves for one in wave.judgements])


def _row(key: Sequence[str], judgements: Sequence[Judgement], seconds: float) -> str:
    total = score(judgements)
    counts = [total.pods, *(total.by_verdict.get(one, 0) for one in PodVerdict), total.recovered]
    return _line([*key, *map(str, counts), f"{seconds:.0f}"])


def _notes(wave: Wave) -> Iterator[str]:
    for judged in wave.judgements:
        if judged.verdict in SHOWN:
            late = f", came after {judged.late} s" if judged.late is not None else ""
            yield f"    {judged.pod} {judged.verdict}: {judged.why}{late}"
    reasons = Counter(one.why for one in wave.judgements if one.verdict is PodVerdict.REFUSED)
    for why, count in reasons.most_common(1):
        yield f"    {count} refused: {why[:REASON]}"


def _line(cells: Sequence[str]) -> str:
    widths = COLUMNS.values()
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()
