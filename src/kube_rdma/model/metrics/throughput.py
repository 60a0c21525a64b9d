"""What moves over RDMA devices: totals of one scrape of an agent, and rates between two.

adapters/metrics/samples reads them, metrics/rules/throughput computes, `kube-rdma top` shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen, field


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
