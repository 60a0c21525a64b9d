"""Reads a JSON or YAML text and remembers where everything stood.

First step of every dialect in api: bytes become plain values plus a place for each path, so that
whoever judges the values can point at the line. All faults that do not stop the reading are kept
and reported together.

People mix both languages up, and JSON is YAML, but for tabs in front of its first bracket, which
are read as blanks. What is JSON to the letter is read here; api/text/yaml_text reads all else, and
says what is wrong with it. So YAML's liberties, such as a comma after the last entry, are taken
from JSON too, and a process that meets no YAML loads no parser for it.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from kube_base.errors import Refused
from kube_base.frozen import Frozen

Path: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

MAX_BYTES = 1 << 20  # a ConfigMap cannot hold more
MAX_DEPTH = 32  # no dialect comes near; a deeper text would only exhaust the stack
MOST_OF_MANIFESTS = 16 << 20  # bytes; of others' definitions too, which are long and deep
_SHOWN = 40  # characters of a foreign text that a sentence repeats

_BEFORE_JSON = re.compile(r"[ \t\r\n]*(?=[\[{])")
_SIGN = re.compile(  # of JSON, behind blanks
    r'[ \t\n]*([{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|true|false|null'
    r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
)
_LONGEST_NAME = 1000  # characters; YAML's limit is near, and its reader says so
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class TextPosition(Frozen):
    """A position in a text, both from 1 and in characters, as editors count."""

    line: int
    column: int


class Document(Frozen):
    """A text that was read: its value, and the places of values and of their keys."""

    source: str  # name of the file, for messages
    value: Value
    values: dict[Path, TextPosition]
    keys: dict[Path, TextPosition]

    def where(self, path: Path, *, key: bool = False) -> str:
        """``file:line:column: field`` of a value or of its key."""
        return located(self.source, self.place(path, key=key), self._written(path))

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Where a value or its key stands; for one that is not there, the nearest that holds it."""
        near = self._written(path)
        places = self.keys if key else self.values
        while near and near not in places:
            near = near[:-1]
        return places.get(near, self.values[()])

    def _written(self, path: Path) -> Path:
        """`path` without the index of the only entry where one object stands for a list of one."""
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


class Section(Document):
    """The part of a document at `base`, with the places of the whole text."""

    whole: Document
    base: Path

    def where(self, path: Path, *, key: bool = False) -> str:
        """As of the whole."""
        return self.whole.where((*self.base, *path), key=key)

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """As of the whole."""
        return self.whole.place((*self.base, *path), key=key)


def section(document: Document, base: Path) -> Section:
    """What stands at `base`, None where nothing does."""
    value: Value = document.value
    for part in base:
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = None
    return Section(document.source, value, document.values, document.keys, document, base)


def read(data: bytes, source: str) -> Document:
    """The document in `data`; `source` names it in messages.

    Raise Refused, with all faults found, when it cannot be read as one JSON or YAML document.
    """
    text = _decode(data, source, MAX_BYTES)
    if document := _json(text, source):
        return document
    from kube_rdma.api.text import yaml_text  # late: see above

    return yaml_text.read(text, data, source)


def read_all(data: bytes, source: str) -> tuple[Document, ...]:
    """All documents of manifests, without empty ones; else as `read`."""
    text = _decode(data, source, MOST_OF_MANIFESTS)
    if document := _json(text, source):
        return (document,)
    from kube_rdma.api.text import yaml_text

    return yaml_text.read_all(text, data, source)


def unreadable(source: str, error: OSError) -> Refused:
    """The refusal for a file that the operating system did not let kube-rdma read."""
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
    """A foreign value as JSON, on one line and not too long."""
    quoted = json.dumps(text, ensure_ascii=False, default=str)
    return quoted if len(quoted) <= _SHOWN else quoted[: _SHOWN - 2] + "…" + quoted[-1]


def name(path: Path) -> str:
    """A path as people write it: pools[0].mode."""
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{part if part.isidentifier() else shown(part)}"
        for part in path
    )
    return "".join(parts).removeprefix(".")


