"""Series as Prometheus reads them: its text format, version 0.0.4, by prometheus-client.

The oldest format that every scraper reads; OpenMetrics has nothing that these families need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kube_rdma.model.metrics.families import Durations, MetricFamily, MetricKind, MetricSeries

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTAL = "_total"


def exposition(values: Iterable[MetricSeries | Durations]) -> bytes:
    """The text; families in the order of their first series, a family without any left out."""
    return generate_latest(_Collected(values))


class _Collected(Collector):
    """What generate_latest asks, in the place of a registry."""

    def __init__(self, values: Iterable[MetricSeries | Durations]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """The families with their samples."""
        metrics: dict[str, Metric] = {}
        for value in self._values:
            metric = metrics.get(value.family.name)
            if metric is None:
                metric = metrics[value.family.name] = _metric(value.family)
            labels = dict(zip(value.family.labels, value.labels, strict=True))
            if isinstance(value, MetricSeries):
                metric.add_sample(value.family.name, labels, value.value)
            else:
                _add_histogram(metric, value, labels)
        yield from metrics.values()


def _metric(family: MetricFamily) -> Metric:
    """A family without samples; the library adds _total to the name of a counter itself."""
    is_counter = family.kind is MetricKind.COUNTER
    name = family.name.removesuffix(_TOTAL) if is_counter else family.name
    return Metric(name, family.meaning, str(family.kind))


def _add_histogram(metric: Metric, durations: Durations, labels: dict[str, str]) -> None:
    name, below = durations.family.name, 0
    bounds = (*map(floatToGoString, durations.bounds), "+Inf")
    for bound, count in zip(bounds, durations.counts, strict=True):
        below += count
        metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, below)
    metric.add_sample(f"{name}_sum", labels, durations.total)
    metric.add_sample(f"{name}_count", labels, below)
