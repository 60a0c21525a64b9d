"""What a request gets: addresses that it has already, new ones from the node's holdings, or a lack.

The one place where addresses are granted. No API server is asked here: agent.py claims what is
lacking and asks again. All of a request's NICs are granted together, as one record of the journal,
or none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.model.ipam import Address, Ask, Booking, Cell, Lease, NicAsk, Owner, PoolName
from kube_rdma.rules.ipam.cells import Zone, cell_of, mask, places, range_of, zones_for
from kube_rdma.rules.ipam.node_state import Hold, NodeAddressState, is_lost, used

Catalog = Mapping[PoolName, tuple[Zone, ...]]
"""Every pool, compiled by cells.zones."""


class Lack(Frozen):
    """What is missing for a request: `count` addresses of a zone, or just `address`."""

    zone: Zone
    count: int
    address: Address | None = None
    owner: Owner | None = None

    @property
    def must(self) -> bool:
        """Nothing else will do: a static address. A sticky one is only preferred."""
        return self.address is not None and self.owner is None


class Granted(Frozen):
    """The answer; valid once `booking` is in the journal and the right still holds."""

    leases: tuple[Lease, ...]
    booking: Booking


class Short(Frozen):
    """The node holds too little; claims have to come first."""

    lacks: tuple[Lack, ...]


def ask(
    state: NodeAddressState, request: Ask, catalog: Catalog, now: float
) -> tuple[NodeAddressState, Granted | Short]:
    """All addresses of a request, the ones it already has and new ones; or what is lacking.

    Raises Refused (unknown pool or rail, a static address that cannot be), Unavailable (no contact
    with the API server for too long) and Broken (an address of it was taken away). The new state
    stands whether or not the journal then takes the booking: asking again stores it again.
    """
    if now >= state.right_until:
        raise Unavailable(
            f"node {state.node} has had no contact with the API server for too long, so it grants "
            "no address until the contact is back"
        )
    before = state.bookings.get(request.container)
    leases: list[Lease] = []
    fresh: list[Lease] = []
    lacks: list[Lack] = []
    holds = state.holds
    for nic, zone in demands(request, catalog):
        lease = _existing(state, before, nic, zone)
        if lease is None:
            picked = _pick(state, holds, nic, zone)
            if isinstance(picked, Lack):
                lacks.append(picked)
                continue
            lease = _lease(nic, zone, picked)
            holds = used(holds, (lease,))
            fresh.append(lease)
        leases.append(lease)
    if lacks:
        return state, Short(_summed(lacks))
    booking = before
    if fresh or booking is None:
        old = before.leases if before else ()
        booking = Booking(request.container, request.pod, (*old, *fresh), now)
    bookings = {**state.bookings, request.container: booking}
    return replace(state, holds=holds, bookings=bookings), Granted(tuple(leases), booking)


def describe_loss(state: NodeAddressState, booking: Booking, lease: Lease) -> str:
    """The sentence about an address that was taken from a living container (node_state.lost)."""
    cell, _ = cell_of(lease.network, lease.address)
    return (
        f"{lease.address} of container {booking.container}, interface {lease.interface}, is no "
        f"longer held by node {state.node}, see IPBlock {cell.name}, spec.holdings: another pod "
        f"may have it; delete the pod {booking.pod}"
    )


def demands(request: Ask, catalog: Catalog) -> Iterator[tuple[NicAsk, Zone]]:
    """One NIC and zone for each address to grant, after everything that can be wrong."""
    for nic in request.nics:
        if nic.pool not in catalog:
            raise Refused(
                f"there is no IPPool {nic.pool}",
                remedy="Create it, or name one that exists",
                where=f"interface {nic.interface}",
            )
        zones = zones_for(catalog[nic.pool], nic.rail)
        if not zones:
            rails = sorted({zone.rail for zone in catalog[nic.pool] if zone.rail is not None})
            raise Refused(
                f"IPPool {nic.pool} has no range for rail {nic.rail}; it has rails {rails}",
                remedy="Add a range for the rail, or one without a rail",
                where=f"interface {nic.interface}",
            )
        for address in nic.addresses:
            if not any(_has(zone, address) for zone in zones):
                raise Refused(
                    f"IPPool {nic.pool} does not give {address}",
                    remedy="Ask for an address of its ranges that is neither excluded nor reserved",
                    where=f"interface {nic.interface}",
                )
        for zone in zones:
            yield nic, zone


def _has(zone: Zone, address: Address) -> bool:
    cell, bit = cell_of(zone.network, address)
    return bool(mask(zone, cell) & bit)


def _existing(
    state: NodeAddressState, booking: Booking | None, nic: NicAsk, zone: Zone
) -> Lease | None:
    """What the same key already has; it may never have been answered, so it must be held now."""
    for lease in booking.live if booking else ():
        key = (lease.network, lease.interface, lease.pool, lease.address.version)
        if key != (zone.network, nic.interface, zone.pool, zone.family):
            continue
        if booking and is_lost(state, lease):
            raise Broken(describe_loss(state, booking, lease))
        cell, bit = cell_of(lease.network, lease.address)
        if not state.holds[cell].mine & bit:
            raise Unavailable(f"node {state.node} is just asking for IPBlock {cell.name} again")
        return lease
    return None


def _pick(
    state: NodeAddressState, holds: Mapping[Cell, Hold], nic: NicAsk, zone: Zone
) -> Address | Lack:
    """An address that can be granted: the static one, the owner's last, else any."""
    for address in nic.addresses:
        if address.version == zone.family:
            return address if _is_spare(holds, zone, address) else Lack(zone, 1, address)
    if nic.owner:
        kept = _kept(state, nic, zone)
        if kept and kept not in nic.prefer:
            return kept
        for address in nic.prefer:
            if address.version == zone.family and _has(zone, address):
                if address == kept or _is_spare(holds, zone, address):
                    return address
                return Lack(zone, 1, address, nic.owner)
    return _any(holds, zone) or Lack(zone, 1)


