"""Serves a controller's metrics to Prometheus: whether it leads, how full pools are, what failed.

    Leadership ─ leads ─┐
    PoolStatusReporter ─┴─► ControllerExporter ◄─ GET ─ adapters/http_server

Every copy answers, but only the leader has series of pools, so no address is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.http_server import HttpServer
from kube_rdma.adapters.metrics.exposition import CONTENT_TYPE, exposition
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.series import address_series
from kube_rdma.model.ipam import Usage
from kube_rdma.model.metrics import MetricSeries


class ControllerExporter:
    """The exporter of one controller's metrics. `leads` returns whether it leads now."""

    def __init__(self, host: str | None, port: int, leads: Callable[[], bool]) -> None:
        self._host, self._port, self._leads = host, port, leads
        self._usages: Mapping[str, Sequence[Usage]] = {}  # by pool
        self.server = HttpServer({"/metrics": self.answer}, "--metrics-address", CONTENT_TYPE)

    def reported(self, usages: Mapping[str, Sequence[Usage]]) -> None:
        """Store how full all pools of addresses are, for the metrics; only the leader calls it."""
        self._usages = dict(usages)

    async def run(self) -> None:
        """Serve metrics until cancelled; raise Refused when the address cannot be used."""
        await self.server.run(self._host, self._port, "metrics served")

    async def answer(self) -> bytes:
        """Return the metrics as text, for one scrape."""
        return exposition(self._series())

    def _series(self) -> Iterator[MetricSeries]:
        for kind, count in sorted(bulkhead.object_failures.items()):
            yield MetricSeries(families.OBJECT_FAILURES, (kind,), count)
        leads = self._leads()
        yield MetricSeries(families.CONTROLLER_LEADS, (), leads)
        if leads:
            yield from address_series(self._usages)
