"""The cables of a lab: which port of which leaf switch each card is plugged into, and moving them.

The supervisor makes them of the topology and keeps them in a file of the lab's folder. From that
file lldp.py sends the frames of each port. `kube-rdma lab cable` changes the file and the bridges
(network.py). A card whose topology names no leaf for it has no cable here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kube_base.errors import Refused
from kube_rdma_lab import network, waiting
from kube_rdma_lab.network import Cards
from kube_rdma_lab.topology import Topology

if TYPE_CHECKING:
    from kube_rdma_lab.lab import Lab

PORTS = 255  # of a leaf: the last byte of a port's MAC (lldp.py)
OUT = "out"
HEAD = ("NODE", "CARD", "RAIL", "LEAF", "PORT")


@dataclass(frozen=True, slots=True)
class Cable:
    """A card's cable to a leaf switch; without a leaf it is pulled out.

    `interface` is the lab's end of the card's link. `port` counts from 1 and is 0 without a leaf.
    """

    node: str
    card: str
    interface: str
    rail: int
    leaf: str = ""
    port: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """Return the leaf and the port that the cable is plugged into."""
        return self.leaf, self.port

    @property
    def port_name(self) -> str:
        """Return the port's name, as many switches call theirs; empty for a cable pulled out."""
        return f"Ethernet1/{self.port}" if self.leaf else ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cable as a row of a table, below HEAD."""
        return self.node, self.card, str(self.rail), self.leaf or OUT, self.port_name


def of(topology: Topology, cards: Cards) -> tuple[Cable, ...]:
    """Return a topology's cables; ports are given in the order of nodes and cards.

    `cards` are the interfaces of native nodes. Raise Refused for a node with fewer cards than
    leaves, and for a leaf with more cards than ports.
    """
    return tuple(_cables(topology, cards))


def _cables(topology: Topology, cards: Cards) -> Iterator[Cable]:
    taken: defaultdict[str, list[int]] = defaultdict(list)
    for node in topology.nodes:
        names = [nic.name for nic in node.nics] or cards.get(node.name, ())
        if len(node.leaves) > len(names):
            raise Refused(
                f"{node.name} has {len(names)} cards and leaves for {len(node.leaves)}",
                remedy="Write one leaf for each card of its tree",
            )
        rails = network.rails_of(node, cards)
        for position, (name, rail) in enumerate(zip(names, rails, strict=True), start=1):
            if leaf := node.leaf(position):
                interface = network.tap(node, position)
                taken[leaf].append(_free(leaf, taken[leaf]))
                yield Cable(node.name, name, interface, rail, leaf, taken[leaf][-1])


def _free(leaf: str, taken: Collection[int]) -> int:
    """Return the first port of a leaf that has no cable; raise Refused if there is none."""
    for port in range(1, PORTS + 1):
        if port not in taken:
            return port
    raise Refused(f"all {PORTS} ports of {leaf} have a cable", remedy="Choose another leaf switch")


def moved(
    cables: Sequence[Cable], leaves: Sequence[str], node: str, card: str, to: str
) -> tuple[Cable, ...]:
    """Return the cables after a card's cable moved; another in its new port takes the old port.

    `to` is LEAF/PORT, a LEAF for its first free port, or OUT. Raise Refused for an unknown card,
    leaf or port, and for a LEAF without a free port.
    """
    mine = _find(cables, node, card)
    leaf, port = ("", 0) if to == OUT else _port(cables, leaves, to)
    new = {mine: replace(mine, leaf=leaf, port=port)}
    for other in cables:
        if leaf and other != mine and other.place == (leaf, port):
            new[other] = replace(other, leaf=mine.leaf, port=mine.port)
    return tuple(new.get(cable, cable) for cable in cables)


def _find(cables: Sequence[Cable], node: str, card: str) -> Cable:
    for cable in cables:
        if (cable.node, cable.card) == (node, card):
            return cable
    known = ", ".join(f"{cable.node} {cable.card}" for cable in cables)
    raise Refused(
        f"card {card} of {node} has no cable to a leaf switch",
        remedy=f"Choose one of {known}" if known else "Start a lab whose topology names leaves",
    )


def _port(cables: Sequence[Cable], leaves: Sequence[str], to: str) -> tuple[str, int]:
    leaf, _, port = to.partition("/")
    if leaf not in leaves:
        raise Refused(
            f"there is no leaf switch {leaf!r}", remedy=f"Choose {', '.join(leaves)} or {OUT}"
        )
    if not port:
        return leaf, _free(leaf, {cable.port for cable in cables if cable.leaf == leaf})
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= PORTS):
        raise Refused(
            f"{leaf} has no port {port!r}", remedy=f"Choose {leaf}/1 to {leaf}/{PORTS}, or {leaf}"
        )
    return leaf, int(port)


def commands(before: Sequence[Cable], after: Sequence[Cable]) -> tuple[str, ...]:
    """Return the lines for `ip -batch` that plug in what has changed.

    Bridges of a changed rail forget all MACs; else a moved card that sends nothing is not found.
    """
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    lines = [
        f"link set {cable.interface} master {network.bridge(cable.rail, cable.leaf)} up"
        if cable.leaf
        else f"link set {cable.interface} nomaster down"
        for cable in changed
    ]
    rails = {cable.rail for cable in changed}
    leaves = {cable.leaf for cable in (*before, *after)} | {""}
    bridges = sorted(network.bridge(rail, leaf) for rail in rails for leaf in leaves)
    return (*lines, *(f"link set {bridge} type bridge fdb_flush" for bridge in bridges))


def _file(home: Path) -> Path:
    return home / "cables.json"


def read(home: Path) -> tuple[Cable, ...]:
    """Return the cables of the lab in a folder; none if its topology names no leaves."""
    try:
        return tuple(Cable(**fields) for fields in json.loads(_file(home).read_text()))
    except FileNotFoundError:
        return ()


def write(home: Path, cables: Sequence[Cable]) -> None:
    """Replace a lab's cables at once: a reader sees the old or the new, never half."""
    beside = home / "cables.json.new"
    beside.write_text(json.dumps([asdict(cable) for cable in cables], indent=1))
    beside.rename(_file(home))


def move(lab: Lab, node: str, card: str, to: str) -> tuple[Cable, ...]:
    """Move a card's cable as `moved` does; return it and the cable that gave way to it."""
    before = read(lab.home)
    after = moved(before, lab.topology.leaves, node, card, to)
    lines = "".join(f"{line}\n" for line in commands(before, after))
    waiting.run(lab, [*lab.enter(), "ip", "-batch", "-"], stdin=lines)
    write(lab.home, after)
    mine = _find(after, node, card)
    return tuple(new for old, new in zip(before, after, strict=True) if old != new or new == mine)
