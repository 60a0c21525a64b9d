"""What a doctor reads of a machine that no file of sysfs has, also from beside a recorded tree.

doctor/evidence reads it of the machine it runs on. `kube-rdma devices --record` writes it
beside the tree, and `kube-rdma doctor --sysfs` reads it back, so that a recorded machine gives the
findings of the live one. It is flow control, which netlink tells, the counters that rise while they
are watched, and whether the machine is a virtual one. The file is a bundle of these parts alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.netlink.dcb import read_flow_control
from kube_rdma.doctor.errors import InterfaceStatistics, Statistics, watched_errors
from kube_rdma.doctor.rules.flow_control import roce_interfaces
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.doctor import Observation, ObservedErrors, ObservedFlowControl
from kube_rdma.model.survey import Survey

FILE = "doctor.json"

FlowControl = Callable[[Iterable[tuple[str, str]]], tuple[ObservedFlowControl, ...]]
Watch = Callable[[float, Statistics], Awaitable[tuple[ObservedErrors, ...]]]


async def _watched(seconds: float, statistics: Statistics) -> tuple[ObservedErrors, ...]:
    return await watched_errors(seconds, statistics=statistics)


class UnfiledDoors(Frozen):
    """Who is asked for these parts; by default the kernel of this machine."""

    flow_control: FlowControl = read_flow_control
    watch: Watch = _watched
    statistics: Callable[[str], Mapping[str, int]] = read_statistics
    hypervisor: Callable[[], bool] = proc.read_hypervisor


KERNEL = UnfiledDoors()


async def read_unfiled(
    survey: Survey, interval: float, doors: UnfiledDoors = KERNEL
) -> Observation:
    """These parts now, the counters watched for `interval` seconds; what was not seen is named."""
    reader = PartReader()
    statistics = InterfaceStatistics(survey, doors.statistics)
    errors = await reader.asked("errors", lambda: doors.watch(interval, statistics.read))
    if statistics.refused:
        reader.keep("statistics of interfaces", statistics.refused)
    interfaces = roce_interfaces(survey)
    return Observation(
        "",
        errors=errors,
        flow_control=reader.part("flow_control", lambda: doors.flow_control(interfaces)),
        virtual_machine=reader.part("virtual_machine", doors.hypervisor),
        not_seen=tuple(reader.not_seen),
    )


def with_unfiled(seen: Observation, unfiled: Observation) -> Observation:
    """What was seen otherwise, with these parts."""
    return replace(
        seen,
        errors=unfiled.errors,
        flow_control=unfiled.flow_control,
        virtual_machine=unfiled.virtual_machine,
        not_seen=(*seen.not_seen, *unfiled.not_seen),
    )


def write_unfiled(unfiled: Observation, tree: Path) -> None:
    """Write these parts beside a recorded tree; raise Refused."""
    bundle.write(unfiled, tree / FILE)


def recorded_unfiled(tree: Path) -> Observation | None:
    """Those of a recorded tree; None where it has none. Raise Refused for another file."""
    path = tree / FILE
    return bundle.read(path) if path.exists() else None
