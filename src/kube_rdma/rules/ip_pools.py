"""Pools beside each other and over time: overlaps, and what a change would take from under pods.

Admission asks before a pool is changed or deleted, `kube-rdma ip check` asks about what is there.
Nothing here protects an address: cells do that whatever pools say. It spares people surprises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations

from kube_rdma.model.errors import Refused
from kube_rdma.model.ip import Address, Bits, Block, Family, IPPool, NodeName
from kube_rdma.rules.ip_cells import Zone, mask, places, zones

_NAMED = 3  # addresses that a sentence names before it counts


def overlaps(pools: Iterable[IPPool]) -> tuple[str, ...]:
    """A warning for each two pools of a network that can give the same addresses.

    That is allowed, an address is still given once; but the pools are full earlier than they look.
    """
    compiled = [(pool, zones(pool)) for pool in sorted(pools, key=lambda each: each.name)]
    found = []
    for (one, zones_1), (other, zones_2) in combinations(compiled, 2):
        if one.network != other.network:
            continue
        common = sorted({span for a in zones_1 for b in zones_2 for span in _common(a, b)})
        if common:
            family, first, last = common[0]
            more = f" and {len(common) - 1} more ranges" if len(common) > 1 else ""
            found.append(
                f"IPPool {one.name} and IPPool {other.name} both give "
                f"{_address(family, first)}-{_address(family, last)}{more} of network "
                f"{one.network}: each address is given once, so both have less than they say"
            )
    return tuple(found)


def change(old: IPPool, new: IPPool | None, blocks: Iterable[Block]) -> None:
    """Raise Refused when `new` (None: the deletion) no longer gives what nodes hold of `old`.

    A node holds more than its pods use; it gives back what is spare when the pool is drained.
    """
    where = f"IPPool {old.name}"
    before = zones(old)
    kept = zones(new) if new and new.network == old.network else ()
    lost = list(_lost(before, kept, blocks))
    if not lost:
        return
    count = sum(len(addresses) for _, addresses in lost)
    named = ", ".join(str(each) for _, addresses in lost for each in addresses[:_NAMED])
    nodes = ", ".join(sorted({node for node, _ in lost})[:_NAMED])
    if new is None:
        problem = f"{count} addresses of it are held by nodes ({nodes})"
        remedy = "Delete the pods that use it first; `kube-rdma ip show` lists who holds what"
    else:
        problem = f"the change takes away {count} addresses that nodes hold ({named} on {nodes})"
        remedy = "Keep them in the ranges, or delete their pods first"
    raise Refused(problem, remedy=remedy, where=where)


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


def _common(one: Zone, other: Zone) -> Iterator[tuple[Family, int, int]]:
    """The spans that both have; both are sorted, so each is walked once."""
    if one.family != other.family:
        return
    a = b = 0
    while a < len(one.spans) and b < len(other.spans):
        first = max(one.spans[a][0], other.spans[b][0])
        last = min(one.spans[a][1], other.spans[b][1])
        if first <= last:
            yield one.family, first, last
        if one.spans[a][1] < other.spans[b][1]:
            a += 1
        else:
            b += 1


def _address(family: Family, number: int) -> Address:
    return IPv4Address(number) if family is Family.V4 else IPv6Address(number)
