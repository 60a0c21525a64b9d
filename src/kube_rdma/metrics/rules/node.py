"""The series of devices: those of the node by port, those of a container's own by its name.

Between adapters/kernel/sysfs/counters, which has the files, and the families of the table. A value
goes through as it is: one that wrapped is one that wrapped, which rate() of Prometheus takes for a
restart, and nothing is added up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kube_rdma.metrics.rules import families
from kube_rdma.model.metrics.families import (
    DeviceCounters,
    HolderName,
    MetricFamily,
    MetricNames,
    MetricSeries,
    PortCounters,
)
from kube_rdma.model.pcie import PcieLink

_BYTES = 125_000_000  # in a gigabit
_WRAP = 1 << 64
_MILLI = 1000
_GIGA = 1_000_000_000


def device_series(
    devices: Iterable[DeviceCounters], names: Collection[MetricNames]
) -> Iterator[MetricSeries]:
    """The series of the devices that the node sees, with the names that were chosen."""
    for device in devices:
        if MetricNames.NODE_EXPORTER in names:
            described = (device.name, device.board, device.firmware, device.adapter)
            yield MetricSeries(families.INFO, described, 1)
        if device.pcie:
            yield from _pcie(device.name, device.pcie)
        for port in device.ports:
            labels = (device.name, str(port.number))
            if MetricNames.NODE_EXPORTER in names:
                yield from _states(port, labels)
                yield from _counters(port, labels, families.OF_NODE)
            if MetricNames.VKE in names:
                yield from _counters(port, labels, families.OF_VKE)
            yield from _unnamed(port, labels, families.HW_COUNTER)
            if port.gids is not None:
                yield MetricSeries(families.GIDS, labels, port.gids)


def pod_device_series(holder: HolderName, device: DeviceCounters) -> Iterator[MetricSeries]:
    """The series of a device that is a container's own."""
    for port in device.ports:
        labels = (
            holder.namespace,
            holder.pod,
            holder.container,
            device.name,
            str(port.number),
        )
        if port.state is not None:
            yield MetricSeries(families.POD_STATE, labels, port.state)
        if port.rate_gbps is not None:
            yield MetricSeries(families.POD_RATE, labels, int(port.rate_gbps * _BYTES))
        yield from _counters(port, labels, families.OF_POD)
        yield from _unnamed(port, labels, families.POD_HW_COUNTER)


def _pcie(device: str, link: PcieLink) -> Iterator[MetricSeries]:
    yield MetricSeries(families.PCIE_LANES, (device,), link.width)
    yield MetricSeries(families.PCIE_MOST_LANES, (device,), link.most_width)
    yield MetricSeries(families.PCIE_SPEED, (device,), link.speed * _GIGA)
    yield MetricSeries(families.PCIE_MOST_SPEED, (device,), link.most_speed * _GIGA)


def _states(port: PortCounters, labels: tuple[str, ...]) -> Iterator[MetricSeries]:
    if port.state is not None:
        yield MetricSeries(families.STATE, labels, port.state)
    if port.physical_state is not None:
        yield MetricSeries(families.PHYSICAL_STATE, labels, port.physical_state)
    if port.rate_gbps is not None:
        yield MetricSeries(families.RATE, labels, int(port.rate_gbps * _BYTES))
    if families.LIFESPAN in port.hw_counters:
        seconds = port.hw_counters[families.LIFESPAN] // _MILLI  # node_exporter divides integers
        yield MetricSeries(families.LIFESPAN_SECONDS, labels, seconds)


def _counters(
    port: PortCounters, labels: tuple[str, ...], table: families.Table
) -> Iterator[MetricSeries]:
    for file, value in port.counters.items():
        if file in table and file not in families.HARDWARE:
            yield MetricSeries(table[file], labels, scaled(file, value))
    for file, value in port.hw_counters.items():
        if file in table and file in families.HARDWARE:
            yield MetricSeries(table[file], labels, value)


def _unnamed(
    port: PortCounters, labels: tuple[str, ...], family: MetricFamily
) -> Iterator[MetricSeries]:
    """Counters of drivers that no table has: all that EFA, bnxt and rxe say of their bytes."""
    for file, value in port.hw_counters.items():
        if file not in families.HARDWARE and file != families.LIFESPAN:
            yield MetricSeries(family, (*labels, file), value)


def scaled(file: str, value: int) -> int:
    """A counter in the unit of its family, with the wrap of 64 bits that node_exporter has."""
    return value * families.FACTOR % _WRAP if file in families.DATA else value
