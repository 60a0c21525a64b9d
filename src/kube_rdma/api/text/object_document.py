"""An object of the API server as a Document: its faults are reported by field, without a line.

What comes from the API server has no lines that a person could look at; api/text/faults asks a
Document where things stand, and gets the object and the field.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.api.text.document import Document, Path, TextPosition, Value, name


class ObjectDocument(Document):
    """`source` says which object, if that is known; `base` is where in it the value stands."""

    base: Path = ()

    def where(self, path: Path, *, key: bool = False) -> str:
        """``IPPool rail-0: spec.ranges[0].end``."""
        return ": ".join(part for part in (self.source, name((*self.base, *path))) if part)

    def place(self, path: Path, *, key: bool = False) -> TextPosition:
        """Only an order: in which the fields stand in the object."""
        order = {part: number for number, part in enumerate(_paths(self.value, ()))}
        near = path
        while near and near not in order:
            near = near[:-1]
        return TextPosition(order.get(near, 0), len(path))


def of_value(value: Value, source: str = "", base: Path = ()) -> ObjectDocument:
    """The Document of a decoded object, or of the part of one at `base`."""
    return ObjectDocument(source, value, {}, {}, base)


def of_json(data: bytes, source: str = "", base: Path = ()) -> ObjectDocument:
    """The same of JSON; raise Refused when it is not JSON."""
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
