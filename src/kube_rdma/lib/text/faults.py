"""Turns what pydantic found wrong into sentences, each with its place and its remedy.

Second half of every dialect: lib/text/document knows where things stand, the dialect's model knows
what may stand there, and here both meet. All faults are reported at once, of very many the first
and how many there are. A rule that pydantic does not have raises `slips` in a validator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class Slip(Frozen):
    """A fault that a validator found; `path` leads on from the validated value."""

    problem: str
    remedy: str
    path: Path = ()


def slips(*faults: Slip) -> PydanticCustomError:
    """What a validator raises."""
    return PydanticCustomError(_SLIPS, "see the context", {_SLIPS: faults})


def validate(model: type[Dialect], document: Document) -> Dialect:
    """`document` as `model`; raise Refused with its faults, in the order of the text."""
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
    """The refusal of a document that is not a mapping."""
    value = document.value
    if value is None:
        problem = "the document is empty"
    else:
        content = "a list" if isinstance(value, list) else f"only {shown(value)}"
        problem = f"the document is {content}, and should have fields with names"
    return Refused(problem, remedy=remedy, where=document.where(()))


def near(given: str, names: Sequence[str]) -> str | None:
    """The one of `names` that was probably meant."""
    by_lower = {name.lower(): name for name in names}
    matches = get_close_matches(given.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def _faults(
    error: ErrorDetails, model: type[BaseModel], document: Document
) -> Iterator[tuple[TextPosition, Refused]]:
    """What pydantic's `error` says, with its place in the text; several when they are slips."""
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
    words = _SENTENCES.get(error["type"], _unfit)
    problem, remedy = words(error, _model_at(model, path[:-1]))
    where = document.where(path, key=key)
    yield document.place(path, key=key), Refused(problem, remedy=remedy, where=where)


def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """The fields by the names that documents have for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _field(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, FieldInfo]:
    """The field that the error is about, also when it is about an entry of it."""
    name = next(str(part) for part in reversed(error["loc"]) if part in _fields(model))
    return name, _fields(model)[name]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """The model of the object at `path` in a document of `model`."""
    for part in path:
        field = _fields(model).get(str(part))
        inner = [each for each in _types(field.annotation) if _is_model(each)] if field else []
        model = inner[0] if inner else model
    return model


def _types(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


def _is_model(kind: Any) -> bool:
    return isclass(kind) and issubclass(kind, BaseModel)


def _choices(field: FieldInfo) -> list[str]:
    """The values that a field with a choice allows."""
    for kind in _types(field.annotation):
        if isclass(kind) and issubclass(kind, Enum):
            return [str(member.value) for member in kind]
        if get_origin(kind) is Literal:
            return [str(value) for value in get_args(kind)]
    return []


def _entry(model: type[BaseModel], name: str) -> str:
    """The field with a value that it may have, where one is known: ``"rdmaHcaMax": 1000``."""
    field = _fields(model)[name]
    examples = field.examples or _choices(field)
    return f'"{name}": {json.dumps(examples[0]) if examples else "…"}'


def _missing(error: ErrorDetails, model: type[BaseModel]) -> Sentences:
    return "the field is missing", f"Add {_entry(model, str(error['loc'][-1]))}"


def _unknown(error: ErrorDetails, model: type[BaseModel]) -> Sentences:
    fields = list(_fields(model))
    remedy = _meant(str(error["loc"][-1]), fields) or f"Remove it; known: {', '.join(fields)}"
    return "there is no such field", remedy


def _no_choice(error: ErrorDetails, model: type[BaseModel]) -> Sentences:
    allowed = _choices(_field(error, model)[1])
    remedy = _meant(str(error["input"]), allowed) or f"Allowed: {', '.join(allowed)}"
    return f"{shown(error['input'])} is not a value of this field", remedy


def _meant(given: str, names: Sequence[str]) -> str | None:
    closest = near(given, names)
    return f"Did you mean {shown(closest)}? Known: {', '.join(names)}" if closest else None


def _no_list(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    given = error["input"]
    if given is None:
        return f"{shown(given)} is not a list", "Write a list in brackets, or leave the field out"
    return f"{shown(given)} is not a list", f"Write it in brackets: [{shown(given)}]"


def _no_object(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    return f"{shown(error['input'])} has no fields", 'Write an object: {"field": value}'


def _no_text(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    if isinstance(error["input"], bool | int | float):
        return f"{shown(error['input'])} is not a text", "Put it in quotes"
    return f"{shown(error['input'])} is not a text", "Write one text in quotes"


def _no_number(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    return f"{shown(error['input'])} is not a whole number", "Write digits, without quotes"


def _no_switch(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    return f"{shown(error['input'])} is neither true nor false", "Allowed: true, false"


def _too_small(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    return f"{shown(error['input'])} is too small", f"Write {error['ctx']['ge']} or more"


def _too_large(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    return f"{shown(error['input'])} is too large", f"Write {error['ctx']['le']} or less"


def _empty(error: ErrorDetails, model: type[BaseModel]) -> Sentences:
    name, _ = _field(error, model)
    return "the list is empty", f"Write at least one entry: {_entry(model, name)}"


def _too_many(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    most = error["ctx"]["max_length"]
    return f"it has more than {most} entries", f"Keep {most} or fewer"


def _too_long(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    most = error["ctx"]["max_length"]
    return f"{shown(error['input'])} has more than {most} characters", "Write a shorter text"


def _unfit(error: ErrorDetails, _: type[BaseModel]) -> Sentences:
    """What pydantic says, of what has no sentence here."""
    return f"{shown(error['input'])} does not fit here", error["msg"].rstrip(".")


_SENTENCES: Mapping[str, Callable[[ErrorDetails, type[BaseModel]], Sentences]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "literal_error": _no_choice,
    "enum": _no_choice,
    "tuple_type": _no_list,
    "dict_type": _no_object,
    "model_type": _no_object,
    "string_type": _no_text,
    "int_type": _no_number,
    "bool_type": _no_switch,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_large,
    "too_short": _empty,
    "too_long": _too_many,
    "string_too_long": _too_long,
}
