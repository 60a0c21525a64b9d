"""Turns what pydantic found wrong into sentences, each with its place and its remedy.

It is the second half of every dialect: lib/text/document knows where things stand, the dialect's
model knows what may stand there, and here both meet. All faults are reported at once, of very many
the first and the number of the others. A rule that pydantic does not have raises `slips` in a
validator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from inspect import isclass
from itertools import islice
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from kube_base.errors import MOST_FAULTS, Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import Document, Path, TextPosition, shown

Dialect = TypeVar("Dialect", bound=BaseModel)
Sentences = tuple[str, str]  # what is wrong, what to do about it

_SLIPS = "slips"
_REMOVE = "Remove it"


class Slip(Frozen):
    """A fault that a validator found; `path` is relative to the value that is validated."""

    problem: str
    remedy: str
    path: Path = ()


def slips(*faults: Slip) -> PydanticCustomError:
    """Return the pydantic error by which a validator reports these faults."""
    return PydanticCustomError(_SLIPS, "see the context", {_SLIPS: faults})


def raise_slips(faults: Iterable[Slip]) -> None:
    """Raise the pydantic error for a validator's faults; do nothing if there are none."""
    if listed := tuple(faults):
        raise slips(*listed)


def validate(model: type[Dialect], document: Document) -> Dialect:
    """Return the value of a document as `model`.

    Raise Refused with MOST_FAULTS faults at most, in the order of the text, and how many more.
    """
    if not isinstance(document.value, dict):
        raise no_fields(document, f"Write {{{_entry(model, next(iter(_fields(model))))}}}")
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        every = (fault for one in errors for fault in _faults(one, model, document))
        faults = sorted(
            islice(every, MOST_FAULTS), key=lambda fault: (fault[0].line, fault[0].column)
        )
        refusals = [refused for _, refused in faults]
        if (
            count := sum(len(one.get("ctx", {}).get(_SLIPS, (0,))) for one in errors)
        ) > MOST_FAULTS:
            problem = f"there are {count - MOST_FAULTS} more faults"
            refusals.append(Refused(problem, remedy="Mend these first", where=document.where(())))
        raise Refused.all(refusals) from None


def no_fields(document: Document, remedy: str) -> Refused:
    """Return the refusal of a document that is not a mapping."""
    value = document.value
    if value is None:
        problem = "the document is empty"
    else:
        content = "a list" if isinstance(value, list) else f"only {shown(value)}"
        problem = f"the document is {content}, and should have fields with names"
    return Refused(problem, remedy=remedy, where=document.where(()))


