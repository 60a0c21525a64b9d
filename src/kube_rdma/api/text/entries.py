"""A JSON list as a Document with one field, so that every entry of it has a name and a number.

Both annotations that ask for networks are such lists; their models are checked as all others are,
and a fault reads like ``pod-networks[2].deviceConf.ips[0]``.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_rdma.api.text.document import Document, Path, TextPosition, Value, name, read

MOST = 128
"""Networks of a pod: each has a routing table of its own from 101 on, the kernel's begin at 253."""

LONGEST = 64 << 10
"""Bytes of an annotation that asks for networks, 512 for each; the API server takes 256 KiB."""

MOST_VALUES = 1280
"""Values in it, 10 for each network: each costs some microseconds, at every try of the kubelet."""

MOST_LISTED = 256
"""Addresses and ports in it, two for each network: each costs 20 microseconds."""


_IN_BRACKETS = (",", "[", "{")  # what values follow in JSON
_IN_LINES = (*_IN_BRACKETS, "\n", "- ", "? ")  # and in YAML without brackets


class _Entries(Document):
    """The list below a field whose name is written as it is, dashes included."""

    field: str

    def where(self, path: Path, *, key: bool = False) -> str:
        place = self.place(path, key=key)
        at = f"{self.source}:{place.line}:{place.column}"
        return f"{at}: {self.field}{name(path[1:])}" if path else at


def entries(text: str, source: str, field: str) -> Document:
    """What the text holds, below `field`; raise Refused where it is not JSON or too long."""
    refuse_long(text, source)
    try:
        document = read(text.encode(), source)
    except Refused as error:
        faults = (_named(each, source, field) for each in (error, *error.more))
        raise Refused.all(list(faults)) from None
    if isinstance(document.value, list):
        refuse_many(len(document.value), source)
        _refuse_lists(document.value, source)
    places = {(): TextPosition(1, 1), **_below(field, document.values)}
    return _Entries(source, {field: document.value}, places, _below(field, document.keys), field)


def refuse_long(text: str, source: str) -> None:
    """Before it is read: whoever writes it does not pay for that."""
    if (size := len(text.encode())) > LONGEST:
        problem = f"the annotation has {size} bytes, of which {LONGEST} are read"
        raise Refused(problem, remedy="Say less in each network", where=source)
    signs = _IN_BRACKETS if text.lstrip()[:1] in {"[", "{"} else _IN_LINES
    if (count := sum(map(text.count, signs))) > MOST_VALUES:
        problem = f"the annotation has {count} values, of which {MOST_VALUES} are read"
        raise Refused(problem, remedy="Say less in each network", where=source)


def refuse_many(count: int, source: str) -> None:
    """Before each entry is looked at, and complained about."""
    if count > MOST:
        remedy = f"Ask for {MOST} or fewer"
        raise Refused(f"these are {count} networks", remedy=remedy, where=source)


def _refuse_lists(networks: list[Value], source: str) -> None:
    """Before each is read: the addresses, routes and ports of entries and of what is in them."""
    if (count := sum(map(_listed, networks))) > MOST_LISTED:
        problem = f"its lists have {count} entries, of which {MOST_LISTED} are read"
        raise Refused(problem, remedy="Ask for fewer addresses and routes", where=source)


def _listed(value: Value) -> int:
    """How many entries all lists inside have; the reader has bounded the depth."""
    own = len(value) if isinstance(value, list) else 0
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return own + sum(map(_listed, inside))


def _named(fault: Refused, source: str, field: str) -> Refused:
    """A fault of the reading, with the name of the field that the list then gets."""
    place, path, entry = fault.where.removeprefix(source).partition(": [")
    where = f"{source}{place}: {field}[{entry}" if path else fault.where
    return Refused(fault.problem, remedy=fault.remedy, where=where)


def _below(field: str, places: dict[Path, TextPosition]) -> dict[Path, TextPosition]:
    return {(field, *path): place for path, place in places.items()}
