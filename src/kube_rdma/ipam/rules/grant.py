"""Grants addresses of the node to a request, or says which are lacking; lends spare ones to others.

Addresses of pools are granted here alone. No API server is asked: agent.py acquires what is lacking
and calls `grant` again. A request gets addresses for all its NICs, as one record of the journal, or
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from ipaddress import ip_address
from math import log2

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.ipam.rules.blocks import BlockAddresses, Blocks, outlook
from kube_rdma.ipam.rules.node_state import Holdings, NodeAddressState, is_lost, mark_in_use, spare
from kube_rdma.ipam.rules.pools import own_part
from kube_rdma.ipam.rules.subpools import (
    Subpool,
    key_of,
    lowest,
    mask,
    offsets,
    range_of,
    subpools_for,
)
from kube_rdma.model import ipam

MOST_REQUESTS = 64  # borrow requests of a node in a pool, by family, rail and certain address
_AHEAD = 3  # times the block size: more than this is given back unasked

Catalog = Mapping[ipam.PoolName, tuple[Subpool, ...]]
"""The usable pools, compiled by subpools.subpools."""


class Shortage(Frozen):
    """Addresses that a request lacks: `count` of a subpool, or only `address`."""

    subpool: Subpool
    count: int
    address: ipam.Address | None = None
    owner: ipam.Owner | None = None

    @property
    def must(self) -> bool:
        """Return whether only this address will do: a static one, not the last one of an owner."""
        return self.address is not None and self.owner is None


class GrantedAddresses(Frozen):
    """The addresses granted to a container.

    They are valid once `record` is in the journal and the node's right still holds.
    """

    allocations: tuple[ipam.AddressAllocation, ...]
    record: ipam.AllocationRecord


class LackingAddresses(Frozen):
    """The result of a grant for which the node holds too few addresses: what it has to acquire."""

    shortages: tuple[Shortage, ...]


def grant(
    state: NodeAddressState, request: ipam.AddressRequest, catalog: Catalog, now: float
) -> tuple[NodeAddressState, GrantedAddresses | LackingAddresses]:
    """Return the new state, and all addresses of a request, old and new ones, or the shortages.

    Raise Refused for an unknown pool or rail. Raise it for a static address that the pool does not
    give, or that is outside of the node's slice. Raise Unavailable if the node's right has ended,
    or an address of the container is not confirmed yet. Raise Broken if the node has lost one. The
    new state stays valid whether or not the journal then takes the record.
    """
    if now >= state.right_until:
        raise Unavailable(
            f"node {state.node} has had no contact with the API server for too long, so it grants "
            "no address until the contact is back"
        )
    before = state.records.get(request.container)
    allocations: list[ipam.AddressAllocation] = []
    fresh: list[ipam.AddressAllocation] = []
    shortages: list[Shortage] = []
    holdings = state.holdings
    for nic, subpool in nics_with_subpools(request, catalog):
        allocation = _existing(state, before, nic, subpool)
        if allocation is None:
            own = own_part(state.node, holdings, subpool)
            _refuse_elsewhere(nic, own, state)
            picked = _pick(state, holdings, nic, own) if own else Shortage(subpool, 1)
            if isinstance(picked, Shortage):
                shortages.append(picked)
                continue
            allocation = _allocation(nic, own or subpool, picked)
            holdings = mark_in_use(holdings, (allocation,))
            fresh.append(allocation)
        allocations.append(allocation)
    if shortages:
        # One for each subpool and one for each address.
        sums: dict[tuple[ipam.PoolName, int, int | None, ipam.Address | None], Shortage] = {}
        for shortage in shortages:
            part = shortage.subpool
            key = (part.pool, part.family, part.rail, shortage.address)
            sums[key] = replace(shortage, count=sums[key].count + 1) if key in sums else shortage
        return state, LackingAddresses(tuple(sums.values()))
    record = before
    if fresh or record is None:
        old = before.allocations if before else ()
        record = ipam.AllocationRecord(request.container, request.pod, (*old, *fresh), now)
    records = {**state.records, request.container: record}
    granted = GrantedAddresses(tuple(allocations), record)
    return replace(state, holdings=holdings, records=records), granted


def describe_loss(
    state: NodeAddressState, record: ipam.AllocationRecord, allocation: ipam.AddressAllocation
) -> str:
    """Return a sentence for people about an address that a living container has lost."""
    key, _ = key_of(allocation.network, allocation.address)
    return (
        f"{allocation.address} of container {record.container}, interface {allocation.interface}, "
        f"is no longer held by node {state.node}, see IPBlock {key.name}, spec.holdings: another "
        f"pod may have it; delete the pod {record.pod}"
    )


def nics_with_subpools(
    request: ipam.AddressRequest, catalog: Catalog
) -> Iterator[tuple[ipam.NicRequest, Subpool]]:
    """Yield each interface of a request with each subpool that it gets an address of.

    Raise Refused for an unknown pool, a rail without a range, or an address that the pool does not
    give.
    """
    for nic in request.nics:
        if nic.pool not in catalog:
            raise Refused(
                f"there is no IPPool {nic.pool}",
                remedy="Create it, or name one that exists",
                where=f"interface {nic.interface}",
            )
        subpools = subpools_for(catalog[nic.pool], nic.rail)
        if not subpools:
            rails = sorted({s.rail for s in catalog[nic.pool] if s.rail is not None})
            raise Refused(
                f"IPPool {nic.pool} has no range for rail {nic.rail}; it has rails {rails}",
                remedy="Add a range for the rail, or one without a rail",
                where=f"interface {nic.interface}",
            )
        for address in nic.addresses:
            if not any(_has(subpool, address) for subpool in subpools):
                raise Refused(
                    f"IPPool {nic.pool} does not give {address}",
                    remedy="Ask for an address of its ranges that is neither excluded nor reserved",
                    where=f"interface {nic.interface}",
                )
        for subpool in subpools:
            yield nic, subpool


def _refuse_elsewhere(nic: ipam.NicRequest, own: Subpool | None, state: NodeAddressState) -> None:
    """Raise Refused for a static address outside of this node's slice, if it has a slice."""
    if own is None or own.node_slice is None:
        return
    for address in nic.addresses:
        if address.version == own.family and not _has(own, address):
            raise Refused(
                f"{address} is outside of {own.node_slice}, which node {state.node} has of IPPool "
                f"{own.pool}",
                remedy="Ask for an address of this node's slice, or run the pod on its own node",
                where=f"interface {nic.interface}",
            )


