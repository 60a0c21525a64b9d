"""Writes series as Prometheus reads them: its text format, version 0.0.4, by prometheus-client.

OpenMetrics has nothing that these families need. Lines of gauges and counters are kept: the library
writes a line when its series is new, later only changed values are written. Of a node with 250
functions a scrape has 21,000 lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kube_rdma.model.metrics import Durations, MetricKind, MetricSeries

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTAL = "_total"
_number: Callable[[float], str] = floatToGoString
_HEAD = 2  # lines of a family before its series: # HELP and # TYPE


def exposition(values: Iterable[MetricSeries | Durations]) -> bytes:
    """Return metrics in Prometheus' text format; families in the order of their first series."""
    return generate_latest(_Collected(values))


class KeptExposition:
    """A writer of Prometheus' text format that reuses the last lines of unchanged values."""

    def __init__(self) -> None:
        self._families: dict[str, _KeptFamily] = {}

    def text(self, values: Iterable[MetricSeries | Durations]) -> bytes:
        """Return the same as exposition(); forget the lines of series that are missing."""
        families: dict[str, list[MetricSeries | Durations]] = {}
        for value in values:
            families.setdefault(value.family.name, []).append(value)
        before = self._families
        self._families = {name: before.get(name) or _KeptFamily() for name in families}
        return b"".join(self._families[name].text(of) for name, of in families.items())


class _KeptFamily:
    """The last lines of one metric family; lines of histograms are not kept."""

    def __init__(self) -> None:
        self._head = ""
        self._lines: dict[tuple[str, ...], tuple[float, str]] = {}  # value and line, by labels

    def text(self, values: Sequence[MetricSeries | Durations]) -> bytes:
        series = [value for value in values if isinstance(value, MetricSeries)]
        if len(series) < len(values):
            return exposition(values)
        new = [one for one in series if one.labels not in self._lines]
        if new:  # the library writes them, and escapes what labels hold
            *head_and_lines, _ = exposition(new).decode().split("\n")
            self._head = "".join(f"{line}\n" for line in head_and_lines[:_HEAD])
            for sample, line in zip(new, head_and_lines[_HEAD:], strict=True):
                self._lines[sample.labels] = (sample.value, f"{line}\n")
        lines, text = self._lines, [self._head]
        for sample in series:
            value, line = lines[sample.labels]
            if value != sample.value:
                line = f"{line[: line.rindex(' ')]} {_number(sample.value)}\n"
                lines[sample.labels] = (sample.value, line)
            text.append(line)
        if len(lines) > len(series):
            self._lines = {one.labels: lines[one.labels] for one in series}
        return "".join(text).encode()


class _Collected(Collector):
    """A collector that passes given series to generate_latest of the Prometheus client."""

    def __init__(self, values: Iterable[MetricSeries | Durations]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families with their samples."""
        metrics: dict[str, Metric] = {}
        for value in self._values:
            metric = metrics.get(value.family.name)
            if metric is None:
                is_counter = value.family.kind is MetricKind.COUNTER
                # The library adds _total to the name of a counter itself.
                name = value.family.name.removesuffix(_TOTAL if is_counter else "")
                metric = Metric(name, value.family.meaning, str(value.family.kind))
                metrics[value.family.name] = metric
            labels = dict(zip(value.family.labels, value.labels, strict=True))
            if isinstance(value, MetricSeries):
                metric.add_sample(value.family.name, labels, value.value)
            else:
                _add_histogram(metric, value, labels)
        yield from metrics.values()


def _add_histogram(metric: Metric, durations: Durations, labels: dict[str, str]) -> None:
    name, below = durations.family.name, 0
    bounds = (*map(floatToGoString, durations.bounds), "+Inf")
    for bound, count in zip(bounds, durations.counts, strict=True):
        below += count
        metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, below)
    metric.add_sample(f"{name}_sum", labels, durations.total)
    metric.add_sample(f"{name}_count", labels, below)
