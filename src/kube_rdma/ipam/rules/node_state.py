"""The state of a node: holdings that it has confirmed, records of its journal, its right to grant.

A grant needs three things. The node has the right to grant: it renewed its lease less than T ago,
the lease's duration. The node's own last write of the block confirmed the address, and no container
has it. A request is one AllocationRecord for all its NICs, so one record of the journal. An address
becomes free only when the journal has that: `release` and `end_cooldown` return what to store,
`with_record` and `without_record` the state afterwards.
"""

from __future__ import annotations

import dataclasses  # an AllocationRecord is a dataclass, all else is frozen
from collections.abc import Iterable, Mapping
from math import inf

from kube_base.errors import Broken
from kube_base.frozen import Frozen, field, replace
from kube_rdma.ipam.rules.subpools import NONE, Subpool, anchor, key_of, mask
from kube_rdma.model import ipam


class LocalHolding(Frozen):
    """The node's knowledge of the addresses that it holds in one block."""

    confirmed: ipam.Bits = NONE  # by its last write that surely succeeded
    in_use: ipam.Bits = NONE  # of its records, those in cool-down too
    returning: ipam.Bits = (
        NONE  # being given back: the node does not know yet whether they are gone
    )
    pinned: ipam.Bits = NONE  # last addresses of owners
    uncertain: bool = False  # a write is under way or its outcome is unknown
    kept: ipam.Bits = NONE  # anchors of slices with addresses in use

    @property
    def spare(self) -> ipam.Bits:
        """Return the confirmed addresses of the block that are not in use or being given back."""
        return ipam.Bits(self.confirmed & ~self.in_use & ~self.returning)


Holdings = Mapping[ipam.BlockKey, LocalHolding]


class NodeAddressState(Frozen):
    """The agent's knowledge about addresses: its journal, holdings and right to grant."""

    node: ipam.NodeName
    holdings: Holdings = field(default_factory=dict)
    records: Mapping[ipam.ContainerId, ipam.AllocationRecord] = field(default_factory=dict)
    cooldown_ends: Mapping[ipam.ContainerId, float] = field(default_factory=dict)
    right_until: float = -inf
    term: int = 0  # raised when the right is revoked: what began in another term counts no more
    # Addresses in use that other nodes had in the restored etcd: not asked back at first.
    taken: Mapping[ipam.BlockKey, ipam.Bits] = field(default_factory=dict)

    def needed(self, key: ipam.BlockKey) -> ipam.Bits:
        """Return the addresses in use, and anchors of slices, that the node must hold in a block.

        Addresses in `taken` are left out.
        """
        holding = self.holdings.get(key)
        if holding is None:
            return NONE
        return ipam.Bits((holding.in_use | holding.kept) & ~self.taken.get(key, NONE))


def load(
    node: ipam.NodeName, records: Iterable[ipam.AllocationRecord], now: float
) -> NodeAddressState:
    """Return the state of a process that just read the journal, with all cool-downs restarted.

    The holdings have only what is in use, and are not confirmed. The process grants nothing before
    it has acquired the node's lease and written the blocks (agent.acquire_lease).
    """
    kept = {r.container: dataclasses.replace(r, began=now) for r in records}
    cooldown_ends = {c: now + _cooldown(r) for c, r in kept.items() if r.live != r.allocations}
    state = NodeAddressState(node, records=kept, cooldown_ends=cooldown_ends)
    for record in kept.values():
        state = replace(state, holdings=mark_in_use(state.holdings, record.allocations))
    return state


def suspend_right(state: NodeAddressState) -> NodeAddressState:
    """Return the state without the right to grant; each block must be confirmed by a new write."""
    for key in state.holdings:
        state = doubt(state, key)
    return replace(state, right_until=-inf, term=state.term + 1)


def doubt(state: NodeAddressState, key: ipam.BlockKey) -> NodeAddressState:
    """Return the state in which the node must confirm its holding of a block before it grants."""
    holding = replace(state.holdings[key], confirmed=NONE, returning=NONE, uncertain=True)
    return replace(state, holdings={**state.holdings, key: holding})


def confirmed_bits(state: NodeAddressState) -> Mapping[ipam.BlockKey, ipam.Bits]:
    """Return by block the addresses that the node surely holds while it has the right."""
    held = state.holdings.items()
    return {key: ipam.Bits(holding.confirmed & ~holding.returning) for key, holding in held}


