"""The cables of a cluster: where each card is plugged in, where it should be, and what is wrong.

NodeCables are made of NodeReports; fabric/rules judges them, fabric/views shows them. Names of
switches come from frames that anybody on the wire can send, and are only names here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.reports import ExpectedCable, NodeReport

FAULTS = "kube-rdma.io/fabric-faults"
"""The annotation of a node that says what is wrong with its cables."""


class SwitchPort(Frozen):
    """A port of a switch; `port` "" stands for any of them."""

    switch: str
    port: str = ""

    def __str__(self) -> str:
        """Return the switch and its port as ``leaf-1 Ethernet1/3``."""
        return f"{self.switch} {self.port}".rstrip()

    def takes(self, other: SwitchPort | None) -> bool:
        """Return whether `other` is this port, or any port of this switch if `port` is ""."""
        return other is not None and self.switch == other.switch and self.port in ("", other.port)


class CardPort(Frozen):
    """A port of a pooled card, and where it is plugged in."""

    card: CardId
    number: int
    name: str  # of the card, for people
    at: SwitchPort | None = None  # None: no switch is heard
    unheard: str = ""  # why

    @property
    def title(self) -> str:
        """Return the name of the card, with the port's number unless it is the first."""
        return self.name if self.number == 1 else f"{self.name} port {self.number}"


class NodeCables(Frozen):
    """The ports of a node's pooled cards, and the cables that it is to have."""

    node: str
    ports: tuple[CardPort, ...] = ()
    gone: frozenset[CardId] = frozenset()  # pooled cards that the node no longer has
    expected: tuple[ExpectedCable, ...] = ()

    @classmethod
    def of(
        cls, node: str, report: NodeReport | None, expected: tuple[ExpectedCable, ...] = ()
    ) -> NodeCables:
        """Return the cables of a node; of two devices on a port, one that hears a switch counts."""
        ports: dict[tuple[CardId, int], CardPort] = {}
        pooled = report.pooled if report else ()
        for card, port in [(one, port) for one in pooled for port in one.ports]:
            near = port.neighbour
            at = SwitchPort(near.switch, near.port) if near and near.switch else None
            made = CardPort(card.id, port.number, card.name, at, port.unheard)
            if at or (card.id, port.number) not in ports:
                ports[card.id, port.number] = made
        gone = frozenset(card.id for card in pooled if card.gone)
        return cls(node, tuple(ports.values()), gone, expected)

    @property
    def heard(self) -> Mapping[tuple[CardId, int], SwitchPort]:
        """Return the switch port that each card port hears, by card and port number."""
        return {(one.card, one.number): one.at for one in self.ports if one.at}

    @property
    def places(self) -> Mapping[tuple[CardId, int], SwitchPort]:
        """Return the switch port where each card port belongs, by card and port number."""
        return {(c.card, c.port): SwitchPort(c.switch, c.switch_port) for c in self.expected}


class CableFaultKind(StrEnum):
    """The kinds of faults of cables; each value is the code of its finding."""

    SWAPPED = "CablesSwapped"
    MOVED = "CableMoved"
    LOST = "CableLost"
    UNKNOWN = "CableUnknown"
    SHARED_LEAF = "CablesShareLeaf"


class FaultyCable(Frozen):
    """A cable with both ends as they are, and the switch port where it belongs."""

    node: str
    card: str  # for people
    seen: SwitchPort | None  # None: no switch is heard
    expected: SwitchPort | None = None  # None: nobody expects a cable there


class CableFault(Frozen):
    """A fault of one or several cables; in a swap each is where the next one belongs."""

    kind: CableFaultKind
    cables: tuple[FaultyCable, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that have the cables, each once."""
        return tuple(dict.fromkeys(cable.node for cable in self.cables))
