"""Benchmarks in a row: what each measures is shown at once, and no end of one is the end of all.

One that fails, measures nothing or takes too long has a row that says so. An interrupt ends the
run: all that was measured has been shown, and what was not is named.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import FrameType

from bench.checkout import by_other
from bench.context import Context
from bench.figures import Absent, Figure, Row, Show, attempt, sentence
from kube_base.errors import Unavailable

Measure = Callable[[Context], Iterable[Row]]
ALL_MEASURED, FAILED, INTERRUPTED = 0, 1, 130  # exit codes


class Run:
    """Shows what benchmarks measure, each within `limit` seconds."""

    def __init__(self, context: Context, show: Show, limit: float) -> None:
        self._context = context
        self._show = show
        self._limit = limit
        self._failed = False

    def all(self, benchmarks: Mapping[str, Measure]) -> int:
        """Run them one after the other; return the exit code."""
        left = list(benchmarks)
        try:
            while left:
                self._measure(left[0], benchmarks[left[0]])
                del left[0]
        except KeyboardInterrupt:
            self._absent(left[0], "interrupted before it was done")
            for name in left[1:]:
                self._absent(name, "interrupted before it began")
            return INTERRUPTED
        return FAILED if self._failed else ALL_MEASURED

    def _measure(self, name: str, measure: Measure) -> None:
        measured: list[Row] = []
        try:
            with (
                within(self._limit),
                closing(attempt(name, lambda: measure(self._context))) as rows,
            ):
                for row in rows:
                    measured.append(row)
                    self._row(name, row)
        except Unavailable as error:
            self._absent(name, sentence(error))
        else:
            if not measured:
                self._absent(name, "it measured nothing")
        for ratio in by_other(row for row in measured if isinstance(row, Figure)):
            self._row(name, ratio)

    def _absent(self, name: str, reason: str) -> None:
        self._row(name, Absent(name, reason))

    def _row(self, name: str, row: Row) -> None:
        self._failed |= isinstance(row, Absent) and row.failed
        self._show(name, row)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Unavailable in what takes longer, wherever the main thread is then."""
    over = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal over
        over = True
        # The one signal for which asyncio, too, ends what it runs.
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, end)
    # A shell without job control has what it puts into the background ignore this one.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except KeyboardInterrupt:
        if over:
            raise Unavailable(f"it was not done within {seconds:g} s") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, interrupts)
        signal.signal(signal.SIGALRM, before)
