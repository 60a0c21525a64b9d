"""Numbers the rails of a node's cards; a card keeps its number while pods may use it.

It stands between pools/rules/pools, whose cards it numbers, and the addresses of pods, which rails
choose. By themselves cards are numbered by address, the same on all nodes of one kind. A card that
is gone keeps its number until another replaces it. One at a new address is known by its GUID. A
new card between others would shift them. So while pods hold cards it has a number behind all
others, and its own place when the node is idle. The configuration may list the cards instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed as enumerated
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools import RailRecord

_ADDRESS = re.compile(r"[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_NOBODY = "0000:0000:0000:0000"  # the GUID of a device that was given none


def physical(card: Card) -> CardId:
    """Return the physical function of a card; itself if it is one, or is a soft device."""
    position = card.position
    return CardId(position.physical_function or position.pci) if position else card.id


def recorded(
    before: RailRecord,
    offered: Iterable[Card],
    node: Sequence[Card],
    listed: Sequence[str],
    *,
    idle: bool,
    boot: str = "",
) -> RailRecord:
    """Return the record of rails after one more survey of the node.

    `offered` are the cards of all pools, `node` all that the node has, `listed` the order that the
    configuration lists. `idle` says that certainly no pod holds a card. `boot` identifies this
    start of the node, empty when it is not known.
    """
    guids = _guids(node)
    at = _recognized(before, guids)
    new = {
        address: _name(address, before, guids)
        for address in sorted(set(map(physical, offered)) - at.keys())
    }
    names = {name: card for name, card in before.names if name in listed}
    names |= {entry: CardId(entry.lower()) for entry in listed if _ADDRESS.fullmatch(entry)}
    names |= {name: card for name, card in _names(node) if name in listed}
    at |= new
    guids_now = {at[address]: guid for address, guid in guids.items() if address in at}
    record = replace(
        before,
        functions=(*before.functions, *new.values()),
        names=tuple(sorted(names.items())),
        guids=tuple(sorted((dict(before.guids) | guids_now).items())),
        places=_moved(at),
    )
    here = {at.get(physical(card)) for card in node}
    record = _since_boot(record, here, tuple(new.values()), boot)
    record = _replaced(record, tuple(new.values()), idle=idle)
    return replace(record, functions=tuple(sorted(record.functions))) if idle else record


def numbers(
    record: RailRecord, node: Iterable[Card], listed: Sequence[str]
) -> Mapping[CardId, int]:
    """Return the rail of each card that has one, virtual functions of the node included.

    Recorded or listed cards have one also while they are gone. If `listed` has names, its order
    counts and other cards have no rail.
    """
    names = dict(record.names)
    rails = {names.get(entry, CardId(entry.lower())): rail for rail, entry in enumerate(listed)}
    if not listed:
        order = {name: rail for rail, name in enumerate(record.functions)}
        moved = {address: order[name] for address, name in record.places if name in order}
        away = {name for _, name in record.places}
        rails = {name: rail for name, rail in order.items() if name not in away} | moved
    parts = {card.id: rails[of] for card in node if (of := physical(card)) in rails}
    return rails | parts


def places_of(record: RailRecord) -> tuple[tuple[str, CardId], ...]:
    """Return pairs of rail and physical card.

    A rail is an entry of the configured list, else a number. A soft device without a function is
    left out: it is out of sight while a pod has it.
    """
    if record.names:
        return tuple((entry, card) for entry, card in record.names if "@" not in card)
    at = {name: address for address, name in record.places}
    numbered = enumerate(record.functions)
    return tuple((str(rail), at.get(name, name)) for rail, name in numbered if "@" not in name)


def without_cards(record: RailRecord, node: Iterable[Card]) -> str | None:
    """Return a sentence about rails whose cards the node does not have; None where it has all."""
    present = set(map(physical, node))
    at = {name: address for address, name in record.places}
    # A soft device without a function is out of sight while a pod has it.
    names = (name for name in record.functions if "@" not in name)
    gone = [name for name in names if at.get(name, name) not in present]
    if not gone:
        return None
    rails = [str(record.functions.index(name)) for name in gone]
    return (
        f"{len(record.functions)} rails are numbered, and the node has no card for "
        f"{enumerated(rails)} ({enumerated(gone)}): if they are gone for good, list the cards in "
        "rails of a NodePolicy"
    )


def _guids(node: Iterable[Card]) -> Mapping[CardId, str]:
    """Return by address the node GUID of physical functions, without GUIDs that several share."""
    guids = {
        card.id: guid
        for card in node
        if card.position and physical(card) == card.id
        for device in card.devices[:1]
        if (guid := device.node_guid) and guid != _NOBODY
    }
    counts = Counter(guids.values())
    return {address: guid for address, guid in guids.items() if counts[guid] == 1}


def _recognized(before: RailRecord, guids: Mapping[CardId, str]) -> dict[CardId, CardId]:
    """Return by present address the names of known cards: by their GUID, else by address.

    A card whose GUID is missing may be in a pod or have been exchanged. Its address stays its own,
    unless a known card is there now.
    """
    by_guid = {guid: name for name, guid in before.guids}
    at = {address: by_guid[guid] for address, guid in guids.items() if guid in by_guid}
    placed = set(at.values())
    occupied = {address for address, _ in before.places}
    own = ((name, name) for name in before.functions if name not in occupied)
    moved = {name for _, name in before.places}
    for address, name in (*before.places, *own):
        is_last = address != name or name not in moved
        if name not in placed and is_last and address not in at:
            at[address] = name
    return at


def _name(address: CardId, before: RailRecord, guids: Mapping[CardId, str]) -> CardId:
    """Return the record's name for a new card: its address, with a suffix if that name is taken."""
    if address not in before.functions:
        return address
    return CardId(f"{address}#{guids.get(address, len(before.functions))}")


