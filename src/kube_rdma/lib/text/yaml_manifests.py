"""Reads YAML: a configuration strictly (`read`), files of manifests as kubectl does (`read_all`).

lib/text/reader calls it. A manifest that cannot be read does not hide those behind the next line of
three dashes. The text is cut at these lines before anything is read, as kubectl cuts it
(k8s.io/apimachinery@v0.34 pkg/util/yaml/decoder.go, splitYAMLDocument).

Manifests may have what kubectl takes (sigs.k8s.io/yaml@v1.6, goyaml.v2): aliases, merge keys
(``<<``), tags of YAML itself. Of a key given twice the last value counts. What would surprise a
reader of the text is returned as remarks. Aliases are bounded: a short text may mean a very long
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

import yaml
from yaml._yaml import Mark as MarkInC
from yaml.error import Mark

from kube_base.errors import MOST_FAULTS, Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text import document as texts

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # C where PyYAML was built with it
_OF_INDENTATION = (  # libyaml's words for a line that is indented more or less than those beside it
    "mapping values are not allowed in this context",
    "did not find expected key",
)


def read(text: str, data: bytes, source: str) -> texts.Document:
    """Return the document in a YAML text; raise Refused with all faults.

    `data` are the bytes of the text.
    """
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
    """A reader of YAML by the events of the parser.

    It does not use yaml.compose, whose recursion in C ends the process on a text of many brackets.
    """

    def __init__(
        self, source: str, text: str, deepest: int = texts.MAX_DEPTH, lines_before: int = 0
    ) -> None:
        """Read YAML from `text`, before which its file has `lines_before` lines."""
        self.source = source
        self.text = text
        self.deepest = deepest
        self.lines_before = lines_before
        self.faults: list[Refused] = []
        self.values: dict[texts.Path, texts.TextPosition] = {}
        self.keys: dict[texts.Path, texts.TextPosition] = {}
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def only(self) -> texts.Document:
        """Return the only document of the text; for blanks and comments its value is None.

        Raise Refused where reading has to stop, as at a second document.
        """
        documents = self._documents()
        first = next(documents, None)
        if first is None:
            return texts.Document(self.source, None, {(): texts.TextPosition(1, 1)}, {})
        next(self._events)  # end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            problem = "a second document begins here"
            self._stop(after, (), problem, "Keep one document and no line of three dashes")
        return first

    def place(self, mark: Mark | MarkInC | None) -> texts.TextPosition:
        """Return the position in the file of a mark of the parser."""
        if mark is None:
            return texts.TextPosition(self.lines_before + 1, 1)
        return texts.TextPosition(self.lines_before + mark.line + 1, mark.column + 1)

    def _documents(self) -> Iterator[texts.Document]:
        next(self._events)  # start of the stream
        while not isinstance(next(self._events), yaml.StreamEndEvent):
            self.values, self.keys = {}, {}
            value = self._value(next(self._events), ())
            yield texts.Document(self.source, value, self.values, self.keys)

    def _value(self, event: yaml.Event, path: texts.Path) -> texts.Value:
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
        return event.value if event.style else texts.plain(event.value)

    def _mapping(self, path: texts.Path) -> dict[str, texts.Value]:
        mapping: dict[str, texts.Value] = {}
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

    def _sequence(self, path: texts.Path) -> list[texts.Value]:
        sequence: list[texts.Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            sequence.append(self._value(event, (*path, len(sequence))))
        return sequence

    def _alias(self, event: yaml.AliasEvent, path: texts.Path) -> texts.Value:
        """Keep the fault that aliases are not read; return None as the value."""
        self.faults.append(
            self._at(event, path, "aliases (*name) are not read", "Write the value out here")
        )
        return None

    def _tagged(self, event: yaml.Event, path: texts.Path) -> None:
        """Keep the fault that a tag such as ``!!str`` before a value is not read."""
        problem = f"tags ({texts.shown(getattr(event, 'tag', None))}) are not read"
        self.faults.append(self._at(event, path, problem, "Leave the tag out"))

    def _twice(self, event: yaml.ScalarEvent, path: texts.Path) -> None:
        """Keep the fault that a key is given twice in one object."""
        remedy = f"Keep one of them, the first is in line {self.keys[path].line}"
        self.faults.append(self._at(event, path, "the field is given twice", remedy))

    def _at(self, event: yaml.Event, path: texts.Path, problem: str, remedy: str) -> Refused:
        """Return a Refused whose place is that of an event of the parser."""
        where = texts.located(self.source, self.place(event.start_mark), path)
        return Refused(problem, remedy=remedy, where=where)

    def _stop(self, event: yaml.Event, path: texts.Path, problem: str, remedy: str) -> NoReturn:
        """Raise a Refused at an event, where reading on would make no sense."""
        raise self._at(event, path, problem, remedy)


def unread(error: yaml.YAMLError, reader: YamlReader, data: bytes) -> Refused:
    """Return the Refused for a text that the YAML parser cannot read."""
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
    return Refused(problem, remedy=remedy, where=texts.located(reader.source, place))


def _character(error: yaml.reader.ReaderError, reader: YamlReader, data: bytes) -> Refused:
    """Return the Refused for a control character in a text.

    The parser counts bytes, so `data` is needed to find it.
    """
    before = data[: error.position].decode(errors="ignore").split("\n")
    place = texts.TextPosition(reader.lines_before + len(before), len(before[-1]) + 1)
    problem = "a control character stands here"
    remedy = "Remove it, or name the right file"
    return Refused(problem, remedy=remedy, where=texts.located(reader.source, place))


# Manifests, which are read less strictly.

DEEPEST = 64  # levels in manifests; a definition of a pod's template has 30
WRITE_OUT = "Write the values out where other programs read this file"  # instead of aliases
MOST_REPEATED = 100_000  # values that aliases of one document stand for

_SEPARATOR = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_BLANK = re.compile(r"(?:---)?(?:\s+|#[^\r\n]*)*+")
_OF_YAML = "tag:yaml.org,2002:"
_MERGE = "<<"


def read_all(text: str, source: str) -> Iterator[texts.ManifestDocument | Refused]:
    """Yield the documents of a text that are not empty, a Refused for a faulty one, in order."""
    lines_before = 0
    for part in _parts(text):
        if not _BLANK.fullmatch(part):
            yield from _documents(_ManifestReader(source, part, DEEPEST, lines_before))
        lines_before += part.count("\n")


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between lines of dashes.

    Directives before the first line of dashes belong to its document.
    """
    cuts = [match.start() for match in _SEPARATOR.finditer(text)]
    if cuts and text.startswith("%"):
        del cuts[0]
    begin = 0
    for cut in (*cuts, len(text)):
        yield text[begin:cut]
        begin = cut


