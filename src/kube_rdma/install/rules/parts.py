"""All objects of an installation in the order in which they are applied, by part.

A part is a file of the Helm chart. Most of its objects are described in the file of its name in
objects/; the others are computed here. The resource definitions are made from documents of all
capabilities, which rules do not see: whoever asks brings them, and what the files describe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_rdma.admission.rules.pod_admission import completing_policy, pod_policies
from kube_rdma.install.rules.admission import policies
from kube_rdma.install.rules.release import PRODUCT, labelled
from kube_rdma.metrics.rules.alerts import rule_groups
from kube_rdma.metrics.rules.dashboards import dashboards
from kube_rdma.model.install import (
    ABSENT,
    EITHER,
    IS,
    NAMESPACE,
    Blueprint,
    Hole,
    Joined,
    Json,
    Node,
    Spread,
    Values,
    When,
    joined,
)

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


# Blueprints with their holes filled: the objects that an installation consists of.


def filled(blueprints: Sequence[Blueprint], values: Values) -> Iterator[Json]:
    """The objects that the blueprints mean for these values, in their order, but Helm's own."""
    for blueprint in blueprints:
        if blueprint.for_helm or not all(_holds(one, values) for one in blueprint.conditions):
            continue
        entries = _at(blueprint.over, values) if blueprint.over else [{}]
        for entry in entries:
            yield _filled(blueprint.body, values, entry)


def _holds(condition: str, values: Values, entry: Values | None = None) -> bool:
    """Whether one of the values that a condition names is what it has to be."""
    return any(_is_so(one, values, entry) for one in condition.split(EITHER))


def _is_so(condition: str, values: Values, entry: Values | None) -> bool:
    path, equals, text = condition.partition(IS)
    value = _at(path, values, entry)
    return value == text if equals else bool(value)


def _at(path: str, values: Values, entry: Values | None = None) -> Any:
    """The value at a path; KeyError where a blueprint names none of the values."""
    start, names = (entry, path[1:]) if path.startswith(".") else (values, path)
    value: Any = start
    for name in names.split("."):
        value = value[name]
    return value


def _filled(node: Node, values: Values, entry: Values) -> Any:
    match node:
        case Hole(path):
            return _at(path, values, entry)
        case Joined(parts):
            return "".join(str(_filled(part, values, entry)) for part in parts)
        case When(condition, then, otherwise):
            return _filled(then if _holds(condition, values, entry) else otherwise, values, entry)
        case dict():
            return dict(_fields(node, values, entry))
        case list():
            return [made for value in node for made in _entries(value, values, entry)]
        case _:
            return node


def _fields(node: Json, values: Values, entry: Values) -> Iterator[tuple[str, Any]]:
    """The fields that an object comes to."""
    for key, value in node.items():
        if isinstance(value, Spread):
            others = _at(value.path, values, entry)
            yield from ((name, other) for name, other in others.items() if name not in node)
        elif (made := _filled(value, values, entry)) is not ABSENT:
            yield key, made


def _entries(node: Node, values: Values, entry: Values) -> Iterator[Any]:
    """What an entry of a list comes to: itself, nothing, or the entries that are chosen."""
    if isinstance(node, When):
        chosen = node.then if _holds(node.condition, values, entry) else node.otherwise
        for value in chosen if isinstance(chosen, list) else [chosen]:
            yield from _entries(value, values, entry)
    elif isinstance(node, Spread):
        yield from _at(node.path, values, entry)
    elif (made := _filled(node, values, entry)) is not ABSENT:
        yield made
