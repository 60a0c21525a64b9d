"""Reads a JSON or YAML text and remembers where everything stood.

It is the first step of every dialect: bytes become a Document. All faults that do not stop the
reading are kept and reported together.

People mix both languages up, and JSON is YAML, except for tabs in front of its first bracket, which
are read as blanks. A text that is strictly JSON is read here. lib/text/yaml_manifests reads all
else and says what is wrong with it. So YAML's liberties, such as a comma after the last entry, hold
for JSON too. A process that meets no YAML loads no parser for it.
"""

from __future__ import annotations

import json
import re

from kube_base.errors import Refused
from kube_rdma.lib.text import document as texts

MAX_BYTES = 1 << 20  # a ConfigMap cannot hold more
MOST_OF_MANIFESTS = 16 << 20  # bytes; of others' definitions too, which are long and deep

_BEFORE_JSON = re.compile(r"[ \t\r\n]*(?=[\[{])")
_SIGN = re.compile(  # of JSON, behind blanks
    r'[ \t\n]*([{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|true|false|null'
    r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
)
_LONGEST_NAME = 1000  # characters; YAML's limit is near, and its reader says so


def read(data: bytes, source: str) -> texts.Document:
    """Return the document in `data`; `source` names it in messages.

    Raise Refused, with all faults found, when it cannot be read as one JSON or YAML document.
    """
    text = _decode(data, source, MAX_BYTES)
    if document := _json(text, source):
        return document
    from kube_rdma.lib.text import yaml_manifests  # late: see above

    return yaml_manifests.read(text, data, source)


def read_all(data: bytes, source: str) -> tuple[texts.ManifestDocument | Refused, ...]:
    """Return all documents of a file; a document that cannot be read is a Refused.

    Empty documents are left out. Raise Refused if the file is too large or no UTF-8 text.
    """
    text = _decode(data, source, MOST_OF_MANIFESTS)
    if document := _json(text, source):
        return (texts.ManifestDocument(source, document.value, document.values, document.keys),)
    from kube_rdma.lib.text import yaml_manifests  # late: see above

    return tuple(yaml_manifests.read_all(text, source))


def _json(text: str, source: str) -> texts.Document | None:
    """Return the document of a text that is strictly JSON; None for any other text."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    reader = _JsonReader(text)
    try:
        return texts.Document(source, reader.document(), reader.values, reader.keys)
    except _NotPlainError:
        return None


class _NotPlainError(Exception):
    """The error for a text that is not strictly JSON, or that the YAML reader has to judge."""


class _JsonReader:
    """A reader of JSON that goes token by token and keeps the positions of values and keys."""

    def __init__(self, text: str) -> None:
        self.values: dict[texts.Path, texts.TextPosition] = {}
        self.keys: dict[texts.Path, texts.TextPosition] = {}
        self._text = text
        self._start = self._end = 0  # of the sign
        self._line, self._begin = 1, 0  # in which the sign stands, and where that begins

    def document(self) -> texts.Value:
        """Return the value of the whole text; raise _NotPlainError if it is not strictly JSON."""
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

    def _place(self) -> texts.TextPosition:
        return texts.TextPosition(self._line, self._start - self._begin + 1)

    def _value(self, sign: str, path: texts.Path) -> texts.Value:
        self.values[path] = self._place()
        if sign in {"]", "}", ",", ":"} or len(path) > texts.MAX_DEPTH:
            raise _NotPlainError
        if sign == "{":
            return self._mapping(path)
        if sign == "[":
            return self._sequence(path)
        return _string(sign) if sign[0] == '"' else texts.plain(sign)

    def _mapping(self, path: texts.Path) -> dict[str, texts.Value]:
        mapping: dict[str, texts.Value] = {}
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

    def _sequence(self, path: texts.Path) -> list[texts.Value]:
        sequence: list[texts.Value] = []
        sign = self._next()
        while sign != "]":
            sequence.append(self._value(sign, (*path, len(sequence))))
            sign = self._further("]")
        return sequence

    def _further(self, end: str) -> str:
        """Return the closing bracket `end`, or the token behind a comma.

        Raise _NotPlainError for anything else.
        """
        sign = self._next()
        if sign == ",":
            sign = self._next()
            if sign != end:
                return sign
        elif sign == end:
            return sign
        raise _NotPlainError


def _string(sign: str) -> str:
    """Return the text of a JSON string; raise _NotPlainError if YAML would read it otherwise."""
    if sign[0] != '"' or not sign.isprintable() or "\\ud" in sign.lower():
        raise _NotPlainError
    if "\\" not in sign:
        return sign[1:-1]
    try:
        text: str = json.loads(sign)
    except ValueError:
        raise _NotPlainError from None
    return text


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
