"""Custom resource definitions, made from the models that read the objects.

The API server wants a structural schema: no $ref, no title, each null said as nullable. Pydantic
writes schemas of people's documents, and struct_schema those of programs' documents. Here both are
turned into structural ones, so that nothing is written by hand twice. cli/definitions lists the
kinds, tools/crds writes config/crds. The rules are Kubernetes' "Specifying a structural schema".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import yaml
from msgspec import Meta, Struct, structs
from pydantic import BaseModel

from kube_base.frozen import Frozen
from kube_rdma.lib import field_descriptions
from kube_rdma.model.kubernetes import NOT_OBSERVED, Condition

GROUP, VERSION, CATEGORY = "kube-rdma.io", "v1alpha1", "kube-rdma"
LIST_TYPE, LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
OBSERVED = ["observedGeneration"]

# The JSON schema of a Struct, for what programs write: the statuses of kinds, whole reports.

Json: TypeAlias = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def struct_schema(kind: type[Struct]) -> Json:
    """Return the JSON schema of a Struct, with the sentences of its fields."""
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
    field_descriptions.add(schema, {each.name: each.encode_name for each in fields}, kind)
    return dict(sorted(schema.items()))


def _field(field: structs.FieldInfo) -> Json:
    part = {"description": "", **_of_type(field.type)}
    if field.required or field.default in ((), None):
        return part
    return {"default": field.default, **part}


def _of_type(hint: Any) -> Json:
    """Return the JSON schema of a type, its keywords in the order in which pydantic has them."""
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
    kind = getattr(hint, "__supertype__", hint)
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


_KEPT = frozenset(
    (
        *("type", "description", "pattern", "enum", "format", "nullable", "required", "default"),
        *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    )
)


LOOKAROUND = re.compile(r"\(\?<?[=!]")
"""Go's patterns may not have this: the API server and Helm refuse the whole schema for it."""


class Column(Frozen):
    """A column that kubectl shows for a kind."""

    name: str
    path: str  # to one value
    type: str = "string"
    wide: bool = False  # shown by `-o wide` alone


class ResourceDefinition(Frozen):
    """A kind whose definition kube-rdma has.

    `kubectl get kube-rdma` shows all kinds of kube-rdma's own group by their category.
    """

    model: type[BaseModel | Struct]  # with a status, it gets the subresource
    plural: str
    short: str = ""  # a name that kubectl takes in place of the plural
    columns: tuple[Column, ...] = ()
    group: str = GROUP
    namespaced: bool = False

    @property
    def kind(self) -> str:
        """Return the name of the kind, from the model's field `kind`."""
        (kind,) = structural(self.model)["properties"]["kind"]["enum"]
        return str(kind)

    @property
    def name(self) -> str:
        """Return the name of the definition, such as ippools.kube-rdma.io."""
        return f"{self.plural}.{self.group}"


def definition(resource: ResourceDefinition) -> Json:
    """Return the CustomResourceDefinition of a kind."""
    schema = structural(resource.model)
    parts = schema["properties"]
    version_sentence = f"apiVersion is {resource.group}/{VERSION}."
    parts["apiVersion"] = {"description": version_sentence, "type": "string"}
    parts["kind"] = {"description": f"kind is {resource.kind}.", "type": "string"}
    parts["metadata"] = _metadata(parts.get("metadata", {}))
    if parts.get("spec", {"nullable": True}).pop("nullable", False):
        del schema["required"]  # a report, whose metadata is all that somebody has to write by hand
    else:
        schema["required"] = ["spec"]
    has_status = "status" in parts
    if has_status:
        parts["status"].pop("nullable", None)
        # A new object has a status at once, which says that no program has looked at it yet.
        # Without one kstatus calls it current (fluxcd/cli-utils@v1.2.2
        # pkg/kstatus/status/status.go, checkReadyCondition), and nobody waits for it.
        status = parts["status"]
        (observed,) = OBSERVED
        is_awaited = status.get("required", OBSERVED) == OBSERVED and "spec" in parts
        if is_awaited and observed in status["properties"]:
            status["default"] = {observed: NOT_OBSERVED}
    version: Json = {"name": VERSION, "served": True, "storage": True}
    if has_status:
        version["subresources"] = {"status": {}}
    version["additionalPrinterColumns"] = [
        {"name": each.name, "type": each.type, "jsonPath": each.path}
        | ({"priority": 1} if each.wide else {})
        for each in resource.columns
    ]
    version["schema"] = {"openAPIV3Schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": _names(resource),
            "versions": [version],
        },
    }