def _documents(reader: _ManifestReader) -> Iterator[texts.ManifestDocument | Refused]:
    """Yield the documents of one part of a text, or a Refused.

    A part has several where lines of dots end them.
    """
    try:
        for document in reader.all():
            if reader.faults:
                yield Refused.all(reader.faults)
            elif document.value is not None:
                yield document
    except yaml.YAMLError as error:
        yield Refused.all([*reader.faults, unread(error, reader, reader.text.encode())])
    except Refused as fault:
        yield Refused.all([*reader.faults, fault])


class _Anchored(Frozen):
    """A value with an anchor, and the number of values inside of it."""

    value: texts.Value
    size: int


class _ManifestReader(YamlReader):
    """A reader of YAML that takes aliases and merge keys, and makes remarks."""

    def all(self) -> Iterator[texts.ManifestDocument]:
        """Yield every document of the text; `faults` has the faults of the document being read."""
        self._forget()
        for document in self._documents():
            remarks = (*self._aliases(), *self._remarks)
            yield texts.ManifestDocument(
                document.source, document.value, document.values, document.keys, remarks
            )
            next(self._events)  # end of the document
            self._forget()

    def _forget(self) -> None:
        """Forget faults, remarks and anchors of the previous document."""
        self.faults: list[Refused] = []
        self._remarks: list[Refused] = []
        self._anchors: dict[str, _Anchored] = {}
        self._size = self._repeated = 0  # values so far, and those that aliases stand for
        self._used: list[tuple[texts.TextPosition, texts.Path, str]] = []

    def _aliases(self) -> Iterator[Refused]:
        """Yield one remark about all YAML aliases of the document."""
        if self._used:
            place, path, name = self._used[0]
            count = f"{len(self._used)} aliases are" if self._used[1:] else "an alias is"
            yield Refused(
                f"{count} read as what the anchor marks, here {texts.shown(name)}",
                remedy=WRITE_OUT,
                where=texts.located(self.source, place, path),
            )

    def _value(self, event: yaml.Event, path: texts.Path) -> texts.Value:
        self._size += 1
        before = self._size
        value = super()._value(event, path)
        if isinstance(event, yaml.ScalarEvent) and event.tag == f"{_OF_YAML}str":
            value = event.value
        anchor = getattr(event, "anchor", None)
        if anchor and not isinstance(event, yaml.AliasEvent):
            self._anchors[anchor] = _Anchored(value, self._size - before + 1)
        return value

    def _alias(self, event: yaml.AliasEvent, path: texts.Path) -> texts.Value:
        meant = self._anchors.get(str(event.anchor))
        if meant is None:
            problem = f"no anchor before the alias is called {texts.shown(event.anchor)}"
            self.faults.append(self._at(event, path, problem, f"Write &{event.anchor} before it"))
            return None
        self._size += meant.size
        self._repeated += meant.size
        if self._repeated > MOST_REPEATED:
            problem = f"aliases stand for more than {MOST_REPEATED} values"
            self._stop(event, path, problem, "Write the document with fewer aliases")
        if len(path) + _height(meant.value) > self.deepest:
            problem = f"with its aliases the document is more than {self.deepest} levels deep"
            self._stop(event, path, problem, "Write the document with fewer aliases")
        self._used.append((self.place(event.start_mark), path, f"*{event.anchor}"))
        return meant.value

    def _tagged(self, event: yaml.Event, path: texts.Path) -> None:
        if not str(getattr(event, "tag", "")).startswith(_OF_YAML):
            super()._tagged(event, path)

    def _twice(self, event: yaml.ScalarEvent, path: texts.Path) -> None:
        """Remark up to MOST_FAULTS times that a key is given twice; forget its first positions."""
        if len(self._remarks) == MOST_FAULTS:
            return  # enough is said, and a text of nothing else would cost
        first = self.keys[path].line
        problem = f"the field is given twice, and the value in line {first} is lost"
        self._remarks.append(self._at(event, path, problem, "Remove one of them, or join both"))
        for places in (self.keys, self.values):
            for inside in [place for place in places if place[: len(path)] == path]:
                del places[inside]
        self.keys[path] = self.place(event.start_mark)

    def _mapping(self, path: texts.Path) -> dict[str, texts.Value]:
        """Return an object with the fields that its merge key adds; its own fields win."""
        mapping = super()._mapping(path)
        merged = mapping.get(_MERGE)
        sources = merged if isinstance(merged, list) else [merged]
        if _MERGE in mapping and all(isinstance(one, dict) for one in sources):
            del mapping[_MERGE]
            for source in sources:
                assert isinstance(source, dict)
                mapping = {**source, **mapping}
        return mapping


def _height(value: texts.Value) -> int:
    """Return how many levels are nested below a value."""
    height, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        height += 1
    return height


def _inside(value: texts.Value) -> list[texts.Value]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