def _has(subpool: Subpool, address: ipam.Address) -> bool:
    key, bit = key_of(subpool.network, address)
    return bool(mask(subpool, key) & bit)


def _existing(
    state: NodeAddressState,
    record: ipam.AllocationRecord | None,
    nic: ipam.NicRequest,
    subpool: Subpool,
) -> ipam.AddressAllocation | None:
    """Return the address that the interface already has of this subpool; None without one.

    Raise Broken where this node has lost it, Unavailable where it is not confirmed yet.
    """
    for allocation in record.live if record else ():
        having = (allocation.network, allocation.interface, allocation.pool)
        is_same = having == (subpool.network, nic.interface, subpool.pool)
        if not is_same or allocation.address.version != subpool.family:
            continue
        if record and is_lost(state, allocation):
            raise Broken(describe_loss(state, record, allocation))
        key, bit = key_of(allocation.network, allocation.address)
        if not state.holdings[key].confirmed & bit:
            raise Unavailable(f"node {state.node} is just asking for IPBlock {key.name} again")
        return allocation
    return None


def _pick(
    state: NodeAddressState, holdings: Holdings, nic: ipam.NicRequest, subpool: Subpool
) -> ipam.Address | Shortage:
    """Return an address to grant, or the shortage: the static one, the owner's last, else any."""
    for address in nic.addresses:
        if address.version == subpool.family:
            spare = _is_spare(holdings, subpool, address)
            return address if spare else Shortage(subpool, 1, address)
    if nic.owner:
        kept = _kept(state, nic, subpool)
        if kept and kept not in nic.prefer:
            return kept
        for address in nic.prefer:
            if address.version == subpool.family and _has(subpool, address):
                if address == kept or _is_spare(holdings, subpool, address):
                    return address
                return Shortage(subpool, 1, address, nic.owner)
    return _any(holdings, subpool) or Shortage(subpool, 1)


def _kept(state: NodeAddressState, nic: ipam.NicRequest, subpool: Subpool) -> ipam.Address | None:
    """Return an address of the request's owner that cools down on this node; None without one.

    An owner need not wait for the end of the cool-down.
    """
    taken = {allocation.address for b in state.records.values() for allocation in b.live}
    for container in state.cooldown_ends:
        for allocation in state.records[container].allocations:
            own = allocation.cooling and allocation.owner == nic.owner
            is_here = allocation.pool == subpool.pool and _has(subpool, allocation.address)
            if own and is_here and allocation.address not in taken:
                key, bit = key_of(allocation.network, allocation.address)
                return allocation.address if state.holdings[key].confirmed & bit else None
    return None


def _is_spare(holdings: Holdings, subpool: Subpool, address: ipam.Address) -> bool:
    key, bit = key_of(subpool.network, address)
    return key in holdings and bool(holdings[key].spare & bit)


