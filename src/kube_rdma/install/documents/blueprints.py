"""Blueprints as people write them: Kubernetes manifests in YAML, with marks where values go.

    install/rules/objects/*.yaml ─► here ─► model/install/blueprint ─► install/rules/fill, views

A text ``${image.tag}`` is the value at that path, of whatever type; more text around it makes a
text of both. Where a field or an entry of a list depends on values:

    hostPID: !when {agent.otherPlugins: true}        left out where the value is false or empty
    type: !when {platform.networks: spc_t, else: x}  the first that holds, in the order of the file
    data: !unless {platform.networks: false}         left out where the value is true
    - !when {a or b: [first, second]}                both entries, where one of two is not empty
    - !when {agent.nodeLabels == write-nfd: x}       where the value is this text

    - !all agent.extraArgs                           each entry of the list there
    more: !all agent.podLabels                       each field of the object there, not this one

`when` above `apiVersion` lists what has to hold for the whole object; `each` is the path of a list
that has one such object for each entry, whose values are ``${.name}``; `component` is a label of it
where the file's name is not (install/rules/recommended_labels). Annotations of Helm's go to Helm
alone, and so does an object that is a hook of an uninstall.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from kube_rdma.model.install.blueprint import (
    ABSENT,
    Blueprint,
    Hole,
    Joined,
    Node,
    Spread,
    When,
    unless,
)

_HOLE = re.compile(r"\$\{([\w.]+)\}")
_HELM = "helm.sh/"
_UNINSTALL = ("helm.sh/hook", "pre-delete")


class _MarkLoader(yaml.CSafeLoader):
    """Reads the marks as values of model/install/blueprint."""


def read(text: str) -> tuple[Blueprint, ...]:
    """The objects of a file in their order."""
    return tuple(map(_blueprint, yaml.load_all(text, _MarkLoader)))


def _blueprint(document: dict[str, Any]) -> Blueprint:
    conditions, over = document.pop("when", ()), document.pop("each", "")
    component = document.pop("component", "")
    metadata = document["metadata"]
    annotations = metadata.get("annotations")
    notes = {}
    if isinstance(annotations, dict):
        notes = {name: text for name, text in annotations.items() if name.startswith(_HELM)}
    if notes:
        rest = {name: text for name, text in annotations.items() if name not in notes}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        document["metadata"] = metadata | ({"annotations": rest} if rest else {})
    hook = _UNINSTALL in notes.items()
    return Blueprint(document, tuple(conditions), over, notes, hook, component)


def _text(reader: _MarkLoader, node: yaml.ScalarNode) -> Node:
    parts = _HOLE.split(reader.construct_scalar(node))
    if len(parts) == 1:
        return parts[0]
    pieces = (Hole(part) if place % 2 else part for place, part in enumerate(parts))
    joined = tuple(piece for piece in pieces if piece)
    return joined[0] if len(joined) == 1 else Joined(joined)


def _when(reader: _MarkLoader, node: yaml.MappingNode) -> When:
    branches = _branches(reader, node)
    chosen: Any = branches.pop("else", ABSENT)
    for condition, then in reversed(branches.items()):
        chosen = When(condition, then, chosen)
    if not isinstance(chosen, When):
        raise yaml.constructor.ConstructorError(
            problem="!when has no condition", problem_mark=node.start_mark
        )
    return chosen


def _branches(reader: _MarkLoader, node: yaml.MappingNode) -> dict[str, Node]:
    return {str(name): value for name, value in reader.construct_mapping(node, deep=True).items()}


def _unless(reader: _MarkLoader, node: yaml.MappingNode) -> When:
    ((condition, value),) = _branches(reader, node).items()
    return unless(condition, value)


def _all(reader: _MarkLoader, node: yaml.ScalarNode) -> Spread:
    return Spread(str(reader.construct_scalar(node)))


_MarkLoader.add_constructor("!all", _all)
_MarkLoader.add_constructor("tag:yaml.org,2002:str", _text)
_MarkLoader.add_constructor("!when", _when)
_MarkLoader.add_constructor("!unless", _unless)
