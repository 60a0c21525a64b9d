"""Reads the assignments of ``--set`` as Helm does.

Paths have names and indices, and commas stand between pairs. A backslash makes the next character
plain text, and braces hold a list (helm.sh, "The Format and Limitations of --set"). Besides, a
value can be JSON, as with Helm's ``--set-json``. The last value of a text can be YAML that begins
with a bracket or a quote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kube_base.errors import Refused
from kube_rdma.lib.text import reader

Path: TypeAlias = tuple[str | int, ...]
"""Names of fields and indices of lists, from the outside in."""

_NAME = r"(?:\\.|[^\\.,=\[\]])+"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME}|\[[0-9]{{1,4}}\])*=")
_STEP = re.compile(rf"\[([0-9]+)\]|({_NAME})")
_SCALAR = re.compile(r"(?:\\.|[^\\,])*", re.DOTALL)
_ENTRY = re.compile(r"((?:\\.|[^\\,])*),", re.DOTALL)
_LIST = re.compile(r"\{((?:\\.|[^\\{}])*)\}(?=,|\Z)", re.DOTALL)
_JSON = json.JSONDecoder()
_STRUCTURED = ("[", "{", '"', "'")  # how JSON and YAML of more than a word begin
_WORDS = {"true": True, "false": False, "null": None}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def pairs(text: str, where: str) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of each assignment in ``a.b=1,c[0].d=x``.

    Raise Refused for a text of another form.
    """
    place = 0
    while True:
        path = _PATH.match(text, place)
        if path is None:
            raise Refused(
                f"{text!r} sets no value at {text[place:]!r}",
                remedy="Write it like image.tag=0.1.0 or controller.tolerations[0].key=a, with a "
                "backslash before a comma of a value, or give a file with --values",
                where=where,
            )
        value, place = _value(text, path.end(), where)
        steps = _STEP.findall(path[0][:-1])
        yield tuple(int(index) if index else _plain(name) for index, name in steps), value
        if place == len(text):
            return
        place += 1  # the comma


def put(node: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a copy of `node` with a value at a path.

    A value that is in the path's way is replaced; a list that is too short gets entries None.
    """
    if not path:
        return value
    step, *rest = path
    if isinstance(step, str):
        fields = dict(node) if isinstance(node, Mapping) else {}
        return fields | {step: put(fields.get(step), rest, value)}
    entries = list(node) if isinstance(node, list) else []
    entries += [None] * (step + 1 - len(entries))
    entries[step] = put(entries[step], rest, value)
    return entries


def _value(text: str, start: int, where: str) -> tuple[Any, int]:
    """Return the value that begins at an index of the text, and the index of its end."""
    if text[start : start + 1] in _STRUCTURED:
        with suppress(ValueError, RecursionError):
            value, end = _JSON.raw_decode(text, start)
            if end == len(text) or text[end] == ",":
                return value, end
        if entries := _LIST.match(text, start):
            return [_typed(one) for one in _ENTRY.findall(f"{entries[1]},")], entries.end()
        return reader.read(text[start:].encode(), where).value, len(text)
    scalar = _SCALAR.match(text, start)
    assert scalar  # it matches nothing, too
    return _typed(scalar[0]), scalar.end()


def _typed(text: str) -> Any:
    """Return the value of an unquoted word: true, false, null, a whole number, else the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    return int(text) if _INTEGER.fullmatch(text) else _plain(text)


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
