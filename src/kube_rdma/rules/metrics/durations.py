"""How durations are counted: the bounds of histograms, and what the outcome of an act is called."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.model.metrics.families import Durations, MetricFamily

# Seconds. An attach takes tens of milliseconds, a kubelet gives up after minutes.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def none_yet(family: MetricFamily, labels: tuple[str, ...]) -> Durations:
    """A histogram that has counted nothing."""
    return Durations(family, labels, BOUNDS, (0,) * (len(BOUNDS) + 1), 0.0)


def observed(before: Durations, seconds: float) -> Durations:
    """The same with one more duration; a clock that went back counts as none."""
    place = bisect_left(before.bounds, seconds)
    counts = (count + (n == place) for n, count in enumerate(before.counts))
    return replace(before, counts=tuple(counts), total=before.total + max(0.0, seconds))


def outcome(error: BaseException | None) -> str:
    """How an act ended: ok, or by who has to do something now."""
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