def located(source: str, place: TextPosition, path: Path = ()) -> str:
    """``file:line:column: field``; nothing of a field for the whole document."""
    field = f": {name(path)}" if path else ""
    return f"{source}:{place.line}:{place.column}{field}"


def _json(text: str, source: str) -> Document | None:
    """The document of what is JSON to the letter."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    reader = _JsonReader(text)
    try:
        return Document(source, reader.document(), reader.values, reader.keys)
    except _NotPlainError:
        return None


class _NotPlainError(Exception):
    """The text is not JSON to the letter, or has something that YAML's reader is to judge."""


class _JsonReader:
    """Reads a text from sign to sign: brackets, commas, colons, texts, words and numbers."""

    def __init__(self, text: str) -> None:
        self.values: dict[Path, TextPosition] = {}
        self.keys: dict[Path, TextPosition] = {}
        self._text = text
        self._start = self._end = 0  # of the sign
        self._line, self._begin = 1, 0  # in which the sign stands, and where that begins

    def document(self) -> Value:
        """The value that is the whole text."""
        value = self._value(self._next(), ())
        if self._text[self._end :].strip(" \n"):
            raise _NotPlainError
        return value

    def _next(self) -> str:
        match = _SIGN.match(self._text, self._end)
        if match is None:
            raise _NotPlainError
        before, self._start = self._end, match.start(1)
        if breaks := self._text.count("\n", before, self._start):
            self._line += breaks
            self._begin = self._text.rindex("\n", before, self._start) + 1
        self._end = match.end()
        return match[1]

    def _place(self) -> TextPosition:
        return TextPosition(self._line, self._start - self._begin + 1)

    def _value(self, sign: str, path: Path) -> Value:
        self.values[path] = self._place()
        if sign in {"]", "}", ",", ":"} or len(path) > MAX_DEPTH:
            raise _NotPlainError
        if sign == "{":
            return self._mapping(path)
        if sign == "[":
            return self._sequence(path)
        return _string(sign) if sign[0] == '"' else plain(sign)

    def _mapping(self, path: Path) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        sign = self._next()
        while sign != "}":
            key = _string(sign)
            inside = (*path, key)
            self.keys[inside] = place = self._place()
            if key in mapping or len(sign) > _LONGEST_NAME:
                raise _NotPlainError
            if self._next() != ":" or self._line != place.line:
                raise _NotPlainError
            mapping[key] = self._value(self._next(), inside)
            sign = self._further("}")
        return mapping

    def _sequence(self, path: Path) -> list[Value]:
        sequence: list[Value] = []
        sign = self._next()
        while sign != "]":
            sequence.append(self._value(sign, (*path, len(sequence))))
            sign = self._further("]")
        return sequence

    def _further(self, end: str) -> str:
        """The end, or what follows a comma."""
        sign = self._next()
        if sign == ",":
            sign = self._next()
            if sign != end:
                return sign
        elif sign == end:
            return sign
        raise _NotPlainError


def _string(sign: str) -> str:
    """A text in quotes; one that YAML reads in another way is left to YAML."""
    if sign[0] != '"' or not sign.isprintable() or "\\ud" in sign.lower():
        raise _NotPlainError
    if "\\" not in sign:
        return sign[1:-1]
    try:
        text: str = json.loads(sign)
    except ValueError:
        raise _NotPlainError from None
    return text


def plain(word: str) -> Value:
    """The value of a word without quotes."""
    if word in _WORDS:
        return _WORDS[word]
    if _INT.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def _decode(data: bytes, source: str, most: int) -> str:
    if len(data) > most:
        problem = f"the file is larger than {most >> 20} MiB, so it is not a configuration"
        raise Refused(problem, remedy="Name the right file", where=source)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8 text"
        remedy = "Save the file as UTF-8, or name the right file"
        raise Refused(problem, remedy=remedy, where=source) from None
    blanks = _BEFORE_JSON.match(text)
    return blanks[0].replace("\t", " ") + text[blanks.end() :] if blanks else text
