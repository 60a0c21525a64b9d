"""What a node knows and grants by itself: holdings that it has confirmed, bookings of its journal.

A grant needs three things: the right to grant (a node lease renewed less than T ago), an address
that the node's own last write of the block confirmed, and that nobody uses it. All of a request's
NICs are one new Booking, so one record of the journal. What frees an address takes effect only when
the journal has it: `release` and `retire` change nothing, `stored` and `removed` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from kube_base.frozen import Frozen, field
from kube_rdma.model.ipam import (
    Bits,
    Booking,
    Cell,
    ContainerId,
    InterfaceName,
    Lease,
    NodeName,
)
from kube_rdma.rules.ipam.cells import NONE, Zone, cell_of, mask


class Hold(Frozen):
    """What the node knows of its part of one cell.

    `mine` is what its last write that surely succeeded says. `used` are the addresses of bookings,
    resting ones too. `leaving` are being given back: whether they are gone is not known yet.
    `doubt`: a write is under way or its outcome is unknown. `pinned` were others' last addresses.
    """

    mine: Bits = NONE
    used: Bits = NONE
    leaving: Bits = NONE
    pinned: Bits = NONE
    doubt: bool = False

    @property
    def spare(self) -> Bits:
        """What can be granted."""
        return Bits(self.mine & ~self.used & ~self.leaving)


class NodeAddressState(Frozen):
    """All that a node's agent knows of addresses.

    `ends` says when a container's rests are over. The right to grant ends at `right_until`; `term`
    counts how often it was lost: what was begun in another term counts no more. `taken` are
    addresses in use that others had when the store went back: they are not asked back first.
    """

    node: NodeName
    holds: Mapping[Cell, Hold] = field(default_factory=dict)
    bookings: Mapping[ContainerId, Booking] = field(default_factory=dict)
    ends: Mapping[ContainerId, float] = field(default_factory=dict)
    right_until: float = -inf
    term: int = 0
    taken: Mapping[Cell, Bits] = field(default_factory=dict)

    def claims(self, cell: Cell) -> Bits:
        """What is asked back wherever nobody holds it."""
        hold = self.holds.get(cell)
        return Bits(hold.used & ~self.taken.get(cell, NONE)) if hold else NONE


def load(node: NodeName, bookings: Iterable[Booking], now: float) -> NodeAddressState:
    """The state of a process that has just read the journal: it holds nothing, rests begin again.

    Nothing is granted before the node lease and the blocks are this process's own (agent.enter).
    """
    kept = {b.container: replace(b, began=now) for b in bookings}
    ends = {c: now + _rest(b) for c, b in kept.items() if b.live != b.leases}
    state = NodeAddressState(node, bookings=kept, ends=ends)
    for booking in kept.values():
        state = replace(state, holds=used(state.holds, booking.leases))
    return state


def cut(state: NodeAddressState) -> NodeAddressState:
    """The right is lost: every holding must be confirmed again before it is granted from."""
    doubted = {
        cell: replace(hold, mine=NONE, leaving=NONE, doubt=True)
        for cell, hold in state.holds.items()
    }
    return replace(state, holds=doubted, right_until=-inf, term=state.term + 1)


def trusted(state: NodeAddressState) -> Mapping[Cell, Bits]:
    """What the node surely holds, whatever an older store says, as long as it has the right."""
    return {cell: Bits(hold.mine & ~hold.leaving) for cell, hold in state.holds.items()}


def renewed(state: NodeAddressState, sent: float, duration: float) -> NodeAddressState:
    """A renewal succeeded: the right holds from when it was sent, not from its answer."""
    return replace(state, right_until=sent + duration)


def release(
    state: NodeAddressState, container: ContainerId, interface: InterfaceName | None = None
) -> Booking | None:
    """What to store so that the container's addresses (of one interface) rest; None: nothing to do.

    Only this container's: a late DEL of an old sandbox finds nothing of the new one.
    """
    booking = state.bookings.get(container)
    if booking is None:
        return None
    leases = tuple(
        replace(lease, resting=True) if interface in (None, lease.interface) else lease
        for lease in booking.leases
    )
    return replace(booking, leases=leases) if leases != booking.leases else None


def due(state: NodeAddressState, now: float) -> tuple[ContainerId, ...]:
    """Containers whose released addresses have rested."""
    return tuple(container for container, end in state.ends.items() if end <= now)


def retire(state: NodeAddressState, container: ContainerId) -> Booking:
    """What to store to end the container's rests; without leases, the record is to be removed."""
    booking = state.bookings[container]
    return replace(booking, leases=booking.live)


