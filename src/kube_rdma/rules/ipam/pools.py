"""Pools beside each other and over time: overlaps, and what a change would take from under pods.

Admission asks when a pool is changed or deleted, `kube-rdma ip check` asks about what is there.
Nothing here protects an address: cells do that whatever pools say. It spares people surprises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations

from kube_base.errors import Refused
from kube_rdma.model.ipam import (
    Address,
    Ask,
    Bits,
    Block,
    Family,
    IPPool,
    NodeName,
    PoolName,
)
from kube_rdma.rules.ipam.cells import Zone, mask, places, zones
from kube_rdma.rules.phrases import listed


def overlaps(pools: Iterable[IPPool]) -> tuple[str, ...]:
    """A warning for each two pools of a network that can give the same addresses.

    That is allowed, an address is still given once; but the pools are full earlier than they look.
    """
    compiled = [(pool, zones(pool)) for pool in sorted(pools, key=lambda each: each.name)]
    warnings = []
    for (pool, own_zones), (other, other_zones) in combinations(compiled, 2):
        if pool.network != other.network:
            continue
        common = sorted({span for a in own_zones for b in other_zones for span in _common(a, b)})
        if common:
            family, first, last = common[0]
            more = f" and {len(common) - 1} more ranges" if len(common) > 1 else ""
            warnings.append(
                f"IPPool {pool.name} and IPPool {other.name} both give "
                f"{_address(family, first)}-{_address(family, last)}{more} of network "
                f"{pool.network}: each address is given once, so both have less than they say"
            )
    return tuple(warnings)


def lost(old: IPPool, new: IPPool | None, blocks: Iterable[Block]) -> str:
    """A warning when `new` (None: the deletion) no longer gives what nodes hold; empty without.

    No address comes to harm, pods keep what they have. It is not a refusal since a node holds more
    than its pods use, and what pods use the node alone knows.
    """
    kept = zones(new) if new and new.network == old.network else ()
    gone = list(_lost(zones(old), kept, blocks))
    if not gone:
        return ""
    named = listed([str(address) for _, addresses in gone for address in addresses])
    nodes = listed(sorted({node for node, _ in gone}))
    count = sum(len(addresses) for _, addresses in gone)
    what = "deleting it" if new is None else "the change"
    return (
        f"IPPool {old.name}: {what} takes {counted(count)} that nodes hold ({named}, on {nodes}): "
        "pods that have them keep them until they end, and no pod gets them after that"
    )


def refuse_namespace(request: Ask, pools: Mapping[PoolName, IPPool]) -> None:
    """Raise Refused for the first NIC whose pool is not for the pod's namespace.

    A pool that is not in `pools` is left to who grants: it is refused there for another reason.
    """
    for nic in request.nics:
        pool = pools.get(nic.pool)
        if pool and pool.namespaces and request.namespace not in pool.namespaces:
            asker = f"namespace {request.namespace}" if request.namespace else "no namespace"
            raise Refused(
                f"IPPool {pool.name} is for pods of {listed(pool.namespaces)}, "
                f"and this pod is of {asker}",
                remedy="Name a pool of the pod's own namespace, or have the namespace added to "
                "spec.namespaces of the pool",
                where=f"interface {nic.interface}",
            )


def counted(addresses: int) -> str:
    """How many addresses, as a sentence says it."""
    return "1 address" if addresses == 1 else f"{addresses} addresses"


def _lost(
    before: Sequence[Zone], kept: Sequence[Zone], blocks: Iterable[Block]
) -> Iterator[tuple[NodeName, list[Address]]]:
    for block in blocks:
        gone = 0
        for zone in before:
            gone |= mask(zone, block.cell)
        for zone in kept:
            gone &= ~mask(zone, block.cell)
        for holding in block.holdings:
            if bits := Bits(holding.bits & gone):
                yield holding.node, [block.cell.address(place) for place in places(bits)]


def _common(zone: Zone, other: Zone) -> Iterator[tuple[Family, int, int]]:
    """The spans that both have; both are sorted, so each is walked once."""
    if zone.family != other.family:
        return
    a = b = 0
    while a < len(zone.spans) and b < len(other.spans):
        first = max(zone.spans[a][0], other.spans[b][0])
        last = min(zone.spans[a][1], other.spans[b][1])
        if first <= last:
            yield zone.family, first, last
        if zone.spans[a][1] < other.spans[b][1]:
            a += 1
        else:
            b += 1


def _address(family: Family, number: int) -> Address:
    return IPv4Address(number) if family is Family.V4 else IPv6Address(number)
