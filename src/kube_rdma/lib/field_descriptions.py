"""Reads the sentence of each field that `kubectl explain` shows: the text below it in its model.

lib/schema writes them into the custom resource definitions, lib/text into the schema of values.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any


def sentences(model: type) -> dict[str, str]:
    """Return the sentences of a model's fields, by attribute; a field without one is missing.

    A sentence is the text that follows the field in its class: an attribute docstring in PEP 257.
    Fields of base classes are included.
    """
    texts: dict[str, str] = {}
    for part in reversed(model.__mro__):
        if part.__module__.startswith("kube_rdma."):
            texts |= _in_class(sys.modules[part.__module__]).get(part.__name__, {})
    return texts


def add(schema: dict[str, Any], aliases: dict[str, str], model: type) -> None:
    """Add the sentences as descriptions to the properties of a JSON schema.

    `aliases` has the properties' names by attribute.
    """
    properties = schema.get("properties", {})
    for field, text in sentences(model).items():
        if isinstance(part := properties.get(aliases.get(field, field)), dict):
            part["description"] = text


@cache
def _in_class(module: ModuleType) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(module))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_in_body(each.body)) for each in classes}


def _in_body(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())
