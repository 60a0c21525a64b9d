"""Dashboards for Grafana, on the families of the table: nodes, pods, and the fabric between them.

Written as files to config/dashboards and, where `metrics.dashboards` of the chart is on, into
ConfigMaps, which Grafana's sidecar takes. A test holds every name and label against the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.install.blueprint import Json
from kube_rdma.rules.metrics import families

_WIDTH, _HEIGHT = 12, 8  # of a panel; a row has 24
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_RANGE = "[$__rate_interval]"


class PanelPlan(Frozen):
    """A picture: what is drawn, with which legend, in which of Grafana's units."""

    title: str
    expression: str
    legend: str
    unit: str = "short"
    kind: str = "timeseries"


class BoardVariable(Frozen):
    """A choice above the pictures: values of a label of a family."""

    name: str
    family: str


def dashboards() -> Mapping[str, Json]:
    """Every dashboard by the name of its file."""
    instance = BoardVariable("instance", families.BUILD.name)
    namespace = BoardVariable("namespace", families.POD_SHARES.name)
    pod = BoardVariable("pod", families.POD_SHARES.name)
    return {
        "kube-rdma-node": _board("kube-rdma: node", _node_panels(), (instance,)),
        "kube-rdma-pod": _board("kube-rdma: pod", _pod_panels(), (namespace, pod)),
        "kube-rdma-fabric": _board("kube-rdma: fabric", _fabric_panels(), (instance,)),
    }


def _node_panels() -> tuple[PanelPlan, ...]:
    on = '{instance=~"$instance"}'
    used, shares = families.USED_SHARES.name, families.SHARES.name
    attach = families.ATTACH.name
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
        PanelPlan(
            "Time to attach a pod's networks (95th percentile)",
            f'histogram_quantile(0.95, sum by (le) (rate({attach}_bucket{{operation="add", '
            f'instance=~"$instance"}}{_RANGE})))',
            "seconds",
            "s",
        ),
        PanelPlan(
            "Memory of the agents", f"{families.MEMORY.name}{on}", "{{instance}}", unit="bytes"
        ),
    )


def _pod_panels() -> tuple[PanelPlan, ...]:
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


def _fabric_panels() -> tuple[PanelPlan, ...]:
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
    return (*(PanelPlan(t, _rate(f, on), legend, "pps") for t, f in files.items()), state)


def _rate(file: str, selector: str) -> str:
    return f"rate({families.OF_NODE[file].name}{selector}{_RANGE})"


def _pod_rate(file: str, selector: str) -> str:
    return f"rate({families.OF_POD[file].name}{selector}{_RANGE})"


def _board(title: str, panels: tuple[PanelPlan, ...], choices: tuple[BoardVariable, ...]) -> Json:
    return {
        "uid": title.replace(": ", "-"),
        "title": title,
        "tags": ["rdma"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, choices)]},
        "panels": [_panel(number, plan) for number, plan in enumerate(panels)],
    }


def _panel(number: int, plan: PanelPlan) -> Json:
    is_table = plan.kind == "table"
    target = {
        "refId": "A",
        "datasource": _SOURCE,
        "expr": plan.expression,
        "legendFormat": plan.legend,
        "instant": is_table,
        "format": "table" if is_table else "time_series",
    }
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "type": plan.kind,
        "title": plan.title,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {"defaults": {"unit": plan.unit}, "overrides": []},
        "options": {},
        "targets": [target],
    }


def _source() -> Json:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(choice: BoardVariable) -> Json:
    return {
        "name": choice.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({choice.family}, {choice.name})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
