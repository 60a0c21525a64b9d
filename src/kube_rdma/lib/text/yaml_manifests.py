"""Reads files of manifests in YAML as kubectl does, document by document.

Behind lib/text/reader, beside yaml_text, which reads configurations more strictly. A document that
cannot be read hides no other: the text is cut at its lines of three dashes before anything is read,
as kubectl cuts it (k8s.io/apimachinery@v0.34 pkg/util/yaml/decoder.go, splitYAMLDocument).

What kubectl takes is taken (sigs.k8s.io/yaml@v1.6, goyaml.v2): of a key given twice the last value,
aliases, merge keys (``<<``), tags of YAML itself. What would surprise a reader of the text comes
along as remarks. Aliases are bounded: a short text may mean a very long one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from kube_base.errors import MOST_FAULTS, Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import (
    ManifestDocument,
    Path,
    TextPosition,
    Value,
    located,
    shown,
)
from kube_rdma.lib.text.yaml_text import YamlReader, unread

DEEPEST = 64  # levels in manifests; a definition of a pod's template has 30
MOST_REPEATED = 100_000  # values that aliases of one document stand for

_SEPARATOR = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_BLANK = re.compile(r"(?:---)?(?:\s+|#[^\r\n]*)*+")
_OF_YAML = "tag:yaml.org,2002:"
_MERGE = "<<"


def read_all(text: str, source: str) -> Iterator[ManifestDocument | Refused]:
    """Every document of a text that is not empty, or the faults of one, in their order."""
    lines_before = 0
    for part in _parts(text):
        if not _BLANK.fullmatch(part):
            yield from _documents(_ManifestReader(source, part, DEEPEST, lines_before))
        lines_before += part.count("\n")


def _parts(text: str) -> Iterator[str]:
    """The text from separator to separator; directives before the first belong to its document."""
    cuts = [match.start() for match in _SEPARATOR.finditer(text)]
    if cuts and (cuts[0] == 0 or text.startswith("%")):
        del cuts[0]
    begin = 0
    for cut in (*cuts, len(text)):
        yield text[begin:cut]
        begin = cut


def _documents(reader: _ManifestReader) -> Iterator[ManifestDocument | Refused]:
    """What one part of the text holds: one document where nobody ended it by dots."""
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
    """A value that has an anchor, and how many values it is made of."""

    value: Value
    size: int


class _ManifestReader(YamlReader):
    """Reads what is surprising too, and remembers it."""

    def all(self) -> Iterator[ManifestDocument]:
        """Every document, while `faults` are those of this one."""
        self._forget()
        for document in self._documents():
            remarks = (*self._aliases(), *self._remarks)
            yield ManifestDocument(
                document.source, document.value, document.values, document.keys, remarks
            )
            next(self._events)  # end of the document
            self._forget()

    def _forget(self) -> None:
        """Begin a document without the one before."""
        self.faults: list[Refused] = []
        self._remarks: list[Refused] = []
        self._anchors: dict[str, _Anchored] = {}
        self._size = self._repeated = 0  # values so far, and those that aliases stand for
        self._used: list[tuple[TextPosition, Path, str]] = []

    def _aliases(self) -> Iterator[Refused]:
        """One remark about all of them."""
        if self._used:
            place, path, name = self._used[0]
            count = f"{len(self._used)} aliases are" if self._used[1:] else "an alias is"
            yield Refused(
                f"{count} read as what the anchor marks, here {shown(name)}",
                remedy="Write the values out where other programs read this file",
                where=located(self.source, place, path),
            )

    def _value(self, event: yaml.Event, path: Path) -> Value:
        self._size += 1
        before = self._size
        value = super()._value(event, path)
        if isinstance(event, yaml.ScalarEvent) and event.tag == f"{_OF_YAML}str":
            value = event.value
        anchor = getattr(event, "anchor", None)
        if anchor and not isinstance(event, yaml.AliasEvent):
            self._anchors[anchor] = _Anchored(value, self._size - before + 1)
        return value

    def _alias(self, event: yaml.AliasEvent, path: Path) -> Value:
        meant = self._anchors.get(str(event.anchor))
        if meant is None:
            problem = f"no anchor before the alias is called {shown(event.anchor)}"
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

    def _tagged(self, event: yaml.Event, path: Path) -> None:
        if not str(getattr(event, "tag", "")).startswith(_OF_YAML):
            super()._tagged(event, path)

    def _twice(self, event: yaml.ScalarEvent, path: Path) -> None:
        """The last one counts, so nothing stays of the places of the one before."""
        if len(self._remarks) == MOST_FAULTS:
            return  # enough is said, and a text of nothing else would cost
        first = self.keys[path].line
        problem = f"the field is given twice, and the value in line {first} is lost"
        self._remarks.append(self._at(event, path, problem, "Remove one of them, or join both"))
        for places in (self.keys, self.values):
            for inside in [place for place in places if place[: len(path)] == path]:
                del places[inside]
        self.keys[path] = self.place(event.start_mark)

    def _mapping(self, path: Path) -> dict[str, Value]:
        """An object with what its merge key brings, which its own fields come before."""
        mapping = super()._mapping(path)
        merged = mapping.get(_MERGE)
        sources = merged if isinstance(merged, list) else [merged]
        if _MERGE in mapping and all(isinstance(one, dict) for one in sources):
            del mapping[_MERGE]
            for source in sources:
                assert isinstance(source, dict)
                mapping = {**source, **mapping}
        return mapping


def _height(value: Value) -> int:
    """How many levels are below a value; each of its values was counted when it was read."""
    height, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        height += 1
    return height


def _inside(value: Value) -> list[Value]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
