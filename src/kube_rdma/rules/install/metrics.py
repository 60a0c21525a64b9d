"""Alert rules and dashboards for a monitoring stack, each by choice.

PrometheusRule is a kind of the Prometheus operator (monitoring.coreos.com), which has to be there;
the dashboards are ConfigMaps as Grafana's sidecar takes them. objects/metrics.yaml has the
PodMonitor.
"""

from __future__ import annotations

import json

from kube_rdma.model.install.blueprint import NAMESPACE, Blueprint, Hole, Json, Spread, joined
from kube_rdma.rules.install.recommended_labels import PRODUCT
from kube_rdma.rules.metrics.alerts import rule_groups
from kube_rdma.rules.metrics.dashboards import dashboards

_BASE = Hole("platform.base")


def metrics() -> tuple[Blueprint, ...]:
    """The objects that are made from the families of metrics."""
    return (
        Blueprint(_rules(), ("metrics.rules",)),
        *(
            Blueprint(_dashboard(name, board), ("metrics.dashboards",))
            for name, board in dashboards().items()
        ),
    )


def _rules() -> Json:
    labels = {"more": Spread("metrics.labels")}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": _BASE, "namespace": NAMESPACE, "labels": labels},
        "spec": {"groups": rule_groups(Hole("metrics.runbook"))},
    }


def _dashboard(name: str, board: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": joined(_BASE, name.removeprefix(PRODUCT)),
            "namespace": NAMESPACE,
            "labels": {"grafana_dashboard": "1"},
        },
        "data": {f"{name}.json": json.dumps(board)},
    }
