"""The reference page of a kind, made from the schema that `kubectl explain` shows too.

kube_rdma_tools/definitions writes the pages beside the definitions, and a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kube_rdma.model.install import Json
from kube_rdma_tools.page_tables import markdown_row

HEAD = "<!-- Written by tools/crds from the models in src/kube_rdma; do not edit. -->"
_OF_EVERY_OBJECT = ("apiVersion", "kind", "metadata")


def page(definition: Json) -> str:
    """Return the page of a CRD: how to read its objects, a table for each field such as spec."""
    spec = definition["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    parts = [f"# {spec['names']['kind']}", HEAD, schema["description"], _names(spec, version)]
    for name, part in schema["properties"].items():
        if name not in _OF_EVERY_OBJECT:
            parts += [f"## {name}", part["description"], "\n".join(_table(part))]
    return "\n\n".join(parts) + "\n"


def parameters_page(schema: Json) -> str:
    """Return the page of claim parameters, which other objects contain: one table."""
    (kind,) = schema["properties"]["kind"]["enum"]
    (version,) = schema["properties"]["apiVersion"]["enum"]
    names = (
        f"{kind} are of `{version}`. `kube-rdma config schema claim-parameters` prints the schema."
    )
    head = [f"# {kind}", HEAD, schema["description"], names]
    return "\n\n".join([*head, "\n".join(_table(schema))]) + "\n"


def _names(spec: Json, version: Json) -> str:
    """Return a paragraph on how to read a kind's objects with kubectl."""
    names = spec["names"]
    scope = "namespaced" if spec["scope"] == "Namespaced" else "cluster-scoped"
    full = f"{names['plural']}.{spec['group']}"
    calls = [f"`kubectl get {name}`" for name in (*names.get("shortNames", ()), full)]
    calls += [f"`kubectl get {name}` (all kinds)" for name in names.get("categories", ())]
    text = f"{names['kind']} is a {scope} kind of `{spec['group']}/{version['name']}`. "
    text += f"Read it with {', '.join(calls)}."
    columns = version["additionalPrinterColumns"]
    if wide := [column["name"] for column in columns if column.get("priority")]:
        text += f" `-o wide` also prints {', '.join(wide)}."
    # explain takes no group behind the plural before kubectl 1.29 (pkg/explain/explain.go).
    api = f"{spec['group']}/{version['name']}"
    explain = f"kubectl explain {names['plural']} --api-version={api} --recursive"
    return f"{text} `{explain}` has the same fields."


def _table(part: Json) -> Iterator[str]:
    yield "| Field | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    for path, field, needed in _fields(part, ""):
        default = "required" if needed else _default(field)
        yield markdown_row((f"`{path}`", _type(field), default, field.get("description", "")))


def _fields(part: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Yield every field below a part of a schema: path, schema, and whether it is required."""
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
