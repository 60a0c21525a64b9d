"""Reads YAML, and what is nearly JSON; says what is wrong with either.

Behind lib/text/reader, which reads what is JSON to the letter and comes here with all else: only
a process that meets such a text loads the parser. All faults that do not stop the reading are kept.

Values follow YAML 1.2 and JSON, not YAML 1.1: `yes` is a word and 1:30 is not 90. What turns a
short text into a surprise is refused: aliases, tags, a key given twice, a second document. Not
taken are tabs as indentation, and what no configuration needs: characters outside of the first
Unicode plane written as two escapes, unescaped line separators (U+0085, U+2028, U+2029) in a text,
a name of more than 1024 characters. lib/text/yaml_manifests reads with a YamlReader that takes more
of YAML.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import yaml
from yaml._yaml import Mark as MarkInC
from yaml.error import Mark

from kube_base.errors import Refused
from kube_rdma.lib.text.document import (
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
_OF_INDENTATION = (  # what libyaml says where a line is indented more or less than its neighbours
    "mapping values are not allowed in this context",
    "did not find expected key",
)


def read(text: str, data: bytes, source: str) -> Document:
    """The document in `text`, which came as `data`; Refused with all faults."""
    reader = YamlReader(source, text)
    document = None
    try:
        document = reader.only()
    except yaml.YAMLError as error:
        reader.faults.append(unread(error, reader, data))
    except Refused as fault:
        reader.faults.append(fault)
    if reader.faults or document is None:
        raise Refused.all(reader.faults)
    return document


class YamlReader:
    """Walks the parser's events.

    Not yaml.compose: its recursion in C ends the process on a text of many brackets.
    """

    def __init__(
        self, source: str, text: str, deepest: int = MAX_DEPTH, lines_before: int = 0
    ) -> None:
        """`text` is that of a file behind `lines_before` lines."""
        self.source = source
        self.text = text
        self.deepest = deepest
        self.lines_before = lines_before
        self.faults: list[Refused] = []
        self.values: dict[Path, TextPosition] = {}
        self.keys: dict[Path, TextPosition] = {}
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def only(self) -> Document:
        """The only document of the text, None when there is nothing but blanks and comments."""
        documents = self._documents()
        first = next(documents, None)
        if first is None:
            return Document(self.source, None, {(): TextPosition(1, 1)}, {})
        next(self._events)  # end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            problem = "a second document begins here"
            self._stop(after, (), problem, "Keep one document and no line of three dashes")
        return first

    def place(self, mark: Mark | MarkInC | None) -> TextPosition:
        """Where the parser's mark is in the file."""
        if mark is None:
            return TextPosition(self.lines_before + 1, 1)
        return TextPosition(self.lines_before + mark.line + 1, mark.column + 1)

    def _documents(self) -> Iterator[Document]:
        next(self._events)  # start of the stream
        while not isinstance(next(self._events), yaml.StreamEndEvent):
            self.values, self.keys = {}, {}
            value = self._value(next(self._events), ())
            yield Document(self.source, value, self.values, self.keys)

    def _value(self, event: yaml.Event, path: Path) -> Value:
        self.values[path] = self.place(event.start_mark)
        if len(path) > self.deepest:
            problem = f"the document is nested more than {self.deepest} levels deep"
            self._stop(event, (), problem, "Remove the needless brackets or indentation")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if getattr(event, "tag", None) is not None:
            self._tagged(event, path)
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
                self._twice(event, inside)
            else:
                self.keys[inside] = self.place(event.start_mark)
            mapping[key] = self._value(next(self._events), inside)
        return mapping

    def _sequence(self, path: Path) -> list[Value]:
        sequence: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            sequence.append(self._value(event, (*path, len(sequence))))
        return sequence

    def _alias(self, event: yaml.AliasEvent, path: Path) -> Value:
        """What an alias means; here it is a fault."""
        self.faults.append(
            self._at(event, path, "aliases (*name) are not read", "Write the value out here")
        )
        return None

    def _tagged(self, event: yaml.Event, path: Path) -> None:
        """A tag, such as ``!!str``, before a value."""
        problem = f"tags ({shown(getattr(event, 'tag', None))}) are not read"
        self.faults.append(self._at(event, path, problem, "Leave the tag out"))

    def _twice(self, event: yaml.ScalarEvent, path: Path) -> None:
        """A key that its object has already."""
        remedy = f"Keep one of them, the first is in line {self.keys[path].line}"
        self.faults.append(self._at(event, path, "the field is given twice", remedy))

    def _at(self, event: yaml.Event, path: Path, problem: str, remedy: str) -> Refused:
        """What is wrong at an event."""
        where = located(self.source, self.place(event.start_mark), path)
        return Refused(problem, remedy=remedy, where=where)

    def _stop(self, event: yaml.Event, path: Path, problem: str, remedy: str) -> NoReturn:
        """Raise a fault that leaves nothing sensible to read."""
        raise self._at(event, path, problem, remedy)


def unread(error: yaml.YAMLError, reader: YamlReader, data: bytes) -> Refused:
    """What the parser could not read of `data`, the text of `reader`."""
    if isinstance(error, yaml.reader.ReaderError):
        return _character(error, reader, data)
    assert isinstance(error, yaml.MarkedYAMLError)
    return _syntax(error, reader)


def _syntax(error: yaml.MarkedYAMLError, reader: YamlReader) -> Refused:
    place = reader.place(error.problem_mark)
    lines = reader.text.split("\n")
    number = place.line - reader.lines_before
    line = lines[number - 1] if number <= len(lines) else ""
    problem = f"this is neither JSON nor YAML: {error.problem}"
    remedy = "Look at brackets, quotes, commas and colons up to this place"
    if "\t" in line[: place.column]:
        problem = "a tab stands where only spaces may stand"
        remedy = "Replace it with spaces"
    elif error.problem in _OF_INDENTATION:
        remedy = "Indent this line as its neighbours are, and look at quotes and colons before it"
    return Refused(problem, remedy=remedy, where=located(reader.source, place))


def _character(error: yaml.reader.ReaderError, reader: YamlReader, data: bytes) -> Refused:
    """For a character that no text holds; the parser counts bytes."""
    before = data[: error.position].decode(errors="ignore").split("\n")
    place = TextPosition(reader.lines_before + len(before), len(before[-1]) + 1)
    problem = "a control character stands here"
    remedy = "Remove it, or name the right file"
    return Refused(problem, remedy=remedy, where=located(reader.source, place))
