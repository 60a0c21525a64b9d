"""Converts values of the model to JSON values, by reflection, for `-o json`.

Views build their documents of these, so that they spell keys in camelCase and show enums, addresses
and absent values alike. Keys that are no fields are written by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any

from kube_base.frozen import Frozen


def camel_case(name: str) -> str:
    """Return a name of Python as a key of JSON: node_guid becomes nodeGuid."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def json_object(
    value: Frozen, *only: str, without: Collection[str] = (), **further: object
) -> dict[str, Any]:
    """Return the fields of a value by their keys, all of them or `only` some, in that order.

    `only` may name properties too. `further` are more keys, or other values for keys, named as in
    JSON.
    """
    names = dict(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
    return {
        camel_case(names.get(name, name)): json_value(getattr(value, name))
        for name in only or names
        if name not in without
    } | {key: json_value(more) for key, more in further.items()}


def json_list(
    values: Iterable[Frozen] | None, *only: str, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return a list of each value as json_object; [] for None, which could not be read."""
    return [json_object(value, *only, without=without) for value in values or ()]


def json_value(value: object) -> Any:
    """Return a value as JSON has it: enums by value, addresses as text, None as null."""
    if value is None or isinstance(value, bool | int | float):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Frozen):
        return json_object(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [json_value(part) for part in value]
    return str(value.value if isinstance(value, Enum) else value)
