"""What an audit answers: a thing that is leaked, doubled or lost, a pod without a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from kube_base.frozen import Frozen


class Wrong(Enum):
    """How something is not as it should be."""

    LEAKED = "leaked"  # it is there, and nobody who lives has it
    DOUBLED = "doubled"  # two have it
    LOST = "lost"  # who lives should have it, and has it not
    SILENT = "silent"  # a pod does not work, and nothing says why


class Thing(Enum):
    """What an audit counts."""

    SHARE = "share"
    ADDRESS = "address"
    NETDEV = "netdev"
    NAMESPACE = "namespace"
    CDI = "CDI file"
    RULE = "rule"
    RDMA = "RDMA device"
    RECORD = "record"
    CLAIM = "claim"
    SETTINGS = "settings"
    POD = "pod"
    TRANSFER = "transfer"
    OFFER = "offer"
    TAINT = "taint"
    CNI = "place in the CNI configuration"


class Discrepancy(Frozen, order=True):
    """One thing that is wrong; `where` is a node, or empty for the cluster."""

    wrong: str
    thing: str
    where: str
    text: str

    def __str__(self) -> str:
        place = f" on {self.where}" if self.where else ""
        return f"{self.thing} {self.wrong}{place}: {self.text}"


class Account:
    """Collects what is wrong at one place."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._discrepancies: list[Discrepancy] = []

    def leaked(self, thing: Thing, text: str) -> None:
        """Something that nobody has."""
        self._add(Wrong.LEAKED, thing, text)

    def doubled(self, thing: Thing, text: str) -> None:
        """Something that two have."""
        self._add(Wrong.DOUBLED, thing, text)

    def lost(self, thing: Thing, text: str) -> None:
        """Something that should be there."""
        self._add(Wrong.LOST, thing, text)

    def silent(self, thing: Thing, text: str) -> None:
        """Something that does not say why it does not work."""
        self._add(Wrong.SILENT, thing, text)

    def _add(self, wrong: Wrong, thing: Thing, text: str) -> None:
        self._discrepancies.append(Discrepancy(wrong.value, thing.value, self._where, text))

    def __iter__(self) -> Iterator[Discrepancy]:
        return iter(self._discrepancies)


def repeated(values: Iterable[str]) -> tuple[str, ...]:
    """What stands there more than once, each named once."""
    met: set[str] = set()
    twice: dict[str, None] = {}
    for value in values:
        if value in met:
            twice[value] = None
        met.add(value)
    return tuple(twice)
