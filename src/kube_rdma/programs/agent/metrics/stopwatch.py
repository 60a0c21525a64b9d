"""How long acts of the agent take: counted where they happen, read at a scrape.

The programs that attach networks and bind devices have one and need not know whether anybody asks:
counting costs some microseconds and no memory that grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kube_rdma.model.metrics.families import Durations, MetricFamily
from kube_rdma.rules.metrics.durations import none_yet, observed, outcome


class Stopwatch:
    """`clock` is in seconds and never goes back. For the threads of one event loop: its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._durations: dict[tuple[str, tuple[str, ...]], Durations] = {}

    @property
    def durations(self) -> tuple[Durations, ...]:
        """All histograms that have counted something."""
        return tuple(self._durations.values())

    @contextmanager
    def timed(self, family: MetricFamily, *labels: str) -> Iterator[None]:
        """Count how long the block takes; its outcome is the last label."""
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
