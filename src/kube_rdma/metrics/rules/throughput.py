"""Finds the traffic in an agent's series, and turns counters of two scrapes into rates.

It stands between adapters/metrics/local and metrics/views. A counter that is lower than it was, or
that one scrape lacks, has no rate in this interval. It began anew, wrapped, or its device went.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.metrics.rules import families
from kube_rdma.model import metrics as model

# Files of counters by their role. Others than mlx5's and hfi1's are in kube_rdma_hw_stat: rxe has
# rcvd_bytes (drivers/infiniband/sw/rxe/rxe_hw_counters.c), EFA and bnxt_re rx_bytes.
_RECEIVED = ("port_rcv_data", "port_rcv_data_64", "rcvd_bytes", "rx_bytes")
_SENT = ("port_xmit_data", "port_xmit_data_64", "sent_bytes", "tx_bytes")
_ERROR = re.compile(r"err|drop|discard|timeout|out_of_|exceeded|link_downed|nak|icrc")
_FILES = {
    family.name: file
    for table in (families.OF_VKE, families.OF_NODE, families.OF_POD)
    for file, family in table.items()
}
_UNNAMED = frozenset({families.HW_COUNTER.name, families.POD_HW_COUNTER.name})
_STATES = frozenset({families.STATE.name, families.POD_STATE.name})
_LINKS = frozenset({families.RATE.name, families.POD_RATE.name})


def totals(samples: Iterable[model.ScrapedSample]) -> dict[model.TrafficKey, model.TrafficTotals]:
    """Return the traffic totals of one scrape, by port of the node and by device of a pod."""
    read: dict[model.TrafficKey, model.TrafficTotals] = {}
    for sample in samples:
        if sample.name == families.POD_DEVICE.name:
            # One that a container shares with others has a row, and no figures of its own.
            if sample.labels.get("access") == "shared":
                read[_key(sample.labels)] = model.TrafficTotals(shared=True)
        elif change := _change(sample, read):
            read.update([change])
    return read


def rates(before: model.AgentScrape | None, now: model.AgentScrape) -> Iterator[model.TrafficRate]:
    """Yield a row for each device of `now`, with rates where `before` has the device, too."""
    seconds = now.when - before.when if before else 0.0
    earlier: Mapping[model.TrafficKey, model.TrafficTotals] = before.totals if before else {}
    for key, current in now.totals.items():
        row = model.TrafficRate(now.node, key, current)
        first = earlier.get(key)
        if first is None or seconds <= 0:
            yield row
            continue
        errors = {
            name: pace
            for name, count in current.errors.items()
            if (pace := _rate(first.errors.get(name), count, seconds))
        }
        yield replace(
            row,
            received=_rate(first.received, current.received, seconds),
            sent=_rate(first.sent, current.sent, seconds),
            errors=errors,
        )


def busiest(rows: Iterable[model.TrafficRate]) -> Sequence[model.TrafficRate]:
    """Return the rows by traffic, then by errors, most first; equal ones by name."""

    def place(row: model.TrafficRate) -> tuple[float | str, ...]:
        key, errors = row.key, sum(row.errors.values())
        return (-row.both, -errors, row.node, key.namespace, key.pod, key.device, key.port)

    return sorted(rows, key=place)


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    if before is None or now is None or now < before:
        return None
    return (now - before) / seconds


def _key(labels: Mapping[str, str]) -> model.TrafficKey:
    return model.TrafficKey(
        labels.get("device", ""),
        labels.get("port", ""),
        labels.get("namespace", ""),
        labels.get("pod", ""),
        labels.get("container", ""),
    )


def _change(
    sample: model.ScrapedSample, read: Mapping[model.TrafficKey, model.TrafficTotals]
) -> tuple[model.TrafficKey, model.TrafficTotals] | None:
    """Return a device's totals with one sample added; None if the sample is not about traffic."""
    key = _key(sample.labels)
    before = read.get(key, model.TrafficTotals())
    if sample.name in _STATES:
        return key, replace(before, state=int(sample.value))
    if sample.name in _LINKS:
        return key, replace(before, link=sample.value)
    named = sample.labels.get("counter", "") if sample.name in _UNNAMED else ""
    file = named or _FILES.get(sample.name, "")
    if file in _RECEIVED:
        return key, replace(before, received=sample.value)
    if file in _SENT:
        return key, replace(before, sent=sample.value)
    if file and _ERROR.search(file):
        return key, replace(before, errors={**before.errors, file: sample.value})
    return (key, before) if file else None
