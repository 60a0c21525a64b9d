"""Panels of the dashboards: what is asked of Prometheus, and how the answer is drawn.

metrics/rules/dashboards makes boards of them. A panel whose colours or lines begin at a number that
nobody measured says so in `guess`, which people read behind the panel's title.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.metrics.rules import families
from kube_rdma.model.metrics import MetricFamily

_RANGE = "[$__rate_interval]"
_WELL, _ILL, _NOTE = "blue", "orange", "yellow"  # told apart without red and green
# What `kube-rdma top` calls errors, of counters that mlx5 and hfi1 have; none of congestion.
_ERRORS = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "symbol_error"),
    *("port_rcv_errors", "port_xmit_discards", "link_downed"),
)


class PanelLevel(Frozen):
    """Where a colour of Grafana begins, in the unit of the panel."""

    begin: float
    colour: str


class PanelGrid(Frozen):
    """Labels whose values are the rows and columns of a grid, and what values are called in it.

    `names` has text and colour of a value; other values are numbers.
    """

    rows: str
    columns: str
    names: tuple[tuple[int, str, str], ...] = ()


class PanelPlan(Frozen):
    """A picture: what is drawn, with which legend, in which of Grafana's units.

    `guess` is a sentence about levels that nobody measured.
    """

    title: str
    expression: str
    legend: str
    unit: str = "short"
    kind: str = "timeseries"
    grid: PanelGrid | None = None
    levels: tuple[PanelLevel, ...] = ()
    guess: str = ""


def node_panels() -> tuple[PanelPlan, ...]:
    """Nodes that are chosen, one by one."""
    on = '{instance=~"$instance"}'
    used, shares = families.USED_SHARES.name, families.SHARES.name
    return (
        PanelPlan("Data received", _rate("port_rcv_data", on), "{{instance}} {{device}}", "Bps"),
        PanelPlan("Data sent", _rate("port_xmit_data", on), "{{instance}} {{device}}", "Bps"),
        PanelPlan(
            "Data sent, as part of the link's rate",
            f"{_rate('port_xmit_data', on)} / on (instance, device, port) {families.RATE.name}{on}",
            "{{instance}} {{device}}",
            "percentunit",
        ),
        PanelPlan(
            "Shares in use, as part of all shares",
            f"{used}{on} / {shares}{on}",
            "{{instance}} {{resource}}",
            "percentunit",
        ),
        PanelPlan(
            "Unhealthy cards",
            f"{families.CARD_HEALTHY.name}{on} == 0",
            "{{instance}} {{name}}",
            kind="table",
        ),
        PanelPlan(
            "Used entries of GID tables", f"{families.GIDS.name}{on}", "{{instance}} {{device}}"
        ),
        *_duration_panels(),
        *_card_panels(on),
        *_agent_panels(on),
    )


def _duration_panels() -> tuple[PanelPlan, ...]:
    """Where the time of a pod's networks goes."""
    return (
        PanelPlan(
            "Time to attach a pod's networks (95th percentile)",
            _slowest(families.ATTACH, ', operation="add"'),
            "seconds",
            "s",
        ),
        PanelPlan(
            "Time to get a pod's addresses (95th percentile)",
            _slowest(families.IPAM),
            "seconds",
            "s",
        ),
        PanelPlan(
            "Time to bind a pod's shares to devices (95th percentile)",
            _slowest(families.LATE_BINDING),
            "seconds",
            "s",
        ),
    )


def _card_panels(on: str) -> tuple[PanelPlan, ...]:
    """How cards are: their PCIe links, and how often their health changes."""
    return (
        PanelPlan(
            "PCIe transfers, as part of what card and slot can",
            _pcie_part(on),
            "{{instance}} {{device}}",
            "percentunit",
        ),
        PanelPlan(
            "PCIe lanes in use", f"{families.PCIE_LANES.name}{on}", "{{instance}} {{device}}"
        ),
        PanelPlan(
            "Changes of a card's health in an hour",
            f"increase({families.HEALTH_CHANGES.name}{on}[1h])",
            "{{instance}} {{card}} healthy={{healthy}}",
        ),
    )


