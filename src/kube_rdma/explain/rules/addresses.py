"""Chooses addresses for a plan: those that the pod has, else the first that a pool could give.

explain/rules/planning calls it. The rules of IPAM refuse a request that is wrong. A free address is
given when the pod starts, so a free address here is a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import islice

from kube_rdma.attach.rules.addresses import of_allocations
from kube_rdma.ipam.rules.grant import nics_with_subpools
from kube_rdma.ipam.rules.pools import refuse_namespace
from kube_rdma.ipam.rules.subpools import Subpool, part, range_of, slice_of, slices_from, subpools
from kube_rdma.lib.phrases import listed
from kube_rdma.model import ipam
from kube_rdma.model.attach.attachment import AssignedAddresses, AttachedInterface, PodNic
from kube_rdma.model.explain import PodEvidence, StandIn
from kube_rdma.model.late_binding import ContainerId

Words = tuple[tuple[ipam.InterfaceName, StandIn], ...]

_MOST = 64  # addresses that are looked through for stand-ins; a pod has fewer interfaces
_WORDS: Mapping[int, str] = {4: "ADDRESS", 6: "ADDRESS6"}


def addresses(
    evidence: PodEvidence, placed: Sequence[PodNic]
) -> tuple[tuple[AssignedAddresses, ...], Words]:
    """Return the addresses that each interface has, or would get from its pool, and stand-ins.

    A stand-in is the word to show in place of an address that is not decided yet. Raise Refused as
    IPAM does.
    """
    held = tuple(_held_ones(evidence, placed))
    names = {one.interface for one in held}
    interfaces = [one for one in placed if one.entry.ask.interface not in names]
    request = _request(evidence, interfaces)
    refuse_namespace(request, evidence.ip_pools)
    catalog = {
        name: subpools(pool)
        for name in dict.fromkeys(nic.pool for nic in request.nics)
        if (pool := evidence.ip_pools.get(name))
    }
    allocations: dict[ipam.InterfaceName, list[ipam.AddressAllocation]] = {
        nic.interface: [] for nic in request.nics
    }
    words, used = [], set[ipam.Address]()
    for nic, whole in nics_with_subpools(request, catalog):
        subpool = _node_part(whole)
        asked = next((one for one in nic.addresses if one.version == subpool.family), None)
        address = asked or _first_free(subpool, used)
        used.add(address)
        allocations[nic.interface].append(_allocation(nic.interface, subpool, address))
        if asked is None:
            placed_nic = next(one for one in interfaces if one.entry.ask.interface == nic.interface)
            words.append((nic.interface, _word(address, subpool, placed_nic, evidence)))
    fresh = (
        of_allocations(nic.interface, allocations[nic.interface], evidence.ip_pools[nic.pool])
        for nic in request.nics
    )
    return (*held, *fresh), tuple(words)


def _request(evidence: PodEvidence, interfaces: Sequence[PodNic]) -> ipam.AddressRequest:
    """Return the request to IPAM for these interfaces, without pools that could not be read."""
    nics = []
    for nic in interfaces:
        pools = nic.entry.network.pools
        name = next((one for one in pools if one in evidence.ip_pools), None)
        if name is None and pools and evidence.pools_seen:
            name = pools[0]  # refused
        if name is not None:
            asked = tuple(one.address for one in nic.entry.ask.addresses)
            pool = evidence.ip_pools.get(name)
            ranges = pool.ranges if pool else ()
            own = [one for one in ranges if any(address in one.subnet for address in asked)]
            # A rail that the pool has addresses for: the card's own is known on its node alone.
            rails = [one.rail for one in own or ranges]
            rail = None if None in rails or not rails else rails[0]
            nics.append(ipam.NicRequest(nic.entry.ask.interface, name, rail, asked))
    return ipam.AddressRequest(
        ContainerId("none"), ipam.PodUid(""), tuple(nics), evidence.template.namespace
    )


def _node_part(subpool: Subpool) -> Subpool:
    """Return a slice of a subpool, as a node has one; the whole subpool if it has no slices."""
    if subpool.per_node is None:
        return subpool
    subnet, prefix = subpool.ranges[0].subnet, subpool.per_node.prefix
    slices = slices_from(subnet, prefix, subpool.excluded, int(subnet.network_address))
    return next((own for one in slices if (own := part(subpool, one))), subpool)


def _first_free(subpool: Subpool, used: set[ipam.Address]) -> ipam.Address:
    make = IPv4Address if subpool.family is ipam.Family.V4 else IPv6Address
    numbers = (number for first, last in subpool.spans for number in range(first, last + 1))
    every = [make(number) for number in islice(numbers, _MOST)]
    return next((one for one in every if one not in used), every[0])


def _allocation(
    name: ipam.InterfaceName, subpool: Subpool, address: ipam.Address
) -> ipam.AddressAllocation:
    origin = range_of(subpool, address)
    return ipam.AddressAllocation(
        subpool.network, name, subpool.pool, address, origin.subnet, origin.gateway
    )


def _word(address: ipam.Address, subpool: Subpool, nic: PodNic, evidence: PodEvidence) -> StandIn:
    word, names = _WORDS[address.version], nic.entry.network.pools
    ranges = evidence.ip_pools[subpool.pool].ranges
    rails = {one.rail for one in ranges if one.subnet.version == address.version}
    which = "IPPool " + listed(names) if len(names) == 1 else f"IPPools {listed(names)}"
    by_rail = ", by the rail of its card" if len(names) > 1 or len(rails) > 1 else ""
    return StandIn(
        str(address), word, f"{word} is one of {which}{by_rail}, given when the pod starts"
    )


def _held_ones(evidence: PodEvidence, placed: Sequence[PodNic]) -> Iterator[AssignedAddresses]:
    """Yield the addresses that the pod's status annotation has for interfaces with IPAM."""
    attached = {one.interface: one for one in evidence.attached}
    for nic in placed:
        name = nic.entry.ask.interface
        pools = [evidence.ip_pools[n] for n in nic.entry.network.pools if n in evidence.ip_pools]
        if name in attached and (pools or nic.ipam):
            yield _held(name, attached[name], pools)


def _held(
    name: ipam.InterfaceName, attached: AttachedInterface, pools: Sequence[ipam.IPPool]
) -> AssignedAddresses:
    """Return an interface's addresses, with subnet, gateway and routes of their pool."""
    own = [one.address for one in attached.addresses]
    for pool in pools:
        allocations = [
            _allocation(name, _slice_with(subpool, address), address)
            for address in own
            for subpool in subpools(pool)
            if subpool.family == address.version
            if any(first <= int(address) <= last for first, last in subpool.spans)
        ]
        if allocations:
            whole = of_allocations(name, allocations, pool)
            of_pool = {one.address for one in allocations}
            others = (one for one in attached.addresses if one.address not in of_pool)
            return AssignedAddresses(name, (*whole.addresses, *others), whole.routes, whole.probe)
    return AssignedAddresses(name, attached.addresses)


def _slice_with(subpool: Subpool, address: ipam.Address) -> Subpool:
    """Return the slice of a subpool that has the address; without slices the whole subpool."""
    own = part(subpool, slice_of(subpool, address)) if subpool.per_node else None
    return own or subpool
