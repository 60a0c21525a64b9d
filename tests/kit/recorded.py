"""What can stand in a record: every class of values and every enum that a journal may hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum, EnumType
from inspect import isclass, signature
from typing import Any, get_args, get_type_hints

from kube_base.frozen import Frozen
from kube_rdma.adapters.journal.codec import RECORDS

ROOTS: tuple[type, ...] = tuple(of for kinds in RECORDS for of in kinds.values())


def hints(of: Any) -> dict[str, Any]:
    """The type of each field."""
    types = get_type_hints(of)
    return {name: types[name] for name in signature(of).parameters}


def has_fields(of: Any) -> bool:
    """Whether it is a class of values, nearly all of which are frozen."""
    return isclass(of) and (issubclass(of, Frozen) or is_dataclass(of))


def reached(*roots: Any) -> tuple[type, ...]:
    """The classes and enums that values of these types may hold, the types themselves too."""
    seen: dict[Any, None] = {}
    todo = list(roots)
    while todo:
        of = todo.pop()
        of = getattr(of, "__supertype__", of)
        if args := get_args(of):
            todo += args
        elif of not in seen and (has_fields(of) or isinstance(of, EnumType)):
            seen[of] = None
            todo += hints(of).values() if has_fields(of) else ()
    return tuple(seen)


def records() -> tuple[type, ...]:
    """Every class that stands in a record."""
    return tuple(filter(has_fields, reached(*ROOTS)))


def words() -> frozenset[Any]:
    """Every value of every enum that stands in a record."""
    return frozenset(word for of in reached(*ROOTS) if issubclass(of, Enum) for word in of)


def parts(value: Any) -> Iterator[Any]:
    """A value and everything in it."""
    yield value
    if has_fields(type(value)):
        for name in signature(type(value)).parameters:
            yield from parts(getattr(value, name))
    elif isinstance(value, tuple):
        for part in value:
            yield from parts(part)