def stored(state: NodeAddressState, booking: Booking, now: float) -> NodeAddressState:
    """The journal has it: newly released addresses begin to rest, those it lacks are spare."""
    old = state.bookings.get(booking.container)
    bookings = {**state.bookings, booking.container: booking}
    ends = dict(state.ends)
    before = {lease for lease in old.leases if lease.resting} if old else set()
    resting = {lease for lease in booking.leases if lease.resting}
    if resting - before:
        ends[booking.container] = now + _rest(booking)
    elif not resting:
        ends.pop(booking.container, None)
    state = replace(state, bookings=bookings, ends=ends)
    kept = {(lease.network, lease.address) for lease in booking.leases}
    dropped = [le for le in old.leases if (le.network, le.address) not in kept] if old else []
    return _freed(state, dropped) if dropped else state


def removed(state: NodeAddressState, container: ContainerId) -> NodeAddressState:
    """The journal no longer has a record of the container."""
    bookings, ends = dict(state.bookings), dict(state.ends)
    old = bookings.pop(container)
    ends.pop(container, None)
    return _freed(replace(state, bookings=bookings, ends=ends), old.leases)


def abandoned(
    state: NodeAddressState, living: frozenset[ContainerId], since: float
) -> tuple[ContainerId, ...]:
    """Containers to release: not among the living, which were listed beginning at `since`."""
    return tuple(
        container
        for container, booking in state.bookings.items()
        if booking.live and container not in living and booking.began < since
    )


def is_lost(state: NodeAddressState, lease: Lease) -> bool:
    """Its block was written by this node and does not leave it the address."""
    cell, bit = cell_of(lease.network, lease.address)
    hold = state.holds[cell]
    return not hold.doubt and not hold.mine & bit


def lost(state: NodeAddressState) -> tuple[tuple[Booking, Lease], ...]:
    """Living addresses that another node holds now: each pod has to be told of, as Broken."""
    return tuple(
        (booking, lease)
        for booking in state.bookings.values()
        for lease in booking.live
        if is_lost(state, lease)
    )


def spare(state: NodeAddressState, zone: Zone) -> int:
    """How many addresses of the zone could be granted now."""
    return sum((hold.spare & mask(zone, cell)).bit_count() for cell, hold in state.holds.items())


def _rest(booking: Booking) -> float:
    """How long its released addresses rest, in seconds; 0 where there are none."""
    return max((lease.rest for lease in booking.leases if lease.resting), default=0.0)


def used(holds: Mapping[Cell, Hold], leases: Iterable[Lease]) -> Mapping[Cell, Hold]:
    """The holds, with the addresses of `leases` marked."""
    changed = dict(holds)
    for lease in leases:
        cell, bit = cell_of(lease.network, lease.address)
        hold = changed.get(cell, Hold(doubt=True))
        changed[cell] = replace(hold, used=Bits(hold.used | bit))
    return changed


def _freed(state: NodeAddressState, dropped: Iterable[Lease]) -> NodeAddressState:
    """What leases had that no booking has any more is used no longer.

    Only an owner's address can be in two bookings: it comes back to its owner before it rested.
    """
    holds = dict(state.holds)
    for lease in dropped:
        place = (lease.network, lease.address)
        if lease.owner and any(
            (other.network, other.address) == place
            for booking in state.bookings.values()
            for other in booking.leases
        ):
            continue
        cell, bit = cell_of(*place)
        holds[cell] = replace(holds[cell], used=Bits(holds[cell].used & ~bit))
        if holds[cell] == Hold(pinned=holds[cell].pinned):
            del holds[cell]
    return replace(state, holds=holds)
