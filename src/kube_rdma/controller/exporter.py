"""Metrics of a controller for Prometheus: whether it leads, how full pools are, what failed.

    Leadership ─ leads ─┐
    PoolStatusReporter ─┴─► ControllerExporter ◄─ GET ─ adapters/metrics/server

Every copy answers, and the one that leads alone knows of pools: so nothing is counted twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.metrics.exposition import CONTENT_TYPE, exposition
from kube_rdma.adapters.metrics.server import MetricsServer
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.series import address_series
from kube_rdma.model.ipam import Usage
from kube_rdma.model.metrics import MetricSeries

log = structlog.get_logger()


class ControllerExporter:
    """Metrics of one copy; ``await run()`` serves them. `leads` returns whether it leads now."""

    def __init__(self, host: str | None, port: int, leads: Callable[[], bool]) -> None:
        self._host, self._port, self._leads = host, port, leads
        self._usages: Mapping[str, Sequence[Usage]] = {}  # by pool
        self.server = MetricsServer(self.answer, CONTENT_TYPE)

    def reported(self, usages: Mapping[str, Sequence[Usage]]) -> None:
        """Take note of how full all pools are; the copy that leads calls it."""
        self._usages = dict(usages)

    async def run(self) -> None:
        """Serve until cancelled; raise Refused when the address cannot be had."""
        await self.server.listen(self._host, self._port)
        log.info("metrics served", address=self._host or "*", port=self.server.port)
        try:
            await asyncio.Event().wait()
        finally:
            await self.server.close()

    async def answer(self) -> bytes:
        """Return the text of one scrape."""
        return exposition(self._series())

    def _series(self) -> Iterator[MetricSeries]:
        for kind, count in sorted(bulkhead.object_failures.items()):
            yield MetricSeries(families.OBJECT_FAILURES, (kind,), count)
        leads = self._leads()
        yield MetricSeries(families.CONTROLLER_LEADS, (), leads)
        if leads:
            yield from address_series(self._usages)
