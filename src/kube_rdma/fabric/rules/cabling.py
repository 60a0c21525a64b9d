"""Compares the cables that are seen with those that an administrator accepted or wrote.

Nodes without expected cables are compared with the other nodes of their leaves. Cables that are
plugged in at each other's places are one fault, however many they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import TypeAlias

from kube_base.natural import natural
from kube_base.plain_text import plain
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import CardId
from kube_rdma.model.fabric import CableFault, FaultyCable, NodeCables, SwitchPort
from kube_rdma.model.fabric import CableFaultKind as Kind
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.reports import ExpectedCable

_End: TypeAlias = tuple[str, CardId, int]  # node, card, number of the port
_REMEDIES = {
    Kind.SWAPPED: "Exchange the cables",
    Kind.MOVED: "Plug it in where it belongs",
    Kind.LOST: "See why with kube-rdma fabric show NODE",
    Kind.UNKNOWN: "Take it out",
    Kind.SHARED_LEAF: "Give each card the leaf of its rail",
}
_NOBODY = "nobody accepted it"


def cable_faults(cables: Iterable[NodeCables]) -> tuple[CableFault, ...]:
    """Return the faults of cables: first those against expected cables, then shared leaves."""
    nodes = sorted(cables, key=lambda one: natural(one.node))
    return (*_unexpected([one for one in nodes if one.expected]), *_shared_leaves(nodes))


def accepted_cables(cables: NodeCables) -> tuple[ExpectedCable, ...]:
    """Return the cables of a node as they are seen, to be expected from now on."""
    heard = cables.heard.items()
    return tuple(ExpectedCable(card, at.switch, number, at.port) for (card, number), at in heard)


def _unexpected(nodes: Sequence[NodeCables]) -> Iterator[CableFault]:
    places = {(node.node, *end): place for node in nodes for end, place in node.places.items()}
    cables = {
        end: FaultyCable(node.node, port.title, port.at, places.get(end))
        for node in nodes
        for port in node.ports
        for end in [(node.node, port.card, port.number)]
    }
    wrong = {
        end: cable
        for end, cable in cables.items()
        if cable.expected and not cable.expected.takes(cable.seen)
    }
    for cycle in _cycles(wrong, {place: end for end, place in places.items() if place.port}):
        yield CableFault(Kind.SWAPPED, tuple(wrong.pop(end) for end in cycle))
    groups = defaultdict(list)  # by node, for a node may have many
    for end, cable in cables.items():
        if end in wrong:
            groups[Kind.MOVED if cable.seen else Kind.LOST, cable.node].append(cable)
        elif cable.seen and not cable.expected:
            groups[Kind.UNKNOWN, cable.node].append(cable)
    yield from (CableFault(kind, tuple(some)) for (kind, _), some in groups.items())


def _cycles(
    wrong: Mapping[_End, FaultyCable], owners: Mapping[SwitchPort, _End]
) -> list[tuple[_End, ...]]:
    """Return groups of card ports: each is plugged in where the next of its group belongs."""
    placed = {end: one.seen for end, one in wrong.items() if one.seen}
    follows = {end: owners[place] for end, place in placed.items() if place in owners}
    seen: set[_End] = set()
    found = []
    for first in wrong:
        path: dict[_End, None] = {}
        end: _End | None = first
        while end in follows and end not in seen and end not in path:
            path[end] = None
            end = follows[end]
        seen.update(path)
        if end in path:
            every = tuple(path)
            found.append(every[every.index(end) :])
    return found


def _shared_leaves(nodes: Sequence[NodeCables]) -> Iterator[CableFault]:
    """Yield a fault where cards of a node share a leaf on which most nodes have one card.

    Nodes with expected cables have no such fault.
    """
    on: dict[str, dict[str, dict[CardId, FaultyCable]]] = defaultdict(lambda: defaultdict(dict))
    for node in nodes:
        for port in node.ports:
            if port.at:
                cable = FaultyCable(node.node, port.title, port.at)
                on[port.at.switch][node.node][port.card] = cable
    accepted = {node.node for node in nodes if node.expected}
    for of_leaf in on.values():
        single = Counter(map(len, of_leaf.values()))[1]
        for name, cards in of_leaf.items():
            if single * 2 > len(of_leaf) > 2 and len(cards) > 1 and name not in accepted:
                yield CableFault(Kind.SHARED_LEAF, tuple(cards.values()))


# What people are told of a fault.


def cable_finding(fault: CableFault) -> Finding:
    """Return a fault as a Finding about its first node.

    The Finding is an error only if a cable is missing from the leaf where it is expected.
    """
    pairs = [(cable.seen, cable.expected) for cable in fault.cables]
    on_leaf = all(not place or (at and at.switch == place.switch) for at, place in pairs)
    names = " ".join(quote(name) for name in fault.nodes[:3]) + (" …" if fault.nodes[3:] else "")
    return Finding.of(
        fault.kind.value,
        f"node/{fault.nodes[0]}",
        fault_text(fault),
        f"{_REMEDIES[fault.kind]}, or accept what is seen: kube-rdma fabric accept {names}",
        Severity.ADVICE if on_leaf else Severity.ERROR,
    )


def fault_text(fault: CableFault) -> str:
    """Return what is wrong with the cables of a fault: where the first few are and belong."""
    seen = [f"is in {one.seen}" if one.seen else "hears no switch" for one in fault.cables]
    texts = [f"{one.node} {one.card} {at}" for one, at in zip(fault.cables, seen, strict=True)]
    if fault.kind is Kind.SHARED_LEAF:
        return plain(f"{listed(texts)}: one leaf, of which other nodes have one card each")
    right = [f"belongs in {one.expected}" if one.expected else _NOBODY for one in fault.cables]
    return plain(_joined([", and ".join(each) for each in zip(texts, right, strict=True)]))


def node_fault_texts(faults: Iterable[CableFault]) -> Mapping[str, str]:
    """Return what is wrong with the cables of each node that has a fault, by node."""
    texts = defaultdict(list)
    for fault in faults:
        for node in fault.nodes:
            texts[node].append(fault_text(fault))
    return {node: _joined(some) for node, some in texts.items()}


def _joined(texts: Sequence[str]) -> str:
    more = (f"and {len(texts) - 4} more",) if texts[4:] else ()
    return "; ".join((*texts[:4], *more))