def _names(resource: ResourceDefinition) -> Json:
    names: Json = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if resource.short:
        names["shortNames"] = [resource.short]
    if resource.group == GROUP:
        names["categories"] = [CATEGORY]
    return names


def text(resource: ResourceDefinition) -> str:
    """Return a CustomResourceDefinition as the YAML text in config/crds."""
    plain = json.loads(json.dumps(definition(resource)))  # nothing twice: YAML would refer to it
    return yaml.safe_dump(plain, sort_keys=False, width=100)


def structural(model: type[BaseModel | Struct]) -> Json:
    """Return the structural schema of the documents of a model."""
    made = _json_schema(model)
    return _converted(made, made.get("$defs", {}))


@cache
def _json_schema(model: type[BaseModel | Struct]) -> Mapping[str, Any]:
    """Return the JSON schema of a model, made only once."""
    if issubclass(model, BaseModel):
        return model.model_json_schema()
    return struct_schema(model)


def _converted(schema: Mapping[str, Any], parts: Mapping[str, Json]) -> Json:
    """Return a JSON schema, with all below it, as a structural schema of Kubernetes.

    Raise TypeError for a choice between types.
    """
    if "$ref" in schema:
        part = parts[schema["$ref"].removeprefix("#/$defs/")]
        return _converted({**part, **{k: v for k, v in schema.items() if k != "$ref"}}, parts)
    if "anyOf" in schema:
        real = [each for each in schema["anyOf"] if each != {"type": "null"}]
        if len(real) != 1:
            raise TypeError(f"a structural schema has no choice between types: {schema}")
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**_converted({**real[0], **rest}, parts), "nullable": True}
    converted = _own_keywords(schema)
    if "properties" in schema:
        inner = schema["properties"].items()
        converted["properties"] = {name: _converted(each, parts) for name, each in inner}
    if schema.get("additionalProperties") is True:
        converted["x-kubernetes-preserve-unknown-fields"] = True
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            converted[key] = _converted(schema[key], parts)
            converted[key].pop("description", None)  # the field's sentence says it
    if "items" not in converted:
        return converted
    keys = converted["items"].pop(LIST_KEYS, None)  # by which server-side apply merges the list
    merged: Json = {LIST_TYPE: "map", LIST_KEYS: keys} if keys else {LIST_TYPE: "atomic"}
    return merged | converted


def _own_keywords(schema: Mapping[str, Any]) -> Json:
    """Return those keywords of one node of a JSON schema that a structural schema has.

    Empty defaults, and patterns that Go cannot read, are left out.
    """
    keywords = {
        key: value
        for key, value in schema.items()
        if key in _KEPT or key.startswith("x-kubernetes-")
    }
    if LOOKAROUND.search(keywords.get("pattern", "")):
        del keywords["pattern"]  # Go's expressions have none; the model has a rule in CEL for it
    if keywords.get("default", 0) in (None, "", []):
        del keywords["default"]
    if "const" in schema:
        keywords["enum"] = [schema["const"]]
    for strict, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if strict in schema:
            keywords |= {limit: schema[strict], strict: True}
    if "description" in keywords:
        keywords["description"] = " ".join(keywords["description"].split())
    return keywords


def _metadata(schema: Json) -> Json:
    """Return the schema of metadata, in which only the name may be restricted.

    "must not specify anything other than name and generateName" (apiextensions' validation).
    """
    name = schema.get("properties", {}).get("name")
    return {"type": "object", "properties": {"name": name}} if name else {"type": "object"}