def _kept(state: NodeAddressState, nic: NicAsk, zone: Zone) -> Address | None:
    """The owner's own address that still rests on this node: it need not wait for it."""
    taken = {lease.address for b in state.bookings.values() for lease in b.live}
    for container in state.ends:
        for lease in state.bookings[container].leases:
            own = lease.resting and lease.owner == nic.owner and lease.pool == zone.pool
            if own and _has(zone, lease.address) and lease.address not in taken:
                cell, bit = cell_of(lease.network, lease.address)
                return lease.address if state.holds[cell].mine & bit else None
    return None


def _is_spare(holds: Mapping[Cell, Hold], zone: Zone, address: Address) -> bool:
    cell, bit = cell_of(zone.network, address)
    return cell in holds and bool(holds[cell].spare & bit)


def _any(holds: Mapping[Cell, Hold], zone: Zone) -> Address | None:
    """A spare address, one that is nobody's last if there is one."""
    second: Address | None = None
    for cell, hold in holds.items():
        if hold.spare and (spare := hold.spare & mask(zone, cell)):
            if fresh := spare & ~hold.pinned:
                return cell.address(next(places(fresh)))
            second = second or cell.address(next(places(spare)))
    return second


def _lease(nic: NicAsk, zone: Zone, address: Address) -> Lease:
    r = range_of(zone, address)
    return Lease(
        zone.network,
        nic.interface,
        zone.pool,
        address,
        r.subnet,
        r.gateway,
        zone.rest,
        nic.owner,
    )


def _summed(lacks: Iterable[Lack]) -> tuple[Lack, ...]:
    """One lack for each zone and one for each address."""
    sums: dict[tuple[PoolName, int, int | None, Address | None], Lack] = {}
    for lack in lacks:
        key = (lack.zone.pool, lack.zone.family, lack.zone.rail, lack.address)
        sums[key] = replace(lack, count=sums[key].count + 1) if key in sums else lack
    return tuple(sums.values())