def _agent_panels(on: str) -> tuple[PanelPlan, ...]:
    """How the agents themselves are."""
    return (
        PanelPlan(
            "Failures of parts of the agents in an hour",
            f"increase({families.PART_FAILURES.name}{on}[1h])",
            "{{instance}} {{part}}",
        ),
        PanelPlan(
            "Memory of the agents", f"{families.MEMORY.name}{on}", "{{instance}}", unit="bytes"
        ),
        PanelPlan(
            "Time to answer Prometheus", f"{families.SCRAPE_SECONDS.name}{on}", "{{instance}}", "s"
        ),
    )


def pod_panels() -> tuple[PanelPlan, ...]:
    """Pods that are chosen, and the devices that they hold."""
    on = '{namespace=~"$namespace", pod=~"$pod"}'
    legend = "{{pod}} {{container}} {{device}}"
    received, sent = families.OF_NODE["port_rcv_data"].name, families.OF_NODE["port_xmit_data"].name
    held = f"{families.POD_DEVICE.name}{on}"
    of_holders = "* on (instance, device) group_right ()"
    return (
        PanelPlan(
            "Data received by devices that a pod has alone",
            _pod_rate("port_rcv_data", on),
            legend,
            "Bps",
        ),
        PanelPlan(
            "Data sent by devices that a pod has alone",
            _pod_rate("port_xmit_data", on),
            legend,
            "Bps",
        ),
        PanelPlan(
            "Data received by devices of the pods (traffic of all holders)",
            f"sum by (instance, device) (rate({received}{_RANGE})) {of_holders} {held}",
            legend,
            "Bps",
        ),
        PanelPlan(
            "Data sent by devices of the pods (traffic of all holders)",
            f"sum by (instance, device) (rate({sent}{_RANGE})) {of_holders} {held}",
            legend,
            "Bps",
        ),
        PanelPlan("Packets received out of order", _pod_rate("out_of_sequence", on), legend, "pps"),
        PanelPlan(
            "Receiver not ready (RNR NAK)", _pod_rate("rnr_nak_retry_err", on), legend, "pps"
        ),
        PanelPlan("Slowdowns for congestion (CNP)", _pod_rate("rp_cnp_handled", on), legend, "pps"),
        PanelPlan(
            "Shares that containers hold",
            f"{families.POD_SHARES.name}{on}",
            "{{pod}} {{resource}}",
            kind="table",
        ),
    )


def fleet_panels() -> tuple[PanelPlan, ...]:
    """All nodes at once: who is away, which card of which node is ill, what runs out."""
    return (*_away_panels(), *_grids(), *_scarce_panels())


def _away_panels() -> tuple[PanelPlan, ...]:
    """Agents and controllers that do not answer, by the rules of their alerts."""
    build, leads = families.BUILD.name, families.CONTROLLER_LEADS.name
    by = "max by (namespace, job)"
    return (
        PanelPlan(
            "Agents that are away",
            f"up == 0 and on (instance) last_over_time({build}[2d])",
            "{{node}} {{instance}}",
            kind="table",
        ),
        PanelPlan(
            "Controllers that are away",
            f"{by} (max_over_time({leads}[1d])) == 1 "
            f"unless on (namespace, job) ({by} ({leads}) == 1)",
            "{{namespace}} {{job}}",
            kind="table",
        ),
        PanelPlan("Agents that answer, by version", f"count by (version) ({build})", "{{version}}"),
        PanelPlan(
            "Copies of the controller that lead",
            f"sum by (namespace, job) ({leads})",
            "{{namespace}} {{job}}",
        ),
    )


def _grids() -> tuple[PanelPlan, ...]:
    """A row for each node, a column for each card; cards of a rail have a name on alike nodes."""
    health = f"min by (node, instance, name) ({families.CARD_HEALTHY.name})"
    counters = " or ".join(
        f'label_replace(rate({families.OF_NODE[file].name}{_RANGE}), "file", "{file}", "", "")'
        for file in _ERRORS
    )
    errors = f"sum by (node, instance, device) ({counters})"
    return (
        PanelPlan(
            "Cards, node by card",
            _by_node(health, "name"),
            "{{node}} {{name}}",
            kind="table",
            grid=PanelGrid("node", "name", ((0, "✗ unhealthy", _ILL), (1, "✓", _WELL))),
        ),
        PanelPlan(
            "Errors a second, node by device",
            _by_node(errors, "device"),
            "{{node}} {{device}}",
            kind="table",
            grid=PanelGrid("node", "device"),
            levels=(PanelLevel(0.001, _NOTE), PanelLevel(10, _ILL)),
            guess="The colour from 10 errors a second on is a guess and was not measured.",
        ),
    )


