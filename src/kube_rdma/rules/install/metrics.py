"""What a monitoring stack finds of the agents: PodMonitor, alert rules, dashboards; each by choice.

The kinds are those of the Prometheus operator (monitoring.coreos.com), which has to be there; the
dashboards are ConfigMaps as Grafana's sidecar takes them.
"""

from __future__ import annotations

import json

from kube_rdma.model.install.blueprint import Blueprint, Hole, Json, Node, When, joined
from kube_rdma.rules.install.rights import NAMESPACE
from kube_rdma.rules.metrics.alerts import rule_groups
from kube_rdma.rules.metrics.dashboards import dashboards

PORT = "metrics.port"
_API = "monitoring.coreos.com/v1"
_LABELS = When("metrics.labels", Hole("metrics.labels"))
_NAME, _PORT_NAME, _HOST_IP = "kube-rdma", "metrics", "HOST_IP"


def metrics() -> tuple[Blueprint, ...]:
    """The objects for a monitoring stack."""
    return (
        Blueprint(_pod_monitor(), ("agent.enabled", PORT, "metrics.podMonitor")),
        Blueprint(_rules(), ("metrics.rules",)),
        *(
            Blueprint(_dashboard(name, board), ("metrics.dashboards",))
            for name, board in dashboards().items()
        ),
    )


def arguments() -> tuple[Node, ...]:
    """What the agent's command has of it; it listens on the node's own address."""
    address = joined(f"--metrics-address=$({_HOST_IP}):", Hole(PORT))
    return When(PORT, address), When(PORT, joined("--metrics-names=", Hole("metrics.names")))


def variable() -> Node:
    """The node's address, for the command."""
    reference = {"fieldRef": {"fieldPath": "status.hostIP"}}
    return When(PORT, {"name": _HOST_IP, "valueFrom": reference})


def ports() -> Node:
    """The port of the container, by which monitors find it and the scheduler sees it taken."""
    return When(PORT, [{"name": _PORT_NAME, "containerPort": Hole(PORT)}])


def _metadata(name: str) -> Json:
    return {"name": name, "namespace": NAMESPACE, "labels": _LABELS}


def _pod_monitor() -> Json:
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    endpoint = {
        "port": _PORT_NAME,
        "path": "/metrics",
        # Else the agent's own pod would stand where series have the pod that they are about.
        "honorLabels": True,
        "relabelings": [node],
    }
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": _metadata(_NAME),
        "spec": {
            "selector": {"matchLabels": {"name": Hole("seed.label")}},
            "podMetricsEndpoints": [endpoint],
        },
    }


def _rules() -> Json:
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": _metadata(_NAME),
        "spec": {"groups": rule_groups()},
    }


def _dashboard(name: str, board: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"grafana_dashboard": "1"}},
        "data": {f"{name}.json": json.dumps(board)},
    }
