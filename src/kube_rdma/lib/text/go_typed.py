"""Objects of documents that programs in Go read or write, with what their encoding/json overlooks.

Most documents that come to kube-rdma were made for such programs, and many by them: a field that
says nothing stands there as null or as an empty text, and keys have any letters. A model that is
GoTyped reads them so; what is wrong in other ways is refused as in every dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, model_validator
from pydantic.fields import FieldInfo

from kube_rdma.lib.text.ip_words import Word
from kube_rdma.lib.text.typed import Typed
from kube_rdma.lib.text.words import TextForm


class GoTyped(Typed):
    """An object in which null says nothing, and an empty text says so where a text may stand."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_go(cls, value: object) -> object:
        return fields_of(cls, value) if isinstance(value, Mapping) else value


def fields_of(model: type[BaseModel], value: Mapping[str, Any]) -> dict[str, Any]:
    """What the object says, under the names that `model` has for its fields.

    An empty text stays where a number, a switch or an object should stand, and in a field that has
    to be there: those are faults in Go too.
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
        part is str or isinstance(part, str | Word | TextForm)
        for part in (*_parts(field.annotation), *field.metadata)
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """A type, what it may be instead, and what is said of it; a list's entries are not it."""
    yield annotation
    if get_origin(annotation) not in (tuple, list, dict):
        for inner in get_args(annotation):
            yield from _parts(inner)