def _scarce_panels() -> tuple[PanelPlan, ...]:
    """What runs out or is less than it could be."""
    return (
        PanelPlan(
            "Addresses that nodes hold, as part of the pool",
            f"{families.POOL_HELD.name} / {families.POOL_ADDRESSES.name}",
            "{{pool}} IPv{{family}} {{rail}}",
            "percentunit",
            levels=(PanelLevel(0.9, _ILL),),
            guess="The line at 90 % is a guess and was not measured.",
        ),
        PanelPlan(
            "PCIe links that are slower than card and slot can be",
            f"{_pcie_part('')} < 1",
            "{{instance}} {{device}}",
            "percentunit",
            kind="table",
        ),
        PanelPlan(
            "Cards that became unhealthy, in an hour",
            f'increase({families.HEALTH_CHANGES.name}{{healthy="false"}}[1h]) > 0',
            "{{instance}} {{card}}",
            kind="table",
        ),
        PanelPlan(
            "Shares in use, as part of all shares",
            f"sum by (resource) ({families.USED_SHARES.name}) "
            f"/ sum by (resource) ({families.SHARES.name})",
            "{{resource}}",
            "percentunit",
        ),
    )


def fabric_panels() -> tuple[PanelPlan, ...]:
    """What nodes see of the network between them."""
    on = '{instance=~"$instance"}'
    legend = "{{instance}} {{device}}"
    files = {
        "Packets received out of order": "out_of_sequence",
        "Packets missing at the peer (NAK)": "packet_seq_err",
        "Acknowledgements that did not come in time": "local_ack_timeout_err",
        "Packets received with ECN mark": "np_ecn_marked_roce_packets",
        "Congestion notifications sent (CNP)": "np_cnp_sent",
        "Slowdowns for congestion (CNP)": "rp_cnp_handled",
        "Minor link errors (symbol errors)": "symbol_error",
        "Packets discarded instead of sent": "port_xmit_discards",
    }
    state = PanelPlan(
        "Ports that are not active", f"{families.STATE.name}{on} != 4", legend, kind="table"
    )
    others = PanelPlan(
        "Errors that drivers count under names of their own",
        f"rate({families.HW_COUNTER.name}"
        f'{{instance=~"$instance", counter=~".*(err|drop|discard|timeout|nak).*"}}{_RANGE}) > 0',
        "{{instance}} {{device}} {{counter}}",
        "pps",
    )
    return (*(PanelPlan(t, _rate(f, on), legend, "pps") for t, f in files.items()), state, others)


def _rate(file: str, selector: str) -> str:
    return f"rate({families.OF_NODE[file].name}{selector}{_RANGE})"


def _pod_rate(file: str, selector: str) -> str:
    return f"rate({families.OF_POD[file].name}{selector}{_RANGE})"


def _pcie_part(selector: str) -> str:
    """What a link transfers of what card and slot can."""
    now = f"({families.PCIE_LANES.name}{selector} * {families.PCIE_SPEED.name}{selector})"
    lanes, speed = families.PCIE_MOST_LANES.name, families.PCIE_MOST_SPEED.name
    return f"{now} / ({lanes}{selector} * {speed}{selector})"


def _slowest(family: MetricFamily, more: str = "") -> str:
    """The 95th percentile of a histogram, of all outcomes."""
    chosen = f'{{instance=~"$instance"{more}}}'
    return f"histogram_quantile(0.95, sum by (le) (rate({family.name}_bucket{chosen}{_RANGE})))"


def _by_node(expression: str, column: str) -> str:
    """Its series by node and column; where a scrape sets no node, the agent's address stands."""
    joined = f'label_join({expression}, "place", ";", "node", "instance")'
    named = f'label_replace({joined}, "node", "$1", "place", ";(.*)")'
    return f"max by (node, {column}) ({named})"
