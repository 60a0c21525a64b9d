"""The reference page of a kind, made from its schema: docs/reference, as `kubectl explain` shows it.

programs/crds writes the pages beside the definitions, and a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kube_rdma.api.structural import CATEGORY, GROUP, VERSION, ResourceDefinition, definition

Json = dict[str, Any]

HEAD = "<!-- Written by tools/crds from the models in src/kube_rdma/api; do not edit. -->"
_NOT_OURS = ("apiVersion", "kind", "metadata")  # every object has them


def page(resource: ResourceDefinition) -> str:
    """The page: what the kind is, how kubectl calls it, a table for each part of it."""
    (version,) = definition(resource)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    parts = [f"# {resource.kind}", HEAD, schema["description"], _names(resource)]
    for name, part in schema["properties"].items():
        if name not in _NOT_OURS:
            parts += [f"## {name}", part["description"], "\n".join(_table(part))]
    return "\n\n".join(parts) + "\n"


def _names(resource: ResourceDefinition) -> str:
    place = "in a namespace" if resource.namespaced else "for the whole cluster"
    calls = [f"`kubectl get {name}`" for name in (resource.short, resource.plural) if name]
    if resource.group == GROUP:
        calls.append(f"`kubectl get {CATEGORY}` (all kinds)")
    text = f"`{resource.group}/{VERSION}`, {place}. Read it with {', '.join(calls)}."
    if wide := [each.name for each in resource.columns if each.wide]:
        text += f" `-o wide` adds the columns {', '.join(wide)}."
    return f"{text} `kubectl explain {resource.plural} --recursive` has the same fields."


def _table(part: Json) -> Iterator[str]:
    yield "| Field | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    for path, field, needed in _fields(part, ""):
        default = "required" if needed else _default(field)
        meaning = field.get("description", "").replace("|", "\\|")
        yield f"| `{path}` | {_type(field)} | {default} | {meaning} |"


def _fields(part: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Every field below a part with its path, and whether it has to be there."""
    needed = part.get("required", ())
    for name, field in part.get("properties", {}).items():
        yield f"{path}{name}", field, name in needed
        yield from _fields(field, f"{path}{name}.")
        for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(inner := field.get(key), dict):
                yield from _fields(inner, f"{path}{name}{sign}.")


def _type(field: Json) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"] if value is not None)
    match field["type"]:
        case "array":
            return f"list of {_type(field['items'])}"
        case "object" if isinstance(inner := field.get("additionalProperties"), dict):
            return f"map to {_type(inner)}"
        case kind:
            return str(kind)


def _default(field: Json) -> str:
    return f"`{json.dumps(field['default'])}`" if "default" in field else ""
