"""Reads a JSON or YAML text and remembers where everything stood.

First step of every dialect in api: bytes become plain values plus a place for each path, so that
whoever judges the values can point at the line. All faults that do not stop the reading are kept
and reported together.

One reader serves both languages, because people mix them up anyway and JSON is YAML, but for tabs
in front of its first bracket, which are read as blanks, and what no configuration needs: characters
outside of the first Unicode plane written as two escapes, unescaped line separators (U+0085,
U+2028, U+2029) in a text, a name of more than 1024 characters. YAML's own liberties, such as a
comma after the last entry, are taken from JSON too.

Values follow YAML 1.2 and JSON, not YAML 1.1: `yes` is a word and 1:30 is not 90. What turns a
short text into a surprise is refused: aliases, tags, a key given twice, a second document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

import yaml
from yaml._yaml import Mark as MarkInC
from yaml.error import Mark

from kube_rdma.model.errors import Refused
from kube_rdma.model.frozen import Frozen

Path: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

MAX_BYTES = 1 << 20  # a ConfigMap cannot hold more
MAX_DEPTH = 32  # no dialect comes near; a deeper text would only exhaust the stack
_SHOWN = 40  # characters of a foreign text that a sentence repeats

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # C where PyYAML was built with it
_BEFORE_JSON = re.compile(r"[ \t\r\n]*(?=[\[{])")
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
        return _where(self.source, self.place(path, key=key), self._written(path))

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


def read(data: bytes, source: str) -> Document:
    """The document in `data`; `source` names it in messages.

    Raise Refused, with all faults found, when it cannot be read as one JSON or YAML document.
    """
    text = _decode(data, source)
    reader = _Reader(source, text)
    try:
        value = reader.document()
    except yaml.MarkedYAMLError as error:
        reader.faults.append(_syntax(error, source, text))
    except yaml.reader.ReaderError as error:
        reader.faults.append(_character(error, source, data))
    except Refused as fault:
        reader.faults.append(fault)
    if reader.faults:
        raise Refused.all(reader.faults)
    return Document(source, value, reader.values, reader.keys)


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


def _where(source: str, place: TextPosition, path: Path = ()) -> str:
    field = f": {name(path)}" if path else ""
    return f"{source}:{place.line}:{place.column}{field}"


def _place(mark: Mark | MarkInC | None) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(1, 1)


class _Reader:
    """Walks the parser's events.

    Not yaml.compose: its recursion in C ends the process on a text of many brackets.
    """

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.faults: list[Refused] = []
        self.values: dict[Path, TextPosition] = {}
        self.keys: dict[Path, TextPosition] = {}
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> Value:
        """The only document of the text, None when there is nothing but blanks and comments."""
        next(self._events)  # start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            self.values[()] = TextPosition(1, 1)
            return None
        value = self._value(next(self._events), ())
        next(self._events)  # end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            problem = "a second document begins here"
            self._stop(after, (), problem, "Keep one document and no line of three dashes")
        return value

    def _value(self, event: yaml.Event, path: Path) -> Value:
        self.values[path] = _place(event.start_mark)
        if len(path) > MAX_DEPTH:
            problem = f"the document is nested more than {MAX_DEPTH} levels deep"
            self._stop(event, (), problem, "Remove the needless brackets or indentation")
        if isinstance(event, yaml.AliasEvent):
            self._fault(event, path, "aliases (*name) are not read", "Write the value out here")
            return None
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._fault(event, path, f"tags ({shown(tag)}) are not read", "Leave the tag out")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        assert isinstance(event, yaml.ScalarEvent)
        return event.value if event.style else _plain(event.value)

    def _mapping(self, path: Path) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._stop(event, path, "a key must be a word", "Write a name before the colon")
            key = event.value
            inside = (*path, key)
            if key in mapping:
                first = self.keys[inside].line
                remedy = f"Keep one of them, the first is in line {first}"
                self._fault(event, inside, "the field is given twice", remedy)
            else:
                self.keys[inside] = _place(event.start_mark)
            mapping[key] = self._value(next(self._events), inside)
        return mapping

    def _sequence(self, path: Path) -> list[Value]:
        sequence: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            sequence.append(self._value(event, (*path, len(sequence))))
        return sequence

    def _fault(self, event: yaml.Event, path: Path, problem: str, remedy: str) -> None:
        """Note a fault and go on."""
        where = _where(self.source, _place(event.start_mark), path)
        self.faults.append(Refused(problem, remedy=remedy, where=where))

    def _stop(self, event: yaml.Event, path: Path, problem: str, remedy: str) -> NoReturn:
        """Raise a fault that leaves nothing sensible to read."""
        where = _where(self.source, _place(event.start_mark), path)
        raise Refused(problem, remedy=remedy, where=where)


def _plain(word: str) -> Value:
    """The value of a word without quotes."""
    if word in _WORDS:
        return _WORDS[word]
    if _INT.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def _decode(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        problem = f"the file is larger than {MAX_BYTES >> 20} MiB, so it is not a configuration"
        raise Refused(problem, remedy="Name the right file", where=source)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8 text"
        remedy = "Save the file as UTF-8, or name the right file"
        raise Refused(problem, remedy=remedy, where=source) from None
    blanks = _BEFORE_JSON.match(text)
    return blanks[0].replace("\t", " ") + text[blanks.end() :] if blanks else text


def _syntax(error: yaml.MarkedYAMLError, source: str, text: str) -> Refused:
    place = _place(error.problem_mark)
    lines = text.split("\n")
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if "\t" in line[: place.column]:
        problem = "a tab stands where only spaces may stand"
        remedy = "Replace it with spaces"
    else:
        problem = f"this is neither JSON nor YAML: {error.problem}"
        remedy = "Look at brackets, quotes, commas and colons up to this place"
    return Refused(problem, remedy=remedy, where=_where(source, place))


def _character(error: yaml.reader.ReaderError, source: str, data: bytes) -> Refused:
    """For a character that no text holds; the parser counts bytes."""
    before = data[: error.position].decode(errors="ignore").split("\n")
    place = TextPosition(len(before), len(before[-1]) + 1)
    problem = "a control character stands here"
    remedy = "Remove it, or name the right file"
    return Refused(problem, remedy=remedy, where=_where(source, place))
