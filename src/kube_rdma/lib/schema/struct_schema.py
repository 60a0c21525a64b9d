"""The JSON schema of a Struct, for what programs write: the statuses of kinds, whole reports.

lib/schema/structural makes a definition of it, as of what pydantic says of documents that people
write. msgspec can write a schema too, but it sorts choices, which people read in their order.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from msgspec import Meta, Struct, structs

from kube_rdma.lib.schema import descriptions
from kube_rdma.model.conditions import Condition

LIST_KEYS = "x-kubernetes-list-map-keys"

Json: TypeAlias = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def struct_schema(kind: type[Struct]) -> Json:
    """The schema of a Struct's documents, with the sentence of each field."""
    fields = structs.fields(kind)
    schema: Json = {
        "description": kind.__doc__,
        "properties": {each.encode_name: _field(each) for each in fields},
        "type": "object",
    }
    if required := [each.encode_name for each in fields if each.required]:
        schema["required"] = required
    if kind is Condition:  # so a client that applies one condition takes no other away
        schema[LIST_KEYS] = ["type"]
    descriptions.add(schema, {each.name: each.encode_name for each in fields}, kind)
    return dict(sorted(schema.items()))


def _field(field: structs.FieldInfo) -> Json:
    part = {"description": "", **_of_type(field.type)}
    if field.required or field.default in ((), None):
        return part
    return {"default": field.default, **part}


def _of_type(hint: Any) -> Json:
    """The keywords of a type, in the order in which pydantic writes them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(_of_type(arguments[0]), arguments[1])
    if origin in (Union, UnionType):
        (real,) = (each for each in arguments if each is not NoneType)
        return {"anyOf": [_of_type(real), {"type": "null"}]}
    if origin is tuple:
        return {"items": _of_type(arguments[0]), "type": "array"}
    if origin is Literal:
        return {"enum": list(arguments), "type": "string"}
    return _of_class(getattr(hint, "__supertype__", hint))


def _of_class(kind: type) -> Json:
    if issubclass(kind, Struct):
        return struct_schema(kind)
    if issubclass(kind, Enum):
        return {"enum": [each.value for each in kind], "type": "string"}
    return {"type": _PLAIN[kind]}


def _limited(schema: Json, meta: Meta) -> Json:
    longest = "maxItems" if schema["type"] == "array" else "maxLength"
    limits = {longest: meta.max_length, "minimum": meta.ge, "pattern": meta.pattern}
    schema |= {keyword: limit for keyword, limit in limits.items() if limit is not None}
    return dict(sorted(schema.items()))
