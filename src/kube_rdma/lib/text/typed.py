"""The base models of the configuration's dialects, and the Config that they compile to.

Each dialect has a pydantic model and a function `load`, from the Document that lib/text/reader read
to the Config that programs take. pools/documents/config finds out which dialect a text is written
in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from kube_base.frozen import Frozen
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.words import TextForm
from kube_rdma.model.pools import FunctionsSpec, PoolSpec

# Pydantic would look for plugins among all that is installed, by forty modules.
sys.modules.setdefault("pydantic.plugin._loader", SimpleNamespace(get_plugins=tuple))  # type: ignore[arg-type]

RESCAN = 300  # seconds: the kernel announces changes, so this is for what got lost
MOST_SHARES = 100_000  # of one pool: all of them travel in one message, and gRPC ends it at 4 MiB

T = TypeVar("T")
Many: TypeAlias = Annotated[tuple[T, ...], Strict(strict=False)]  # a list in the document


class _StructPart:
    """The annotation that gives a Struct a pydantic schema, for a part of a Typed document."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        read = partial(_converted, kind)
        return core_schema.no_info_plain_validator_function(read, metadata={"struct": kind})

    def __get_pydantic_json_schema__(
        self, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        from kube_rdma.lib.schema import struct_schema  # as below

        return struct_schema(core["metadata"]["struct"])


def _converted(kind: type[T], value: Any) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = f"kube-rdma does not write it so: {error}"
        raise slips(Slip(problem, "Leave it out, as only kube-rdma writes it")) from None


OfPrograms: TypeAlias = Annotated[T, _StructPart()]
"""The type of a status in a document that people write: a Struct (model/kubernetes)."""


class Typed(BaseModel):
    """An object of a document: no unknown field, no value that only looks like the right type."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, defer_build=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema, in which each field has its sentence."""
        from kube_rdma.lib import field_descriptions  # it parses sources: schemas alone need it

        schema = handler(core)
        aliases = {name: field.alias or name for name, field in cls.model_fields.items()}
        field_descriptions.add(handler.resolve_ref_schema(schema), aliases, cls)
        return schema


def validations(*rules: tuple[str, str]) -> dict[str, Any]:
    """Return the keyword of a schema that has the API server check rules in CEL, with messages."""
    pairs = [{"rule": rule, "message": message} for rule, message in rules]
    return {"x-kubernetes-validations": pairs}


class Config(Frozen):
    """A compiled configuration file."""

    pools: tuple[PoolSpec, ...]
    rescan: int = RESCAN  # seconds between two looks when the kernel announces nothing; 0: never
    warnings: tuple[str, ...] = ()  # sentences
    functions: tuple[FunctionsSpec, ...] = ()
    rails: tuple[str, ...] = ()  # interfaces or PCI addresses of cards, in the order of their rails


# Objects of documents that programs in Go read or write, with what their encoding/json overlooks.


class GoTyped(Typed):
    """An object in which null counts as left out, and so does "" where a text may stand."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_go(cls, value: object) -> object:
        return fields_of(cls, value) if isinstance(value, Mapping) else value


def fields_of(model: type[BaseModel], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an object under the names that `model` has for them, without nulls.

    An empty text is left out where a text may stand. It stays elsewhere, and in a field that has to
    be there.
    """
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    by_letters = {name.lower(): name for name in fields}
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        name = by_letters.get(key.lower(), key)
        if name in value:
            name = key
        if inner is not None and not (inner == "" and _may_be_empty(fields.get(name))):
            kept[name] = inner
    return kept


def _may_be_empty(field: FieldInfo | None) -> bool:
    if field is None or field.is_required():
        return False
    return any(
        part is str or isinstance(part, str | TextForm)
        for part in (*_parts(field.annotation), *field.metadata)
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation with the types and metadata inside of it, but not entries of lists."""
    yield annotation
    if get_origin(annotation) not in (tuple, list, dict):
        for inner in get_args(annotation):
            yield from _parts(inner)
