"""Watches the error counters of ports for some seconds: what rises is happening now.

doctor/evidence has it run beside all else that is read. A counter alone says nothing, for
it may have stood at its number for a year. doctor/rules/errors says which counters are errors. They
are those of the RDMA device in sysfs, and those of its interface, which its driver keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles, PortName
from kube_rdma.doctor.rules.errors import rises
from kube_rdma.model.doctor import ObservedErrors
from kube_rdma.model.metrics import CounterReadings
from kube_rdma.model.survey import Survey

_SYSFS = Path("/sys")

Pause = Callable[[float], Awaitable[None]]
Statistics = Callable[[], Mapping[PortName, Mapping[str, int]]]


def no_statistics() -> Mapping[PortName, Mapping[str, int]]:
    """Of no interface."""
    return {}


class InterfaceStatistics:
    """What the interfaces of a node's RDMA cards count, by port.

    `refused` is the first reason why one told nothing. Soft devices are passed over, for their
    interfaces are those of other cards.
    """

    def __init__(
        self, survey: Survey, ask: Callable[[str], Mapping[str, int]] = read_statistics
    ) -> None:
        """`ask` is read_statistics, or a recording of it."""
        self._interfaces = {
            (device.name, port.number): port.netdev
            for device in survey.devices
            for port in device.ports
            if device.pci and port.netdev
        }
        self._ask = ask
        self.refused: Unavailable | None = None

    def read(self) -> Mapping[PortName, Mapping[str, int]]:
        """All of them now; an interface that tells nothing is left out."""
        read = {}
        for port, interface in self._interfaces.items():
            try:
                read[port] = self._ask(interface)
            except Unavailable as error:
                self.refused = self.refused or error
        return read


async def watched_errors(
    seconds: float,
    root: Path = _SYSFS,
    pause: Pause = asyncio.sleep,
    statistics: Statistics = no_statistics,
) -> tuple[ObservedErrors, ...]:
    """Ports whose counters rise within so many seconds; raise Unavailable where none has any."""
    if not seconds:
        raise Unavailable("they were not watched, as --interval 0 wants it")
    files = CounterFiles(root, gid_tables=0)
    before = _merged(_ports(files.read()), statistics())
    if not any(before.values()):
        raise Unavailable("no port has counters")
    await pause(seconds)
    after = _merged(_ports(files.read()), statistics())
    return tuple(_risen(before, after, seconds))


def _merged(
    files: Mapping[PortName, Mapping[str, int]], statistics: Mapping[PortName, Mapping[str, int]]
) -> Mapping[PortName, Mapping[str, int]]:
    """Both by port; no driver has one name in both."""
    ports = {**files, **statistics}
    return {port: {**statistics.get(port, {}), **files.get(port, {})} for port in ports}


def _risen(
    before: Mapping[PortName, Mapping[str, int]],
    after: Mapping[PortName, Mapping[str, int]],
    seconds: float,
) -> Iterator[ObservedErrors]:
    for (device, port), counters in after.items():
        if grown := rises(before.get((device, port), {}), counters):
            yield ObservedErrors(device, port, seconds, grown)


def _ports(readings: CounterReadings) -> dict[PortName, Mapping[str, int]]:
    return {
        (device.name, port.number): {**port.counters, **port.hw_counters}
        for device in readings.devices
        for port in device.ports
    }
