"""Whatever the API server stores of kube-rdma's own kinds has an end: lists, texts and mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_rdma.cli.definitions import DEFINITIONS
from kube_rdma.lib.schema import definition

# A pod as any other, of which kube-rdma knows few fields: the size of an object is its end.
FREE = {"BandwidthCheck.spec.template"}
_LIMITS = {"array": "maxItems", "string": "maxLength"}


def open_ends(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Each part that may be of any length."""
    limit = _LIMITS.get(schema.get("type", ""))
    if limit and not {limit, "enum"} & set(schema):
        yield f"{path}: {limit}"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}: any fields"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        if "maxProperties" not in schema:
            yield f"{path}: maxProperties"
        yield from open_ends(values, f"{path}.*")
    if "items" in schema:
        yield from open_ends(schema["items"], f"{path}[]")
    for name, part in schema.get("properties", {}).items():
        yield from open_ends(part, f"{path}.{name}")


def test_every_list_text_and_mapping_of_a_definition_has_an_end() -> None:
    """apiVersion and kind are what the API server itself holds to."""
    found = []
    for resource in DEFINITIONS:
        (version,) = definition(resource)["spec"]["versions"]
        parts = version["schema"]["openAPIV3Schema"]["properties"]
        for name in sorted(set(parts) - {"apiVersion", "kind"}):
            found += open_ends(parts[name], f"{resource.kind}.{name}")
    free = [one for one in found if any(one.startswith(f"{path}.") for path in FREE)]
    assert [one for one in found if one not in free] == []
    assert {one.rpartition(": ")[2] for one in free} == {"any fields"}


def test_what_has_no_end_is_found() -> None:
    text = {"type": "string"}
    planted = {
        "type": "object",
        "properties": {
            "a": text,
            "b": {"type": "array", "maxItems": 3, "items": text},
            "c": {"type": "array", "items": text | {"maxLength": 3}},
            "d": {"type": "object", "additionalProperties": text | {"enum": ["x"]}},
            "e": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "f": {"type": "integer"},
        },
    }
    assert list(open_ends(planted, "x")) == [
        *("x.a: maxLength", "x.b[]: maxLength", "x.c: maxItems", "x.d: maxProperties"),
        "x.e: any fields",
    ]
