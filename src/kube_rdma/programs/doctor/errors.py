"""Watches the error counters of ports for some seconds: what rises is happening now.

programs/doctor/evidence has it run beside all else that is read. A counter alone says nothing, for
it may have stood at its number for a year. rules/doctor/errors says which counters are errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles
from kube_rdma.model.doctor import ObservedErrors
from kube_rdma.model.metrics.families import CounterReadings
from kube_rdma.rules.doctor.errors import rises

_SYSFS = Path("/sys")

Pause = Callable[[float], Awaitable[None]]


async def watched_errors(
    seconds: float, root: Path = _SYSFS, pause: Pause = asyncio.sleep
) -> tuple[ObservedErrors, ...]:
    """Ports whose counters rise within so many seconds; raise Unavailable where none has any."""
    if not seconds:
        raise Unavailable("they were not watched, as --interval 0 wants it")
    files = CounterFiles(root, gid_tables=0)
    before = _ports(files.read())
    if not any(before.values()):
        raise Unavailable("no port has counters")
    await pause(seconds)
    return tuple(_risen(before, _ports(files.read()), seconds))


def _risen(
    before: Mapping[tuple[str, int], Mapping[str, int]],
    after: Mapping[tuple[str, int], Mapping[str, int]],
    seconds: float,
) -> Iterator[ObservedErrors]:
    for (device, port), counters in after.items():
        if grown := rises(before.get((device, port), {}), counters):
            yield ObservedErrors(device, port, seconds, grown)


def _ports(readings: CounterReadings) -> dict[tuple[str, int], Mapping[str, int]]:
    return {
        (device.name, port.number): {**port.counters, **port.hw_counters}
        for device in readings.devices
        for port in device.ports
    }
