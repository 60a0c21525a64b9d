"""What a frozen value is: a Struct, whose class is made in 5 µs; that of a dataclass in 200 to 500.

A dataclass writes the source of its methods and compiles it at
every start of a process; a Struct has them in C. Whoever asks sees a dataclass still: `replace`,
`fields`, `asdict` and `is_dataclass` work as ever, and mypy checks them. What a Struct has not (a
field that is not compared, shown or given) stays a dataclass. See docs/decisions/0033-starting.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field as dataclass_field
from dataclasses import make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, dataclass_transform

from msgspec import NODEFAULT, Struct, field

if TYPE_CHECKING:
    from dataclasses import Field

__all__ = ["Frozen", "field"]


class _DataclassFields:
    """Where the functions of `dataclasses` look for fields; few classes are ever asked."""

    def __get__(self, value: object, kind: type[Struct]) -> Mapping[str, Field[Any]]:
        return _dataclass_fields(kind)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """A value that never changes; equal is one of the same class with equal fields."""

    __dataclass_fields__ = _DataclassFields()


@cache
def _dataclass_fields(kind: type[Struct]) -> Mapping[str, Field[Any]]:
    """Fields as `dataclasses` has them, of a class that is made for them and has nothing else."""
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    required = (NODEFAULT,) * (len(names) - len(defaults))
    parts = [
        (name, object, _dataclass_field(default))
        for name, default in zip(names, (*required, *defaults), strict=True)
    ]
    made: Any = make_dataclass("_", parts, init=False, repr=False, eq=False, kw_only=True)
    fields: Mapping[str, Field[Any]] = made.__dataclass_fields__
    return fields


def _dataclass_field(default: Any) -> Any:
    """A field with the default that a Struct keeps: nothing, a value, or what makes one."""
    if default is NODEFAULT:
        return dataclass_field()
    if make := getattr(default, "factory", None):
        return dataclass_field(default_factory=make)
    return dataclass_field(default=default)