def near(given: str, names: Sequence[str]) -> str | None:
    """Return the one of `names` that a misspelled name probably means; None without one."""
    by_lower = {name.lower(): name for name in names}
    matches = get_close_matches(given.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def _faults(
    error: ErrorDetails, model: type[BaseModel], document: Document
) -> Iterator[tuple[TextPosition, Refused]]:
    """Yield the Refused and its position for each fault that a pydantic error stands for."""
    path = error["loc"]
    if error["type"] == _SLIPS:
        for slip in error["ctx"][_SLIPS]:
            whole = (*path, *slip.path)
            refused = Refused(slip.problem, remedy=slip.remedy, where=document.where(whole))
            yield document.place(whole), refused
        return
    if error["type"] == "too_short" and error["input"]:
        return  # every entry is wrong, and pydantic counts the right ones
    key = error["type"] == "extra_forbidden"
    problem, remedy = _sentences(error, _model_at(model, path[:-1]))
    if key and remedy.startswith(_REMOVE):
        remedy = _place_of(model, path) or remedy
    where = document.where(path, key=key)
    yield document.place(path, key=key), Refused(problem, remedy=remedy, where=where)


def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by the names that they have in documents."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _field(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, FieldInfo]:
    """Return name and info of the field that a pydantic error is about, or whose entry it is."""
    name = next(str(part) for part in reversed(error["loc"]) if part in _fields(model))
    return name, _fields(model)[name]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """Return the model of the object at `path` in a document of `model`."""
    for part in path:
        field = _fields(model).get(str(part))
        model = next(_models(field), model) if field else model
    return model


def _place_of(model: type[BaseModel], path: Path) -> str:
    """Return advice to move an unknown field into an object here, or one level up; "" for none."""
    name, holder = str(path[-1]), tuple(step for step in path[:-1] if isinstance(step, str))
    for field, info in _fields(_model_at(model, holder)).items():
        if any(name in _fields(kind) for kind in _models(info)):
            return f"Write it inside of {field}"
    known = holder and name in _fields(_model_at(model, holder[:-1]))
    return f"Write it one level higher, beside {holder[-1]}" if known else ""


def _models(field: FieldInfo) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of the field can be of."""
    for kind in _types(field.annotation):
        if isclass(kind) and issubclass(kind, BaseModel):
            yield kind


def _types(annotation: Any) -> Iterator[Any]:
    """Yield a type and all types that it consists of."""
    yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


def _choices(field: FieldInfo) -> list[str]:
    """Return the values that a field of an Enum or Literal type allows; [] for any other field."""
    for kind in _types(field.annotation):
        if isclass(kind) and issubclass(kind, Enum):
            return [str(member.value) for member in kind]
        if get_origin(kind) is Literal:
            return [str(value) for value in get_args(kind)]
    return []


def _entry(model: type[BaseModel], name: str) -> str:
    """Return an example of a field with a value, for a remedy: ``"rdmaHcaMax": 1000``."""
    field = _fields(model)[name]
    examples = field.examples or _choices(field)
    return f'"{name}": {json.dumps(examples[0]) if examples else "…"}'


def _sentences(error: ErrorDetails, model: type[BaseModel]) -> Sentences:
    """Return problem and remedy for a pydantic error in an object of `model`.

    If this module has no words for the error, they are pydantic's.
    """
    given, kind = error["input"], error["type"]
    if kind == "missing":
        return "the field is missing", f"Add {_entry(model, str(error['loc'][-1]))}"
    if kind == "extra_forbidden":
        fields = list(_fields(model))
        remedy = _meant(str(error["loc"][-1]), fields) or f"{_REMOVE}; known: {', '.join(fields)}"
        return "there is no such field", remedy
    value = shown(given)
    if kind in ("literal_error", "enum"):
        allowed = _choices(_field(error, model)[1])
        remedy = _meant(str(given), allowed) or f"Allowed: {', '.join(allowed)}"
        return f"{value} is not a value of this field", remedy
    if kind == "tuple_type":
        in_brackets = f"Write it in brackets: [{value}]"
        remedy = (
            "Write a list in brackets, or leave the field out" if given is None else in_brackets
        )
        return f"{value} is not a list", remedy
    if kind == "string_type":
        is_scalar = isinstance(given, bool | int | float)
        return f"{value} is not a text", (
            "Put it in quotes" if is_scalar else "Write one text in quotes"
        )
    if kind == "too_short":
        return (
            "the list is empty",
            f"Write at least one entry: {_entry(model, _field(error, model)[0])}",
        )
    if kind in _TEMPLATES:
        problem, remedy = _TEMPLATES[kind]
        limits = error.get("ctx", {})
        return problem.format(value=value, **limits), remedy.format(**limits)
    return f"{value} does not fit here", error["msg"].rstrip(".")


def _meant(given: str, names: Sequence[str]) -> str | None:
    closest = near(given, names)
    return f"Did you mean {shown(closest)}? Known: {', '.join(names)}" if closest else None


_NO_OBJECT = ("{value} has no fields", 'Write an object: {{"field": value}}')
_TEMPLATES: Mapping[str, Sentences] = {  # templates of sentences, by the type of pydantic's error
    "dict_type": _NO_OBJECT,
    "model_type": _NO_OBJECT,
    "int_type": ("{value} is not a whole number", "Write digits, without quotes"),
    "bool_type": ("{value} is neither true nor false", "Write true or false, without quotes"),
    "greater_than_equal": ("{value} is too small", "Write {ge} or more"),
    "less_than_equal": ("{value} is too large", "Write {le} or less"),
    "too_long": ("it has more than {max_length} entries", "Keep {max_length} or fewer"),
    "string_too_long": ("{value} has more than {max_length} characters", "Write a shorter text"),
}