def extend_right(state: NodeAddressState, sent: float, duration: float) -> NodeAddressState:
    """Return the state after a renewed lease; the right lasts `duration` seconds from `sent` on."""
    return replace(state, right_until=sent + duration)


def release(
    state: NodeAddressState,
    container: ipam.ContainerId,
    interface: ipam.InterfaceName | None = None,
) -> ipam.AllocationRecord | None:
    """Return the record to store so that a container's addresses cool down; None if none change.

    With `interface` only the addresses of this interface cool down.
    """
    record = state.records.get(container)
    if record is None:
        return None
    allocations = tuple(
        replace(one, cooling=True) if interface in (None, one.interface) else one
        for one in record.allocations
    )
    if allocations == record.allocations:
        return None
    return dataclasses.replace(record, allocations=allocations)


def cooled_down(state: NodeAddressState, now: float) -> tuple[ipam.ContainerId, ...]:
    """Return the containers of whose released addresses the cool-down has ended."""
    return tuple(container for container, end in state.cooldown_ends.items() if end <= now)


def end_cooldown(state: NodeAddressState, container: ipam.ContainerId) -> ipam.AllocationRecord:
    """Return the record to store at the end of a container's cool-down.

    A record without allocations is to be removed.
    """
    record = state.records[container]
    return dataclasses.replace(record, allocations=record.live)


def with_record(
    state: NodeAddressState, record: ipam.AllocationRecord, now: float
) -> NodeAddressState:
    """Return the state after the journal has stored the record; released addresses cool down."""
    old = state.records.get(record.container)
    records = {**state.records, record.container: record}
    cooldown_ends = dict(state.cooldown_ends)
    before = {allocation for allocation in old.allocations if allocation.cooling} if old else set()
    cooling = {allocation for allocation in record.allocations if allocation.cooling}
    if cooling - before:
        cooldown_ends[record.container] = now + _cooldown(record)
    elif not cooling:
        cooldown_ends.pop(record.container, None)
    state = replace(state, records=records, cooldown_ends=cooldown_ends)
    kept = {(allocation.network, allocation.address) for allocation in record.allocations}
    dropped = [a for a in old.allocations if (a.network, a.address) not in kept] if old else []
    return _free(state, dropped) if dropped else state


def without_record(state: NodeAddressState, container: ipam.ContainerId) -> NodeAddressState:
    """Return the state after the journal has removed the container's record."""
    records, cooldown_ends = dict(state.records), dict(state.cooldown_ends)
    old = records.pop(container)
    cooldown_ends.pop(container, None)
    return _free(replace(state, records=records, cooldown_ends=cooldown_ends), old.allocations)


def abandoned(
    state: NodeAddressState, living: frozenset[ipam.ContainerId], since: float
) -> tuple[ipam.ContainerId, ...]:
    """Return containers with unreleased addresses, not in `living`, recorded before `since`.

    `since` is the time at which the listing of `living` began.
    """
    others = ((key, one) for key, one in state.records.items() if key not in living)
    return tuple(key for key, one in others if one.live and one.began < since)


def is_lost(state: NodeAddressState, allocation: ipam.AddressAllocation) -> bool:
    """Return whether the node has surely lost an address that a container has."""
    key, bit = key_of(allocation.network, allocation.address)
    holding = state.holdings[key]
    return not holding.uncertain and not holding.confirmed & bit


def lost(
    state: NodeAddressState,
) -> tuple[tuple[ipam.AllocationRecord, ipam.AddressAllocation], ...]:
    """Return the addresses of living containers that the node has lost, with their records."""
    live = ((record, one) for record in state.records.values() for one in record.live)
    return tuple(pair for pair in live if is_lost(state, pair[1]))


def spare(state: NodeAddressState, subpool: Subpool) -> int:
    """Return how many addresses of the subpool are spare on the node: `LocalHolding.spare`."""
    free = (one.spare & mask(subpool, key) for key, one in state.holdings.items())
    return sum(bits.bit_count() for bits in free)


def _cooldown(record: ipam.AllocationRecord) -> float:
    """Return the longest cool-down of a record's released addresses, in seconds."""
    return max(one.cooldown for one in record.allocations if one.cooling)


