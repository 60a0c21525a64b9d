"""Durations of the agent's acts: counted where they happen, read at a scrape.

The code that attaches networks to pods has a Stopwatch, and need not know whether anybody asks.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.metrics import Durations, MetricFamily

# Seconds. An attach takes tens of milliseconds, a kubelet gives up after minutes.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Stopwatch:
    """The histograms of times that blocks took; only one thread or event loop may time blocks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._durations: dict[tuple[str, tuple[str, ...]], Durations] = {}

    @property
    def durations(self) -> tuple[Durations, ...]:
        """Return all histograms that have counted something."""
        return tuple(self._durations.values())

    @contextmanager
    def timed(self, family: MetricFamily, *labels: str) -> Iterator[None]:
        """Time a block and count its seconds; the last label is how the block ended."""
        begin, error = self._clock(), None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            seconds = self._clock() - begin
            values = (*labels, outcome(error))
            key = (family.name, values)
            before = self._durations.get(key) or none_yet(family, values)
            self._durations[key] = observed(before, seconds)


def none_yet(family: MetricFamily, labels: tuple[str, ...]) -> Durations:
    """Return an empty histogram of a metric family with these labels."""
    return Durations(family, labels, BOUNDS, (0,) * (len(BOUNDS) + 1), 0.0)


def observed(before: Durations, seconds: float) -> Durations:
    """Return a histogram with one more duration; a negative one counts as 0 s."""
    place = bisect_left(before.bounds, seconds)
    counts = (count + (n == place) for n, count in enumerate(before.counts))
    return replace(before, counts=tuple(counts), total=before.total + max(0.0, seconds))


def outcome(error: BaseException | None) -> str:
    """Return how an act ended, by its error: ok, refused, unavailable, broken or failed."""
    match error:
        case None:
            return "ok"
        case Refused():
            return "refused"
        case Unavailable():
            return "unavailable"
        case Broken():
            return "broken"
        case _:
            return "failed"
