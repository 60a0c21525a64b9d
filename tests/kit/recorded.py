"""What can stand in a record: every dataclass and every enum that one of the journals may hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum, EnumType
from typing import Any, get_args, get_type_hints

from kube_rdma.adapters.journal.format import RECORDS

ROOTS: tuple[type, ...] = tuple(of for kinds in RECORDS for of in kinds.values())


def hints(of: Any) -> dict[str, Any]:
    """The type of each field."""
    types = get_type_hints(of)
    return {part.name: types[part.name] for part in fields(of)}


def reached(*roots: Any) -> tuple[type, ...]:
    """The dataclasses and enums that values of these types may hold, the types themselves too."""
    seen: dict[Any, None] = {}
    todo = list(roots)
    while todo:
        of = todo.pop()
        of = getattr(of, "__supertype__", of)
        if args := get_args(of):
            todo += args
        elif of not in seen and (is_dataclass(of) or isinstance(of, EnumType)):
            seen[of] = None
            todo += hints(of).values() if is_dataclass(of) else ()
    return tuple(seen)


def dataclasses() -> tuple[type, ...]:
    """Every dataclass that stands in a record."""
    return tuple(filter(is_dataclass, reached(*ROOTS)))


def words() -> frozenset[Any]:
    """Every value of every enum that stands in a record."""
    return frozenset(word for of in reached(*ROOTS) if issubclass(of, Enum) for word in of)


def parts(value: Any) -> Iterator[Any]:
    """A value and everything in it."""
    yield value
    if is_dataclass(value):
        for part in fields(value):
            yield from parts(getattr(value, part.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from parts(part)
