"""What the agent exports to Prometheus: families of series, their values, what was read for them.

adapters/kernel/sysfs/counters reads DeviceCounters, metrics/rules makes series of them and of what
the agent knows, adapters/metrics writes those out as Prometheus reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pcie import PcieLink


class MetricKind(StrEnum):
    """A family's type, as the text format spells it after # TYPE.

    UNTYPED: a driver says neither whether its counter only grows nor in which unit it counts.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    UNTYPED = "untyped"


class MetricFamily(Frozen):
    """A name with its type and its labels; `source` is where its values come from, for people."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str
    source: str


class MetricSeries(Frozen):
    """One value of a family; `labels` are the values of its labels, in their order."""

    family: MetricFamily
    labels: tuple[str, ...]
    value: float


class Durations(Frozen):
    """What a histogram has counted: `counts` for each bound, and last for what is beyond them all.

    `total` is the sum of all durations, in seconds.
    """

    family: MetricFamily
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class MetricNames(StrEnum):
    """Whose names the counters of the node's ports have; kube-rdma's own are there in any case."""

    NODE_EXPORTER = "node-exporter"
    VKE = "vke"


class PortCounters(Frozen):
    """What the files of a port say; None and missing entries are files that say nothing.

    `counters` and `hw_counters` are by the names of files, unscaled, 64 bits each. `gids` counts
    the used entries of the port's GID table.
    """

    number: int
    state: int | None = None  # enum ib_port_state
    physical_state: int | None = None  # enum ib_port_phys_state
    rate_gbps: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    hw_counters: Mapping[str, int] = field(default_factory=dict)
    gids: int | None = None


class DeviceCounters(Frozen):
    """An RDMA device with its ports; `pci` is the function that it sits on.

    `pcie` is None for virtual functions, which have no link, and where the kernel does not tell.
    """

    name: str
    ports: tuple[PortCounters, ...] = ()
    board: str = ""
    firmware: str = ""
    adapter: str = ""  # sysfs hca_type
    pci: PciAddress | None = None
    pcie: PcieLink | None = None


class CounterReadings(Frozen):
    """The devices of a namespace; `unread` counts files that could not be read or understood."""

    devices: tuple[DeviceCounters, ...] = ()
    unread: int = 0


class PodPlaceCounters(Frozen):
    """The devices that were read inside a pod's namespace, by the inode of that namespace."""

    inode: int
    readings: CounterReadings


class HolderName(Frozen):
    """A container by the labels that its series have."""

    namespace: str
    pod: str
    container: str