def _moved(at: Mapping[CardId, CardId]) -> tuple[tuple[CardId, CardId], ...]:
    """Return address and name of each card whose name in the record is not its address."""
    return tuple(sorted((address, name) for address, name in at.items() if address != name))


def _since_boot(
    record: RailRecord, here: Collection[CardId | None], new: Sequence[CardId], boot: str
) -> RailRecord:
    """Return the record with `waiting` and `came`: cards unseen and new cards since the boot."""
    waiting, came = record.waiting, record.came
    if boot and boot != record.boot:
        before = (name for name in record.functions if name not in new)
        waiting, came = tuple(name for name in before if "@" not in name), ()
    waiting = tuple(name for name in waiting if name not in here)
    came = (*came, *(name for name in new if "@" not in name)) if boot else ()
    return replace(record, boot=boot or record.boot, waiting=waiting, came=came if waiting else ())


def _replaced(record: RailRecord, new: Sequence[CardId], *, idle: bool) -> RailRecord:
    """Return the record with added cards in the places of missing ones, if their counts are equal.

    Without `idle` nothing changes that would renumber cards which pods may use.
    """
    if not record.waiting or len(record.waiting) != len(record.came):
        return record
    if not idle and set(record.came) != set(new):
        return record
    instead = dict(zip(sorted(record.came), sorted(record.waiting), strict=True))
    at = {name: address for address, name in record.places}
    places = {address: name for address, name in record.places if name not in record.waiting}
    guids = {name: guid for name, guid in record.guids if name not in record.waiting}
    for name, place in instead.items():
        address = at.get(name, name)
        places[address] = place
        if name in guids:
            guids[place] = guids.pop(name)
    return replace(
        record,
        functions=tuple(name for name in record.functions if name not in instead),
        guids=tuple(sorted(guids.items())),
        places=_moved(places),
        waiting=(),
        came=(),
    )


def _names(node: Iterable[Card]) -> Iterable[tuple[str, CardId]]:
    """Yield the interface names of physical cards and of soft devices, each with its card."""
    for card in node:
        if card.function and card.function.position.physical_function is None:
            yield from ((netdev.name, physical(card)) for netdev in card.function.netdevs)
        elif card.function is None:
            ports = (port.netdev for device in card.devices for port in device.ports)
            yield from ((name, physical(card)) for name in ports if name and card.position is None)
