"""Turns what pydantic found wrong into our sentences, each with its place and its remedy.

Second half of every dialect: api/document knows where things stand, the dialect's model knows what
may stand there, and here both meet. All faults are told at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kube_rdma.api.document import Document, shown
from kube_rdma.model.errors import Refused

Dialect = TypeVar("Dialect", bound=BaseModel)


def validate(model: type[Dialect], document: Document) -> Dialect:
    """`document` as `model`; raise Refused with every fault of it, in the order of the text."""
    if not isinstance(document.value, dict):
        first = next(iter(model.model_fields))
        remedy = f'Write {{"{first}": "{_allowed(model, first)[0]}"}}'
        raise Refused(_kind(document.value), remedy=remedy, where=document.where(()))
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda one: _position(one, document))
        raise Refused.all([_refusal(one, model, document) for one in found]) from None


def _position(one: ErrorDetails, document: Document) -> tuple[int, int]:
    place = document.keys.get(one["loc"], document.values[()])
    return place.line, place.column


def _refusal(one: ErrorDetails, model: type[BaseModel], document: Document) -> Refused:
    path = one["loc"]
    last = str(path[-1])
    where = document.where(path)
    match one["type"]:
        case "missing":
            problem = "the field is missing"
            remedy = f'Add "{last}": "{_allowed(model, last)[0]}"'
        case "extra_forbidden":
            where = document.where(path, key=True)
            problem = "there is no such field"
            known = list(model.model_fields)
            remedy = _near(last, known) or f"Remove it; known: {', '.join(known)}"
        case "literal_error":
            problem = f"{shown(one['input'])} is not a value of this field"
            allowed = _allowed(model, last)
            remedy = _near(str(one["input"]), allowed) or f"Allowed: {', '.join(allowed)}"
        case kind:
            raise AssertionError(f"no sentence for pydantic's {kind}")
    return Refused(problem, remedy=remedy, where=where)


def _allowed(model: type[BaseModel], field: str) -> list[str]:
    return [str(value) for value in get_args(model.model_fields[field].annotation)]


def _near(given: str, known: Sequence[str]) -> str | None:
    """The correction of a slip, when one of `known` is near."""
    near = get_close_matches(given.lower(), known, n=1)
    return f"Did you mean {shown(near[0])}? Known: {', '.join(known)}" if near else None


def _kind(value: object) -> str:
    """What is wrong with a document that is no mapping."""
    if value is None:
        return "the document is empty"
    found = "a list" if isinstance(value, list) else f"only {shown(value)}"
    return f"the document is {found}, and should have fields with names"
