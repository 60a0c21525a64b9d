"""Metrics for Prometheus: families of series, their values, and the counters read for them.

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
    """A metric: its name, type, labels and meaning. Its series are MetricSeries."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str  # HELP
    source: str  # of its values, for people


class MetricSeries(Frozen):
    """A series of a metric: the values of its labels, and its value."""

    family: MetricFamily
    labels: tuple[str, ...]  # values of the family's labels, in their order
    value: float


class Durations(Frozen):
    """A histogram of durations in seconds, with its labels."""

    family: MetricFamily
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # for each bound, and last beyond them all
    total: float  # of all durations


class MetricNames(StrEnum):
    """The exporters whose names the node's port metrics have besides kube-rdma's own."""

    NODE_EXPORTER = "node-exporter"
    VKE = "vke"


class PortCounters(Frozen):
    """The counters and the state of a port.

    None and missing entries are files without a value.
    """

    number: int
    state: int | None = None  # enum ib_port_state
    physical_state: int | None = None  # enum ib_port_phys_state
    rate_gbps: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)  # by file, unscaled, of 64 bits
    hw_counters: Mapping[str, int] = field(default_factory=dict)  # the same
    gids: int | None = None  # used entries of the port's GID table


class DeviceCounters(Frozen):
    """The counters of an RDMA device, port by port."""

    name: str
    ports: tuple[PortCounters, ...] = ()
    board: str = ""
    firmware: str = ""
    adapter: str = ""  # sysfs hca_type
    pci: PciAddress | None = None  # the function that it sits on
    # None for virtual functions, which have no link, and where the kernel has no files of it.
    pcie: PcieLink | None = None


class CounterReadings(Frozen):
    """The counters of all RDMA devices in a network namespace.

    `unread` counts files that could not be read or understood.
    """

    devices: tuple[DeviceCounters, ...] = ()
    unread: int = 0


class PodPlaceCounters(Frozen):
    """The counters of the RDMA devices that were read inside a pod's network namespace."""

    inode: int  # of the namespace
    readings: CounterReadings


class HolderName(Frozen):
    """The labels that name a container in series."""

    namespace: str
    pod: str
    container: str


# Traffic of RDMA devices: totals of one scrape of an agent, and rates between two.


class ScrapedSample(Frozen):
    """A sample of a scrape: the name of the metric, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float


class TrafficKey(Frozen):
    """The key of traffic: a port of the node (`pod` is empty), or a device of a pod."""

    device: str
    port: str
    namespace: str = ""
    pod: str = ""
    container: str = ""


class TrafficTotals(Frozen):
    """The traffic counters of a device's port, in bytes; None where its driver has none."""

    received: float | None = None
    sent: float | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    link: float | None = None  # rate in bytes a second
    state: int | None = None  # of struct ib_port_attr
    shared: bool = False  # others open the device too: nobody knows whose traffic it was


class AgentScrape(Frozen):
    """The result of a scrape of one agent: totals, or the `problem` why there are none."""

    node: str
    when: float  # by its node's clock
    totals: Mapping[TrafficKey, TrafficTotals] = field(default_factory=dict)
    problem: str = ""


class TrafficRate(Frozen):
    """The traffic of a device: bytes a second each way (None: not known), errors by counter."""

    node: str
    key: TrafficKey
    now: TrafficTotals
    received: float | None = None
    sent: float | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def both(self) -> float:
        """Return the bytes a second in both directions together; an unknown rate counts as 0."""
        return (self.received or 0.0) + (self.sent or 0.0)

    @property
    def load(self) -> float | None:
        """Return the busier direction's share of the link, 1 for all of it.

        Return None if no rate, or no speed of the link, is known.
        """
        known = [rate for rate in (self.received, self.sent) if rate is not None]
        return max(known) / self.now.link if self.now.link and known else None
