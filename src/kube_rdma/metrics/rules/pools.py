"""The series of pools of addresses: how many there are, and how many nodes hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_rdma.metrics.rules import families
from kube_rdma.model.ipam import Usage
from kube_rdma.model.metrics.families import MetricSeries


def address_series(usages: Iterable[Usage]) -> Iterator[MetricSeries]:
    """Two for each IP version and rail of a pool."""
    for usage in usages:
        rail = "" if usage.rail is None else str(usage.rail)
        labels = (usage.pool, str(usage.family.value), rail)
        yield MetricSeries(families.POOL_ADDRESSES, labels, usage.size)
        yield MetricSeries(families.POOL_HELD, labels, usage.held)
