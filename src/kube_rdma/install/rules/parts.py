"""Lists all objects of an installation by part, in the order in which they are applied.

A part is a file of the Helm chart. Most of its objects are described in the file of its name in
objects/; the policies for pods are computed (pod_policies). Definitions, dashboards and what the
files describe are handed in, as rules read no files. `filled` makes objects of blueprints for
`kube-rdma render`; kube_rdma_tools/chart_templates makes Helm's templates of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_rdma.install.rules.pod_policies import completing_policy, pod_policies
from kube_rdma.install.rules.release import PRODUCT, labelled
from kube_rdma.model import install

PARTS = (
    "namespace",
    "definitions",
    "admission",
    "preflight",
    "rights",
    "pools",
    "networks",
    "claims",
    "workloads",
    "metrics",
    "retirement",
)
FILES = (*PARTS, "policies")
"""The files in objects/: one for each part, and `policies`, which begins part admission."""
_RULES = "x-kubernetes-validations"
# `helm uninstall` would delete the blocks of living pods with their definition.
_KEPT = {"helm.sh/resource-policy": "keep"}
_OF_OPERATOR = ("crds.install", "crds.nicClusterPolicies", "platform.operator")


def parts(
    described: Mapping[str, Sequence[install.Blueprint]],
    definitions: Sequence[install.Json],
    operator: Sequence[install.Json],
    dashboards: Mapping[str, install.Json],
) -> Mapping[str, list[install.Blueprint]]:
    """Return the blueprints of each part of an installation, by its name.

    `described` has the blueprints of each of FILES; `operator` are definitions that only the
    operator needs; `dashboards` are Grafana's by name.
    """
    before = {
        "definitions": [
            *(
                install.Blueprint(_by_version(body), ("crds.install",), notes=_KEPT)
                for body in definitions
            ),
            *(
                install.Blueprint(_by_version(_scoped(body)), _OF_OPERATOR, notes=_KEPT)
                for body in operator
            ),
        ],
        "admission": [*described["policies"], *pod_policies(), *completing_policy()],
    }
    behind = {
        "metrics": [
            install.Blueprint(_dashboard(name, board), ("metrics.dashboards",))
            for name, board in dashboards.items()
        ]
    }
    return {
        part: [
            labelled(blueprint, part)
            for blueprint in (*before.get(part, ()), *described[part], *behind.get(part, ()))
        ]
        for part in PARTS
    }


def _scoped(definition: install.Json) -> install.Json:
    scope = install.When("controller.policyScope == Cluster", "Cluster", "Namespaced")
    return {**definition, "spec": {**definition["spec"], "scope": scope}}


def _by_version(node: Any) -> Any:
    """Return a definition whose CEL rules are left out where Kubernetes is too old for them."""
    if isinstance(node, dict):
        return {
            key: install.When("platform.definitionRules", value)
            if key == _RULES
            else _by_version(value)
            for key, value in node.items()
        }
    return [_by_version(value) for value in node] if isinstance(node, list) else node


def _dashboard(name: str, board: install.Json) -> install.Json:
    """Return the ConfigMap of a dashboard, which Grafana's sidecar takes by its label."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": install.joined(install.Hole("platform.base"), name.removeprefix(PRODUCT)),
            "namespace": install.NAMESPACE,
            "labels": {"grafana_dashboard": "1"},
        },
        "data": {f"{name}.json": json.dumps(board)},
    }


# From blueprints to objects: holes are filled with values.


def filled(
    blueprints: Sequence[install.Blueprint], values: install.Values
) -> Iterator[install.Json]:
    """Yield the objects of blueprints whose conditions hold, without those for Helm alone."""
    for blueprint in blueprints:
        if blueprint.for_helm or not all(_holds(one, values) for one in blueprint.conditions):
            continue
        entries = _at(blueprint.over, values) if blueprint.over else [{}]
        for entry in entries:
            yield _filled(blueprint.body, values, entry)


def _holds(condition: str, values: install.Values, entry: install.Values | None = None) -> bool:
    """Return whether any alternative of a condition is true for the values."""
    for alternative in condition.split(install.EITHER):
        path, equals, text = alternative.partition(install.IS)
        value = _at(path, values, entry)
        if value == text if equals else value:
            return True
    return False


def _at(path: str, values: install.Values, entry: install.Values | None = None) -> Any:
    """Return the value at a dotted path; raise KeyError where no layer of values has the path."""
    value: Any = values
    if path.startswith("."):
        value, path = entry, path[1:]
    for name in path.split("."):
        value = value[name]
    return value


def _filled(node: install.Node, values: install.Values, entry: install.Values) -> Any:
    match node:
        case install.Hole(path):
            return _at(path, values, entry)
        case install.Joined(parts):
            return "".join(str(_filled(part, values, entry)) for part in parts)
        case install.When(condition, then, otherwise):
            return _filled(then if _holds(condition, values, entry) else otherwise, values, entry)
        case dict():
            return dict(_fields(node, values, entry))
        case list():
            return [made for value in node for made in _entries(value, values, entry)]
        case _:
            return node


def _fields(
    node: install.Json, values: install.Values, entry: install.Values
) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, install.Spread):
            others = _at(value.path, values, entry)
            yield from ((name, other) for name, other in others.items() if name not in node)
        elif (made := _filled(value, values, entry)) is not install.ABSENT:
            yield key, made


def _entries(node: install.Node, values: install.Values, entry: install.Values) -> Iterator[Any]:
    """Yield the values that one node of a list in a blueprint stands for: none, one or several."""
    if isinstance(node, install.When):
        chosen = node.then if _holds(node.condition, values, entry) else node.otherwise
        for value in chosen if isinstance(chosen, list) else [chosen]:
            yield from _entries(value, values, entry)
    elif isinstance(node, install.Spread):
        yield from _at(node.path, values, entry)
    elif (made := _filled(node, values, entry)) is not install.ABSENT:
        yield made
