"""Frozen values, made with msgspec: a class of them takes 5 µs to make, a dataclass 200 to 500.

Almost all values of the model derive from Frozen. A dataclass writes the source of its methods and
compiles it at every start of a process; a Struct has them in C. A class stays a dataclass where it
needs a field outside of __eq__, repr or __init__. See docs/decisions/0033-starting.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, dataclass_transform

from msgspec import Struct, field

if TYPE_CHECKING:
    from dataclasses import replace  # mypy checks the names and types of what is replaced
else:
    from msgspec.structs import replace

__all__ = ["Frozen", "asdict", "field", "replace"]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """The base of immutable values; two of one class are equal if all fields are."""


def asdict(value: Frozen) -> dict[str, Any]:
    """Return the fields of a value by name, with Frozen values inside of it as dicts too."""
    return {name: _as_dicts(getattr(value, name)) for name in value.__struct_fields__}


def _as_dicts(value: object) -> object:
    if isinstance(value, Frozen):
        return asdict(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_as_dicts, value))
    if isinstance(value, dict):
        return {key: _as_dicts(part) for key, part in value.items()}
    return value
