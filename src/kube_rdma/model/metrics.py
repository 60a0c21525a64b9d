"""What the agent exports to Prometheus: families of series, their values, what was read for them.

adapters/kernel/sysfs/counters reads DeviceCounters, metrics/rules makes series of them and of what
the agent knows, adapters/metrics writes those out as Prometheus reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import PciAddress, PcieLink


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


# What moves over RDMA devices: totals of one scrape of an agent, and rates between two.


class ScrapedSample(Frozen):
    """One line of a scrape: the series' name, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float


class TrafficKey(Frozen):
    """Whose traffic: of a port of the node (`pod` empty), or of a pod's device."""

    device: str
    port: str
    namespace: str = ""
    pod: str = ""
    container: str = ""


class TrafficTotals(Frozen):
    """Counters of one device's port, None where its driver has none. Data is in bytes.

    `link` is the link's rate in bytes a second, `state` the number of struct ib_port_attr.
    `shared`: others open the device too, so that nobody can say whose traffic it was.
    """

    received: float | None = None
    sent: float | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    link: float | None = None
    state: int | None = None
    shared: bool = False


class AgentScrape(Frozen):
    """What one agent said, or its `problem` if it did not answer; `when` by its node's clock."""

    node: str
    when: float
    totals: Mapping[TrafficKey, TrafficTotals] = field(default_factory=dict)
    problem: str = ""


class TrafficRate(Frozen):
    """One row: bytes a second each way, None where not known; errors a second by their counter."""

    node: str
    key: TrafficKey
    now: TrafficTotals
    received: float | None = None
    sent: float | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def both(self) -> float:
        """Both directions together; what is not known counts as nothing."""
        return (self.received or 0.0) + (self.sent or 0.0)

    @property
    def load(self) -> float | None:
        """The busier direction's share of the link, 0 to 1."""
        busier = max(self.received or 0.0, self.sent or 0.0)
        return busier / self.now.link if self.now.link else None
