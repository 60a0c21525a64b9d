"""A JSON or YAML text as values that remember where they stood.

Every dialect gets plain values and a place for each path, so that its faults can point at the line.
lib/text/reader makes a Document of bytes. An object from the API server has no lines that a person
could look at: its faults are reported by object and field (ObjectDocument).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen

Path: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

MAX_DEPTH = 32  # no dialect comes near; a deeper text would only exhaust the stack
_SHOWN = 40  # characters of a foreign text that a sentence repeats

_INT = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class TextPosition(Frozen):
    """A position in a text: line and column from 1, in characters, as editors count."""

    line: int
    column: int


class Document(Frozen):
    """A text that was read: its value, and the positions of values and keys."""

    source: str  # name of the file, for messages
    value: Value
    values: dict[Path, TextPosition]
    keys: dict[Path, TextPosition]

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return the place of a value or key, as ``file:line:column: field``."""
        return located(self.source, self.place(path, key=key), self._written(path))

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Return the position of a value or key; of a missing one, that of the nearest above."""
        near = self._written(path)
        places = self.keys if key else self.values
        while near and near not in places:
            near = near[:-1]
        return places.get(near, self.values[()])

    def _written(self, path: Path) -> Path:
        """Return `path` without the index of a list entry that is written without its list."""
        written: Path = ()
        value = self.value
        for part in path:
            if isinstance(value, dict) and isinstance(part, int):
                continue
            written = (*written, part)
            if isinstance(value, dict):
                value = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int):
                value = value[part] if part < len(value) else None
        return written


class ManifestDocument(Document):
    """A document of a file that people apply; `remarks` are surprises in its text."""

    remarks: tuple[Refused, ...] = ()


class Section(Document):
    """The part of a document below the path `base`; its positions are those of the whole text."""

    whole: Document
    base: Path

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return the place of a value, as the whole document names it."""
        return self.whole.where((*self.base, *path), key=key)

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Return the position of a value in the whole document."""
        return self.whole.place((*self.base, *path), key=key)


def section(document: Document, base: Path) -> Section:
    """Return the part of the document at `base`; its value is None where the path leads nowhere."""
    value: Value = document.value
    for part in base:
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = None
    return Section(document.source, value, document.values, document.keys, document, base)


def unreadable(source: str, error: OSError) -> Refused:
    """Return the refusal for a file that the operating system did not let kube-rdma read."""
    if isinstance(error, FileNotFoundError):
        problem = "there is no such file"
        remedy = "Create it (in a pod: mount the ConfigMap there), or name another file"
    elif isinstance(error, IsADirectoryError):
        problem = "this is a folder"
        remedy = f"Name the file in it, such as {source.rstrip('/')}/config.json"
    else:
        problem = f"the file cannot be read ({error.strerror or error})"
        remedy = "Let the user that kube-rdma runs as read it, and look at its disk or mount"
    return Refused(problem, remedy=remedy, where=source)


def shown(text: object) -> str:
    """Return a value as JSON for a message, on one line and cut if it is long."""
    quoted = json.dumps(text, ensure_ascii=False, default=str)
    return quoted if len(quoted) <= _SHOWN else quoted[: _SHOWN - 2] + "…" + quoted[-1]


def name(path: Path) -> str:
    """Return a path as text, as people write it: pools[0].mode."""
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{part if part.isidentifier() else shown(part)}"
        for part in path
    )
    return "".join(parts).removeprefix(".")


def located(source: str, place: TextPosition, path: Path = ()) -> str:
    """Return ``file:line:column: field``; for an empty path the field is left out."""
    field = f": {name(path)}" if path else ""
    return f"{source}:{place.line}:{place.column}{field}"


def plain(word: str) -> Value:
    """Return the value that an unquoted YAML word stands for."""
    if word in _WORDS:
        return _WORDS[word]
    if _INT.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


class ObjectDocument(Document):
    """An object from the API server, or a part of one, as a Document; it has no lines."""

    base: Path = ()

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return the place of a value by object and path: ``IPPool rail-0: spec.ranges[0].end``."""
        return ": ".join(part for part in (self.source, name((*self.base, *path))) if part)

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Return a stand-in for a position, which orders fields as they stand in the object."""
        order = {part: number for number, part in enumerate(_paths(self.value, ()))}
        near = path
        while near and near not in order:
            near = near[:-1]
        return TextPosition(order.get(near, 0), len(path))


def of_value(value: Value, source: str = "", base: Path = ()) -> ObjectDocument:
    """Return a Document of a decoded object, whose messages name paths below `base`."""
    return ObjectDocument(source, value, {}, {}, base)


def of_json(data: bytes, source: str = "", base: Path = ()) -> ObjectDocument:
    """Return the Document of JSON; raise Refused when it is not JSON."""
    try:
        return of_value(decoded(data), source, base)
    except Undecodable as error:
        raise Refused(f"this is not JSON: {error.why}", remedy="Write JSON", where=source) from None


def _paths(value: Value, path: Path) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))
