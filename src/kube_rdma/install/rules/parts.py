"""All objects of an installation in the order in which they are applied, by part.

A part is a file of the Helm chart. Most of its objects are described in the file of its name in
objects/; the others are computed here. The resource definitions are made from documents of all
capabilities, which rules do not see: whoever asks brings them, and what the files describe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kube_rdma.admission.rules.pod_admission import pod_policies
from kube_rdma.admission.rules.pod_completion import completing_policy
from kube_rdma.install.rules.admission import policies
from kube_rdma.install.rules.recommended_labels import PRODUCT, labelled
from kube_rdma.metrics.rules.alerts import rule_groups
from kube_rdma.metrics.rules.dashboards import dashboards
from kube_rdma.model.install.blueprint import NAMESPACE, Blueprint, Hole, Json, Spread, When, joined

PARTS = (
    "namespace",
    "definitions",
    "admission",
    "rights",
    "pools",
    "networks",
    "claims",
    "workloads",
    "metrics",
    "retirement",
)
_RULES = "x-kubernetes-validations"
# `helm uninstall` would delete the blocks of living pods with their definition.
_KEPT = {"helm.sh/resource-policy": "keep"}
_OF_OPERATOR = ("crds.install", "crds.nicClusterPolicies", "platform.operator")


def parts(
    described: Mapping[str, Sequence[Blueprint]],
    definitions: Sequence[Json],
    operator: Sequence[Json],
) -> Mapping[str, list[Blueprint]]:
    """Every part with its blueprints; `operator` are definitions that only the operator needs."""
    computed = {
        "definitions": [
            *(Blueprint(_by_version(body), ("crds.install",), notes=_KEPT) for body in definitions),
            *(
                Blueprint(_by_version(_scoped(body)), _OF_OPERATOR, notes=_KEPT)
                for body in operator
            ),
        ],
        "admission": [*policies(), *pod_policies(), *completing_policy()],
    }
    behind = {"metrics": metrics()}
    return {
        part: [
            labelled(blueprint, part)
            for blueprint in (*computed.get(part, ()), *described[part], *behind.get(part, ()))
        ]
        for part in PARTS
    }


def _scoped(definition: Json) -> Json:
    """The definition of policies with the scope that the values say."""
    scope = When("controller.policyScope == Cluster", "Cluster", "Namespaced")
    return {**definition, "spec": {**definition["spec"], "scope": scope}}


def _by_version(node: Any) -> Any:
    """A definition whose rules are left out where the version has none."""
    if isinstance(node, dict):
        return {
            key: When("platform.definitionRules", value) if key == _RULES else _by_version(value)
            for key, value in node.items()
        }
    return [_by_version(value) for value in node] if isinstance(node, list) else node


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
