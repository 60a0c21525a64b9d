"""Model values to JSON and back, by their declared types alone: what a record of the journal holds.

Model values are frozen dataclasses of plain types, and know no library. Where a field may hold one
of several dataclasses (a Step), the class's name stands beside its fields. Decoding is strict: a
record with a field too many is not understood, rather than half understood; nor is one without a
field that has no default.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
T = TypeVar("T")

KIND = "is"  # beside the fields of a dataclass: which one it is

_PLAIN = frozenset({str, bool, int, float, type(None)})

# What stands in JSON as a text that is not itself.
_TEXTS: dict[type, Callable[[str], object]] = {
    bytes: lambda text: text.encode("latin-1"),
    IPv4Address: ip_address,
    IPv6Address: ip_address,
    IPv4Network: ip_network,
    IPv6Network: ip_network,
}


def encode(value: object) -> Json:
    """A value as JSON; TypeError for what no model value holds."""
    kind: type = type(value)
    return _encoder(kind)(value)


@cache
def _encoder(kind: type) -> Callable[[Any], Json]:
    """How values of a type become JSON; found out once, for a record holds many of few types."""
    if kind in _PLAIN:
        return _itself
    if is_dataclass(kind):
        return _fields_encoder(kind)
    if issubclass(kind, tuple):
        return lambda value: [encode(one) for one in value]
    if issubclass(kind, Enum):
        return lambda value: encode(value.value)
    if issubclass(kind, bytes):
        return lambda value: value.decode("latin-1")
    if issubclass(kind, str) or kind in _TEXTS:
        return str  # of a str's own kind, as PciAddress is, the text alone
    raise TypeError(f"a record cannot hold {kind.__name__}")


def _fields_encoder(kind: Any) -> Callable[[Any], Json]:
    names = tuple(one.name for one in fields(kind))

    def encoded(value: Any) -> Json:
        found: dict[str, Json] = {KIND: kind.__name__}
        for name in names:
            part = getattr(value, name)
            found[name] = part if type(part) in _PLAIN else encode(part)
        return found

    return encoded


def _itself(value: Any) -> Json:
    plain: Json = value
    return plain


def decode(of: type[T], data: Json) -> T:
    """The value of type `of` that was encoded so; raise ValueError for anything else."""
    found = _decode(of, data)
    assert isinstance(found, of)
    return found


def _decode(of: Any, data: Json) -> object:
    of = getattr(of, "__supertype__", of)  # of a NewType
    origin = get_origin(of)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(of), data)
    if origin is tuple:
        return _tuple(get_args(of), data)
    if is_dataclass(of):
        return _dataclass(of, data)
    return _plain(of, data)


def _plain(of: Any, data: Json) -> object:
    """A value without parts; of int, true is none, as in JSON."""
    if type(data) is of:
        return data
    if of is float and type(data) is int:
        return float(data)
    if isinstance(data, str) and (make := _TEXTS.get(of)):
        return make(data)
    if isinstance(data, (str, int)) and isinstance(of, type) and issubclass(of, (Enum, str)):
        return of(data)  # a str's own kind checks its text
    raise ValueError(f"{data!r:.60} is no {getattr(of, '__name__', of)}")


def _one_of(choices: tuple[Any, ...], data: Json) -> object:
    """The choice that fits: dataclasses by their name, all others by trying."""
    if isinstance(data, dict):
        named: dict[Any, Any] = {one.__name__: one for one in choices if isinstance(one, type)}
        kind = data.get(KIND)
        if kind not in named:
            raise ValueError(f"{kind!r} is none of {', '.join(named)}")
        return _dataclass(named[kind], data)
    for choice in choices:
        try:
            return _decode(choice, data)
        except ValueError:
            continue
    raise ValueError(f"{data!r:.60} is of no type that stands here")


def _tuple(of: tuple[Any, ...], data: Json) -> tuple[object, ...]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r:.60} is no list")  # noqa: TRY004  of a text, not of a call
    if len(of) == 2 and of[1] is Ellipsis:
        return tuple(_decode(of[0], one) for one in data)
    if len(of) != len(data):
        raise ValueError(f"{len(data)} entries stand where {len(of)} belong")
    return tuple(_decode(kind, one) for kind, one in zip(of, data, strict=True))


def _dataclass(of: Any, data: Json) -> object:
    if not isinstance(data, dict) or data.get(KIND) != of.__name__:
        raise ValueError(f"{data!r:.60} is no {of.__name__}")
    wanted = _hints(of)
    there = data.keys() - {KIND}
    # A field that came with a later version has its default: an agent of before did not know it.
    strange = (there - wanted.keys()) | (wanted.keys() - there - _optional(of))
    if strange:
        names = ", ".join(sorted(strange))
        raise ValueError(f"{of.__name__} has not the fields that it should: {names}")
    return of(**{name: _decode(wanted[name], data[name]) for name in there})


@cache
def _hints(of: Any) -> dict[str, Any]:
    known = get_type_hints(of)
    return {one.name: known[one.name] for one in fields(of)}


@cache
def _optional(of: Any) -> frozenset[str]:
    """The names of the fields that have a default."""
    nothing = (MISSING, MISSING)
    return frozenset(
        one.name for one in fields(of) if (one.default, one.default_factory) != nothing
    )