def mark_in_use(holdings: Holdings, allocations: Iterable[ipam.AddressAllocation]) -> Holdings:
    """Return the holdings with the addresses of `allocations`, and their slices, marked in use."""
    changed = dict(holdings)
    for allocation in allocations:
        key, bit = key_of(allocation.network, allocation.address)
        holding = changed.get(key, LocalHolding(uncertain=True))
        changed[key] = replace(holding, in_use=ipam.Bits(holding.in_use | bit))
        if allocation.node_slice:
            key, bits = anchor(allocation.network, allocation.node_slice)
            holding = changed.get(key, LocalHolding(uncertain=True))
            changed[key] = replace(holding, kept=ipam.Bits(holding.kept | bits))
    return changed


def _free(state: NodeAddressState, dropped: Iterable[ipam.AddressAllocation]) -> NodeAddressState:
    """Return the state after allocations were dropped: their addresses are not in use any more.

    An owner's address in another record stays in use: its owner got it back during the cool-down.
    """
    holdings = dict(state.holdings)
    for allocation in dropped:
        place = (allocation.network, allocation.address)
        if allocation.owner and any(
            (other.network, other.address) == place
            for record in state.records.values()
            for other in record.allocations
        ):
            continue
        key, bit = key_of(*place)
        holdings[key] = replace(holdings[key], in_use=ipam.Bits(holdings[key].in_use & ~bit))
        _drop_if_empty(holdings, key)
    left = {(a.network, a.node_slice) for r in state.records.values() for a in r.allocations}
    for network, node_slice in {(a.network, a.node_slice) for a in dropped} - left:
        if node_slice:
            key, bits = anchor(network, node_slice)
            holdings[key] = replace(holdings[key], kept=ipam.Bits(holdings[key].kept & ~bits))
            _drop_if_empty(holdings, key)
    return replace(state, holdings=holdings)


def _drop_if_empty(holdings: dict[ipam.BlockKey, LocalHolding], key: ipam.BlockKey) -> None:
    """Remove the node's holding in a block if nothing but pins is in it."""
    if holdings[key] == LocalHolding(pinned=holdings[key].pinned):
        del holdings[key]


# The node lease: the right to grant for a node, its end and its revocation.


def renewal(lease: ipam.NodeLease) -> ipam.NodeLease:
    """Return the lease to write so that a node keeps its right."""
    return replace(lease, heartbeat=lease.heartbeat + 1)


def is_ours(lease: ipam.NodeLease | None, journal: ipam.JournalId) -> bool:
    """Return whether a lease is still that of this journal, not taken over and not revoked."""
    return lease is not None and lease.journal == journal and not lease.fenced


def is_lease_rollback(
    last: ipam.NodeLease, current: ipam.NodeLease | None, *, has_right: bool
) -> bool:
    """Return whether the node's lease shows that etcd or this machine was restored.

    `last` is the lease as this process last wrote or read it. The answer of one later write may
    have been lost. The controller revokes no right before its end, and then raises the heartbeat.
    """
    if current and is_ours(current, last.journal):
        return current.heartbeat not in (last.heartbeat, last.heartbeat + 1)
    return has_right or (current is not None and current.heartbeat < last.heartbeat)


def lease_acquisition(
    identity: ipam.NodeLease,
    lease: ipam.NodeLease | None,
    unchanged: float,
    timing: ipam.Timing,
    cooldown: float,
) -> ipam.NodeLease | float:
    """Return the lease that a node writes to get its right, or the seconds to wait before.

    `identity` says which node and journal; `lease` is the stored one, unchanged for `unchanged`
    seconds; `cooldown` is the longest of any pool. Another journal's right must have ended, and so
    must the cool-down of its pods' addresses. Raise Broken where another journal had the lease
    since the node was started: its pods may live.
    """
    if lease is None:
        return replace(identity, heartbeat=1)
    taken = replace(identity, heartbeat=lease.heartbeat + 1, version=lease.version)
    if lease.journal == identity.journal:
        return taken
    if lease.boot == identity.boot:
        raise Broken(
            f"the IPAM journal of node {identity.node} is new, but the node has not been restarted "
            "since the old one was in use: running pods may have addresses that it lacks; "
            "drain and restart the node"
        )
    ended = 0.0 if lease.fenced else max(cooldown, lease.duration + timing.margin) - unchanged
    return ended if ended > 0 else taken


def fence(node: ipam.NodeName, lease: ipam.NodeLease | None) -> ipam.NodeLease:
    """Return the lease by which the controller revokes a node's right, even without a `lease`."""
    if lease is None:
        return ipam.NodeLease(node, ipam.JournalId(""), ipam.BootId(""), heartbeat=1, fenced=True)
    return replace(lease, heartbeat=lease.heartbeat + 1, fenced=True)
