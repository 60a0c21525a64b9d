"""Dashboards for Grafana, on the families of the table: the fleet, nodes, pods, and the fabric.

Written as files to config/dashboards and, where `metrics.dashboards` of the chart is on, into
ConfigMaps, which Grafana's sidecar takes. A test holds every name and label against the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen
from kube_rdma.metrics.rules import families, panels
from kube_rdma.metrics.rules.panels import PanelGrid, PanelPlan
from kube_rdma.model.install import Json

_WIDTH, _HEIGHT = 12, 8  # of a panel; a row has 24
_SOURCE = {"type": "prometheus", "uid": "${source}"}


class BoardVariable(Frozen):
    """A choice above the pictures: values of a label of a family."""

    name: str
    family: str


def dashboards() -> Mapping[str, Json]:
    """Every dashboard by the name of its file."""
    instance = BoardVariable("instance", families.BUILD.name)
    namespace = BoardVariable("namespace", families.POD_SHARES.name)
    pod = BoardVariable("pod", families.POD_SHARES.name)
    of_pods = {"description": "Empty unless the agents serve series of pods: metrics.pods."}
    return {
        "kube-rdma-fleet": _board("kube-rdma: fleet", panels.fleet_panels(), ()),
        "kube-rdma-node": _board("kube-rdma: node", panels.node_panels(), (instance,)),
        "kube-rdma-pod": _board("kube-rdma: pod", panels.pod_panels(), (namespace, pod)) | of_pods,
        "kube-rdma-fabric": _board("kube-rdma: fabric", panels.fabric_panels(), (instance,)),
    }


def _board(title: str, plans: tuple[PanelPlan, ...], choices: tuple[BoardVariable, ...]) -> Json:
    return {
        "uid": title.replace(": ", "-"),
        "title": title,
        "tags": ["rdma"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, choices)]},
        "panels": [_panel(number, plan) for number, plan in enumerate(plans)],
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
        "fieldConfig": {"defaults": _defaults(plan), "overrides": []},
        "options": {},
        "targets": [target],
        **({"description": plan.guess} if plan.guess else {}),
        **({"transformations": _as_grid(plan.grid)} if plan.grid else {}),
    }


def _defaults(plan: PanelPlan) -> Json:
    """How values are shown: unit, colours from levels on, words for values of a grid."""
    shown: Json = {"unit": plan.unit}
    if plan.grid:
        shown["custom"] = {"cellOptions": {"type": "color-background"}}
    elif plan.levels:
        shown["custom"] = {"thresholdsStyle": {"mode": "line"}}
    if plan.grid and plan.grid.names:
        named = {str(v): {"text": text, "color": c} for v, text, c in plan.grid.names}
        shown["mappings"] = [{"type": "value", "options": named}]
    if plan.levels:
        # The first step has no value: it begins below all others.
        steps: list[Json] = [{"color": "transparent" if plan.grid else "blue", "value": None}]
        steps += [{"color": one.colour, "value": one.begin} for one in plan.levels]
        shown["thresholds"] = {"mode": "absolute", "steps": steps}
    return shown


def _as_grid(grid: PanelGrid) -> list[Json]:
    """Rows and columns sorted by their names; sorting keeps the order of what is equal."""
    sorts: list[Json] = [
        {"id": "sortBy", "options": {"sort": [{"field": field}]}}
        for field in (grid.columns, grid.rows)
    ]
    fields = {"columnField": grid.columns, "rowField": grid.rows, "valueField": "Value"}
    return [*sorts, {"id": "groupingToMatrix", "options": fields}]


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
