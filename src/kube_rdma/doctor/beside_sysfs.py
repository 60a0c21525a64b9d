"""Reads the parts of an Observation that no file of a recorded sysfs tree has.

They are flow control, whether the machine is virtual, and the error counters of ports. Counters are
read twice with some seconds between: a counter may have stood at its number for a year.
hardware/rules/error_counters says which of them are errors.

doctor/evidence reads them beside all else; `devices --record` writes them as a file into the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.netlink.dcb import read_flow_control
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles
from kube_rdma.doctor.recorded import FILE
from kube_rdma.doctor.rules.errors import roce_interfaces
from kube_rdma.hardware.error_counters import InterfaceStatistics, PortCounters, port_counters
from kube_rdma.hardware.rules.error_counters import full, rises
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.doctor import Observation, ObservedErrors, ObservedFlowControl
from kube_rdma.model.survey import Survey

Statistics = Callable[[], PortCounters]


async def watched_errors(
    seconds: float,
    statistics: Statistics = dict,
    *,
    root: Path = Path("/sys"),
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[ObservedErrors, ...]:
    """Read the counters of ports twice, `seconds` apart; return the ports with rising or full ones.

    Raise Unavailable where `seconds` is 0, and where no port has counters.
    """
    if not seconds:
        raise Unavailable("they were not watched, as --interval 0 wants it")
    files = CounterFiles(root, gid_tables=0)
    before = port_counters(files, statistics())
    if not any(before.values()):
        raise Unavailable("no port has counters")
    await pause(seconds)
    after = port_counters(files, statistics())
    read = ((port, before.get(port, {}), now) for port, now in after.items())
    seen = (
        ObservedErrors(*port, seconds, rises(was, now), full(was, now)) for port, was, now in read
    )
    return tuple(one for one in seen if one.rises or one.full)


class KernelReaders(Frozen):
    """Functions that read what recorded sysfs trees lack; by default they ask this machine."""

    flow_control: Callable[[Iterable[tuple[str, str]]], tuple[ObservedFlowControl, ...]] = (
        read_flow_control
    )
    watch: Callable[[float, Statistics], Awaitable[tuple[ObservedErrors, ...]]] = watched_errors
    statistics: Callable[[str], Mapping[str, int]] = read_statistics
    hypervisor: Callable[[], bool] = proc.read_hypervisor


async def read_beside_sysfs(
    survey: Survey, interval: float, readers: KernelReaders | None = None
) -> Observation:
    """Return an Observation of only error counters, flow control and whether this is a VM.

    The counters are watched for `interval` seconds. A part that cannot be read is named in
    `not_seen`.
    """
    readers = readers or KernelReaders()
    reader = PartReader()
    statistics = InterfaceStatistics(survey.devices, readers.statistics)
    errors = await reader.asked("errors", lambda: readers.watch(interval, statistics.read))
    if statistics.refused:
        reader.keep("statistics of interfaces", statistics.refused)
    interfaces = roce_interfaces(survey)
    return Observation(
        "",
        errors=errors,
        flow_control=reader.part("flow_control", lambda: readers.flow_control(interfaces)),
        virtual_machine=reader.part("virtual_machine", readers.hypervisor),
        not_seen=tuple(reader.not_seen),
    )


def write_beside_sysfs(beside: Observation, tree: Path) -> None:
    """Write an Observation of what sysfs lacks into a recorded tree.

    Raise Refused where the file exists already or cannot be written.
    """
    bundle.write(beside, tree / FILE)
