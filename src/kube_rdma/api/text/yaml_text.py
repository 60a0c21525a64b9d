"""Reads YAML, and what is nearly JSON; says what is wrong with either.

Behind api/text/reader, which reads what is JSON to the letter and comes here with all else: only
a process that meets such a text loads the parser. All faults that do not stop the reading are kept.

Values follow YAML 1.2 and JSON, not YAML 1.1: `yes` is a word and 1:30 is not 90. What turns a
short text into a surprise is refused: aliases, tags, a key given twice, a second document. Not
taken are tabs as indentation, and what no configuration needs: characters outside of the first
Unicode plane written as two escapes, unescaped line separators (U+0085, U+2028, U+2029) in a text,
a name of more than 1024 characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import yaml
from yaml._yaml import Mark as MarkInC
from yaml.error import Mark

from kube_base.errors import Refused
from kube_rdma.api.text.document import (
    MAX_DEPTH,
    Document,
    Path,
    TextPosition,
    Value,
    located,
    plain,
    shown,
)

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # C where PyYAML was built with it
_DEEP = 64  # levels in manifests; a definition of a pod's template has 30


def read(text: str, data: bytes, source: str) -> Document:
    """The document in `text`, which came as `data`; Refused with all faults."""
    return _read(_Reader(source, text), text, data, _Reader.only)[0]


def read_all(text: str, data: bytes, source: str) -> tuple[Document, ...]:
    """All documents in `text`, without empty ones; likewise."""
    return _read(_Reader(source, text, _DEEP), text, data, _Reader.all)


def _read(
    reader: _Reader, text: str, data: bytes, documents: Callable[[_Reader], Iterator[Document]]
) -> tuple[Document, ...]:
    source = reader.source
    made: tuple[Document, ...] = ()
    try:
        made = tuple(documents(reader))
    except yaml.MarkedYAMLError as error:
        reader.faults.append(_syntax(error, source, text))
    except yaml.reader.ReaderError as error:
        reader.faults.append(_character(error, source, data))
    except Refused as fault:
        reader.faults.append(fault)
    if reader.faults:
        raise Refused.all(reader.faults)
    return made


def _place(mark: Mark | MarkInC | None) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(1, 1)


class _Reader:
    """Walks the parser's events.

    Not yaml.compose: its recursion in C ends the process on a text of many brackets.
    """

    def __init__(self, source: str, text: str, deepest: int = MAX_DEPTH) -> None:
        self.source = source
        self.deepest = deepest
        self.faults: list[Refused] = []
        self.values: dict[Path, TextPosition] = {}
        self.keys: dict[Path, TextPosition] = {}
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def only(self) -> Iterator[Document]:
        """The only document of the text, None when there is nothing but blanks and comments."""
        documents = self._documents()
        first = next(documents, None)
        yield first or Document(self.source, None, {(): TextPosition(1, 1)}, {})
        if first:
            next(self._events)  # end of the document
            after = next(self._events)
            if not isinstance(after, yaml.StreamEndEvent):
                problem = "a second document begins here"
                self._stop(after, (), problem, "Keep one document and no line of three dashes")

    def all(self) -> Iterator[Document]:
        """Every document that is not empty."""
        for document in self._documents():
            if document.value is not None:
                yield document
            next(self._events)  # end of the document

    def _documents(self) -> Iterator[Document]:
        next(self._events)  # start of the stream
        while not isinstance(next(self._events), yaml.StreamEndEvent):
            self.values, self.keys = {}, {}
            value = self._value(next(self._events), ())
            yield Document(self.source, value, self.values, self.keys)

    def _value(self, event: yaml.Event, path: Path) -> Value:
        self.values[path] = _place(event.start_mark)
        if len(path) > self.deepest:
            problem = f"the document is nested more than {self.deepest} levels deep"
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
        return event.value if event.style else plain(event.value)

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
        where = located(self.source, _place(event.start_mark), path)
        self.faults.append(Refused(problem, remedy=remedy, where=where))

    def _stop(self, event: yaml.Event, path: Path, problem: str, remedy: str) -> NoReturn:
        """Raise a fault that leaves nothing sensible to read."""
        where = located(self.source, _place(event.start_mark), path)
        raise Refused(problem, remedy=remedy, where=where)


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
    return Refused(problem, remedy=remedy, where=located(source, place))


def _character(error: yaml.reader.ReaderError, source: str, data: bytes) -> Refused:
    """For a character that no text holds; the parser counts bytes."""
    before = data[: error.position].decode(errors="ignore").split("\n")
    place = TextPosition(len(before), len(before[-1]) + 1)
    problem = "a control character stands here"
    remedy = "Remove it, or name the right file"
    return Refused(problem, remedy=remedy, where=located(source, place))
