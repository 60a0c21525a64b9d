"""Blueprints with their holes filled: the objects that an installation consists of.

The first reader of model/install/blueprint; kube_rdma_tools/chart_templates is the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_rdma.model.install.blueprint import (
    ABSENT,
    EITHER,
    IS,
    Blueprint,
    Hole,
    Joined,
    Json,
    Node,
    Spread,
    Values,
    When,
)


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