def _any(holdings: Holdings, subpool: Subpool) -> ipam.Address | None:
    """Return a spare address of the subpool, one without a pin if possible; None without any."""
    second: ipam.Address | None = None
    for key, holding in holdings.items():
        if holding.spare and (spare := holding.spare & mask(subpool, key)):
            if fresh := spare & ~holding.pinned:
                return key.address(next(offsets(fresh)))
            second = second or key.address(next(offsets(spare)))
    return second


def _allocation(
    nic: ipam.NicRequest, subpool: Subpool, address: ipam.Address
) -> ipam.AddressAllocation:
    r = range_of(subpool, address)
    place = (subpool.network, nic.interface, subpool.pool, address, r.subnet, r.gateway)
    node_slice = subpool.node_slice
    return ipam.AddressAllocation(*place, subpool.cooldown, nic.owner, node_slice=node_slice)


# Borrowing from other nodes.


def with_requests_of(
    queue: ipam.BorrowQueue, node: ipam.NodeName, shortages: Iterable[Shortage]
) -> ipam.BorrowQueue | None:
    """Return the queue with the node's requests for these shortages; None where nothing changes.

    The requests keep the node's old place in the queue. Shortages of other pools and of slices are
    left out, and requests beyond MOST_REQUESTS.
    """
    requests = tuple(
        ipam.BorrowRequest(
            node=node,
            family=shortage.subpool.family.title,
            rail=shortage.subpool.rail,
            count=shortage.count,
            address=str(shortage.address) if shortage.address else None,
        )
        for shortage in shortages
        if shortage.subpool.pool == queue.pool and shortage.subpool.is_shared
    )
    requests = requests[:MOST_REQUESTS]
    own = [at for at, request in enumerate(queue.requests) if request.node == node]
    at = own[0] if own else len(queue.requests)
    others = tuple(request for request in queue.requests if request.node != node)
    whole = (*others[:at], *requests, *others[at:])
    return replace(queue, requests=whole) if whole != queue.requests else None


def has_requests_of_others(queue: ipam.BorrowQueue | None, node: ipam.NodeName) -> bool:
    """Return whether another node requests addresses of the pool.

    This node then acquires no more than it needs now.
    """
    return queue is not None and any(request.node != node for request in queue.requests)


def lendable(
    state: NodeAddressState,
    queue: ipam.BorrowQueue,
    pool: tuple[Subpool, ...],
    waiting: bool,
) -> BlockAddresses:
    """Return the spare addresses to give back for the borrow requests of other nodes, by block.

    A node that is `waiting` itself serves only requests before its own.
    """
    lent: dict[ipam.BlockKey, int] = {}
    for request in queue.requests:
        if request.node == state.node:
            if waiting:
                break
            continue
        for subpool in subpools_for(pool, request.rail):
            if subpool.family.title == request.family and subpool.is_shared:
                address = ip_address(request.address) if request.address else None
                _lend(state, lent, subpool, request.count, address)
    return tuple((key, ipam.Bits(bits)) for key, bits in lent.items())


def turn(
    state: NodeAddressState, queue: ipam.BorrowQueue, pool: tuple[Subpool, ...], blocks: Blocks
) -> float:
    """Return how many turns this node waits before it lends.

    About one node lends in the first turn, and twice as many in each further one. Every node sees
    the requests, and the first to give back may be enough.
    """
    first = next((one.node for one in queue.requests if one.node != state.node), "")
    digest = blake2b(f"{queue.pool}/{first}/{state.node}".encode(), digest_size=8).digest()
    nodes = max(outlook(state, blocks, subpool)[1] for subpool in pool)
    return log2(1 + nodes * int.from_bytes(digest, "big") / 2**64)


def surplus(state: NodeAddressState, subpool: Subpool) -> BlockAddresses:
    """Return the spare addresses that are too many, to give back unasked, by block.

    Else a node would keep the addresses of many pods that ended.
    """
    lent: dict[ipam.BlockKey, int] = {}
    too_many = spare(state, subpool) - _AHEAD * subpool.block_size
    if too_many > 0:
        _lend(state, lent, subpool, too_many + subpool.block_size, None)
    return tuple((key, ipam.Bits(bits)) for key, bits in lent.items())


def _lend(
    state: NodeAddressState,
    lent: dict[ipam.BlockKey, int],
    subpool: Subpool,
    count: int,
    address: ipam.Address | None,
) -> None:
    """Add to `lent` up to `count` spare addresses of the subpool, or only `address`."""
    keys = list(state.holdings)
    only = -1
    if address is not None:
        key, only = key_of(subpool.network, address)
        keys = [key] if key in state.holdings else []
    for key in keys:
        free = state.holdings[key].spare & mask(subpool, key) & only & ~lent.get(key, 0)
        if free and count > 0:
            bits = lowest(free, count)
            lent[key] = lent.get(key, 0) | bits
            count -= bits.bit_count()
