"""The arithmetic of pools: what a pool can give, as sorted intervals over the grid of blocks.

A /10 or a /64 costs as much as a /24; only slices_from walks over a range, slice by slice. A
Subpool is a pool's addresses of one family and rail. Other rules ask for its `mask`, the set of a
block's addresses that the subpool has, and find blocks by their number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network
from itertools import accumulate

from kube_base.errors import Refused, refuse_all
from kube_base.frozen import Frozen, replace
from kube_rdma.model import ipam

Interval = tuple[int, int]  # first and last address as numbers, both in it
NONE = ipam.Bits(0)
_ALL = (1 << ipam.BLOCK_ADDRESSES) - 1
_ZERO_EVERY = 256  # no IPv4 address that ends in .0 is given, except from slices
_RESERVED = 3  # addresses of a subnet that no pod gets: network address, gateway, broadcast address


class Subpool(Frozen):
    """The addresses of a pool of one family for one rail.

    A rail of None is for interfaces without a rail, or whose rail has no subpool of its own.
    """

    pool: ipam.PoolName
    network: ipam.NetworkName
    family: ipam.Family
    rail: int | None
    spans: tuple[Interval, ...]  # sorted, disjoint and apart
    ranges: tuple[ipam.IPRange, ...]
    runs: tuple[Interval, ...]  # of the blocks that the spans touch: first and last block number
    before: tuple[int, ...]  # by run: the number of blocks in all earlier runs
    block_size: int
    cooldown: float
    # With it the spans are whole, for nodes hold whole slices; pods get addresses of a `part`.
    per_node: ipam.PerNode | None = None
    node_slice: ipam.Subnet | None = None  # of a part
    excluded: tuple[Interval, ...] = ()  # from the parts of a subpool with per_node

    @property
    def is_shared(self) -> bool:
        """Return whether nodes share the subpool's addresses one by one, and so lend them."""
        return self.per_node is None and self.node_slice is None

    @property
    def block_count(self) -> int:
        """Return the number of blocks that the subpool touches."""
        return self.before[-1] + self.runs[-1][1] - self.runs[-1][0] + 1

    @property
    def size(self) -> int:
        """Return the number of addresses of the subpool that nodes can hold."""
        return sum(
            last - first + 1 - (_zeros(self.family, first, last) if self.is_shared else 0)
            for first, last in self.spans
        )


def subpools(pool: ipam.IPPool) -> tuple[Subpool, ...]:
    """Return the subpools of a pool, one for each family and rail; raise Refused for faults."""
    faults = [fault for r in pool.ranges for fault in _faults(r)]
    if not pool.ranges:
        faults = [Refused("it has no ranges", remedy="Add a range", where=f"IPPool {pool.name}")]
    refuse_all(faults)
    excluded = [(int(span.first), int(span.last), span.first.version) for span in pool.excludes]
    compiled = []
    keys = sorted({(r.subnet.version, r.rail) for r in pool.ranges}, key=str)
    for version, rail in keys:
        ranges = tuple(r for r in pool.ranges if (r.subnet.version, r.rail) == (version, rail))
        if per_node := next((r.per_node for r in ranges if r.per_node), None):
            compiled.append(_sliced(pool, ranges, per_node, excluded))
            continue
        holes = [(first, last) for first, last, v in excluded if v == version]
        holes += [(int(r.gateway), int(r.gateway)) for r in ranges if r.gateway]
        holes += [hole for r in ranges for hole in _reserved(r.subnet)]
        whole = _merged((int(r.span.first), int(r.span.last)) for r in ranges)
        spans = _without(whole, _merged(holes))
        if sum(last - first + 1 - _zeros(version, first, last) for first, last in spans) == 0:
            raise Refused(
                "nothing is left to give: excludes, gateway and reserved addresses cover it",
                remedy="Widen the range or exclude less",
                where=ranges[0].source or f"IPPool {pool.name}",
            )
        compiled.append(_subpool(pool, ranges, spans))
    return tuple(compiled)


def subpools_for(pool: Iterable[Subpool], rail: int | None) -> tuple[Subpool, ...]:
    """Return the subpools for an interface of this rail; without any, subpools without a rail."""
    own = tuple(subpool for subpool in pool if subpool.rail == rail)
    return own or tuple(subpool for subpool in pool if subpool.rail is None)


def mask(subpool: Subpool, key: ipam.BlockKey) -> ipam.Bits:
    """Return the set of a block's addresses that belong to the subpool."""
    if (key.network, key.family) != (subpool.network, subpool.family):
        return NONE
    first, last = key.first, key.first + ipam.BLOCK_ADDRESSES - 1
    bits = 0
    for at in range(_reaching(subpool.spans, first), len(subpool.spans)):
        start, end = subpool.spans[at]
        if start > last:
            break
        bits |= run(max(start, first) - first, min(end, last) - first)
    if key.family is ipam.Family.V4 and first % _ZERO_EVERY == 0 and subpool.is_shared:
        bits &= ~1
    return ipam.Bits(bits)


def given(pool: Iterable[Subpool], key: ipam.BlockKey) -> ipam.Bits:
    """Return the set of a block's addresses that belong to any of the subpools."""
    bits = 0
    for subpool in pool:
        bits |= mask(subpool, key)
    return ipam.Bits(bits)


def key_at(subpool: Subpool, number: int) -> ipam.BlockKey:
    """Return the key of the subpool's block with this number, counted from 0 by address."""
    at = bisect_right(subpool.before, number) - 1
    number += subpool.runs[at][0] - subpool.before[at]
    return ipam.BlockKey(subpool.network, subpool.family, number * ipam.BLOCK_ADDRESSES)


def key_of(network: ipam.NetworkName, address: ipam.Address) -> tuple[ipam.BlockKey, ipam.Bits]:
    """Return the key of the block that has an address, and the bit of the address in it."""
    number = int(address)
    first = number - number % ipam.BLOCK_ADDRESSES
    key = ipam.BlockKey(network, ipam.Family(address.version), first)
    return key, ipam.Bits(1 << number % ipam.BLOCK_ADDRESSES)


def range_of(subpool: Subpool, address: ipam.Address) -> ipam.IPRange:
    """Return the range of the subpool that has the address, with its subnet and gateway.

    Raise LookupError for an address outside of all its ranges.
    """
    number = int(address)
    for r in subpool.ranges:
        if int(r.span.first) <= number <= int(r.span.last):
            return r
    raise LookupError(f"{address} is outside of pool {subpool.pool}")


def anchor(network: ipam.NetworkName, node_slice: ipam.Subnet) -> tuple[ipam.BlockKey, ipam.Bits]:
    """Return the anchor of a slice: its first block's key, and its addresses in that block.

    The node that holds these addresses owns the slice.
    """
    key, _ = key_of(network, node_slice.network_address)
    first = int(node_slice.network_address) - key.first
    return key, run(first, min(first + node_slice.num_addresses, ipam.BLOCK_ADDRESSES) - 1)


def start_block(subpool: Subpool, node: str) -> int:
    """Return the number of the block where a node begins to search, so that nodes rarely race."""
    digest = blake2b(f"{subpool.network}/{subpool.pool}/{node}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % subpool.block_count


def offsets(bits: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    left = bits
    while left:
        low = left & -left
        yield low.bit_length() - 1
        left ^= low


def lowest(bits: int, count: int) -> ipam.Bits:
    """Return the `count` lowest of the set bits, or all if there are fewer."""
    taken, left = 0, bits
    while left and count > 0:
        low = left & -left
        taken |= low
        left ^= low
        count -= 1
    return ipam.Bits(taken)


def run(first: int, last: int) -> ipam.Bits:
    """Return the set of the offsets from `first` to `last`, both included."""
    return ipam.Bits((_ALL >> (ipam.BLOCK_ADDRESSES - 1 - last)) & (_ALL << first))


def part(subpool: Subpool, node_slice: ipam.Subnet) -> Subpool | None:
    """Return the subpool of one slice; None where the slice has no address to give."""
    per_node = subpool.per_node
    assert per_node
    whole = range_of(subpool, node_slice.network_address)
    gateway = whole.gateway
    if not per_node.is_one_subnet:
        gateway = None if per_node.gateway is None else node_slice[per_node.gateway]
        for chosen in per_node.nodes:
            if chosen.subnet == node_slice and chosen.gateway:
                gateway = chosen.gateway
    holes = [*subpool.excluded, *_reserved(node_slice)]
    holes += _reserved(whole.subnet) if per_node.is_one_subnet else ()
    holes += [(int(gateway), int(gateway))] if gateway else ()
    own = (int(node_slice.network_address), int(node_slice.broadcast_address))
    spans = _without((own,), _merged(holes))
    if not spans:
        return None
    subnet = whole.subnet if per_node.is_one_subnet else node_slice
    ranges = (replace(whole, subnet=subnet, gateway=gateway, per_node=None),)
    runs, before = _touched(spans)
    sliced = replace(subpool, spans=spans, ranges=ranges, runs=runs, before=before)
    return replace(sliced, per_node=None, node_slice=node_slice)


def slice_of(subpool: Subpool, address: ipam.Address) -> ipam.Subnet:
    """Return the slice that has the address, in a subpool that is divided into slices."""
    assert subpool.per_node
    prefix, size = subpool.per_node.prefix, address.max_prefixlen
    first = int(address) >> (size - prefix) << (size - prefix)
    return IPv4Network((first, prefix)) if size == 32 else IPv6Network((first, prefix))


def _subpool(
    pool: ipam.IPPool, ranges: tuple[ipam.IPRange, ...], spans: tuple[Interval, ...]
) -> Subpool:
    family, rail = ipam.Family(ranges[0].subnet.version), ranges[0].rail
    whole = (pool.name, pool.network, family, rail, spans, ranges)
    return Subpool(*whole, *_touched(spans), pool.block_size, pool.cooldown)


def _touched(spans: tuple[Interval, ...]) -> tuple[tuple[Interval, ...], tuple[int, ...]]:
    """Return the runs of block numbers that spans touch, and how many blocks are before each."""
    size = ipam.BLOCK_ADDRESSES
    runs = _merged((first // size, last // size) for first, last in spans)
    counts = [last - first + 1 for first, last in runs]
    return runs, (0, *accumulate(counts[:-1]))


def _sliced(
    pool: ipam.IPPool,
    ranges: tuple[ipam.IPRange, ...],
    per_node: ipam.PerNode,
    excluded: Iterable[tuple[int, int, int]],
) -> Subpool:
    """Return the subpool of ranges that are divided into slices.

    Raise Refused where ranges are divided differently, or no slice has an address.
    """
    version = ranges[0].subnet.version
    for r in ranges:
        if r.per_node is None or replace(r.per_node, nodes=()) != replace(per_node, nodes=()):
            raise Refused(
                f"{r.subnet} and {ranges[0].subnet} have different slices for nodes",
                remedy="Write the same perNode for each range of one family and rail",
                where=r.source or f"IPPool {pool.name}",
            )
    spans = _merged((int(r.span.first), int(r.span.last)) for r in ranges)
    holes = _merged((first, last) for first, last, family in excluded if family == version)
    whole = replace(_subpool(pool, ranges, spans), per_node=per_node, excluded=holes)
    entries = tuple(chosen for r in ranges if r.per_node for chosen in r.per_node.nodes)
    whole = replace(whole, per_node=replace(per_node, nodes=entries))
    if not any(_has_addresses(whole, r.subnet, per_node.prefix, holes) for r in ranges):
        raise Refused(
            "nothing is left to give: excludes, gateway and reserved addresses cover each slice",
            remedy="Write a shorter perNode.prefix, or exclude less",
            where=ranges[0].source or f"IPPool {pool.name}",
        )
    return whole


def _has_addresses(
    whole: Subpool, subnet: ipam.Subnet, prefix: int, holes: tuple[Interval, ...]
) -> bool:
    """Return whether a slice of a range has an address to give.

    Of slices that no hole touches the first four are looked at: network address, gateway and
    broadcast address can fill three.
    """
    untouched = 0
    for node_slice in slices_from(subnet, prefix, holes, int(subnet.network_address)):
        if part(whole, node_slice):
            return True
        hole = _reaching(holes, int(node_slice.network_address))
        untouched += hole == len(holes) or holes[hole][0] > int(node_slice.broadcast_address)
        if untouched > _RESERVED:
            return False
    return False


def slices_from(
    subnet: ipam.Subnet, prefix: int, holes: tuple[Interval, ...], number: int
) -> Iterator[ipam.Subnet]:
    """Yield the slices of a subnet from the one with address `number` on.

    Slices that a hole covers as a whole are left out.
    """
    size = 1 << (subnet.max_prefixlen - prefix)
    last, at = int(subnet.broadcast_address), number - number % size
    while at <= last:
        hole = _reaching(holes, at)
        if hole < len(holes) and holes[hole][0] <= at and at + size - 1 <= holes[hole][1]:
            at = holes[hole][1] + 1
            at -= at % size
            continue
        yield type(subnet)((at, prefix))
        at += size


def _faults(r: ipam.IPRange) -> Iterator[Refused]:
    """Yield the faults of a range: an end or gateway outside of its subnet, ends exchanged."""
    ends = [end for end in (r.first, r.last, r.gateway) if end is not None]
    for end in ends:
        if end not in r.subnet:
            problem = f"{end} is outside of {r.subnet}"
            yield Refused(problem, remedy="Write an address inside the subnet", where=r.source)
    if r.first is not None and r.last is not None and int(r.first) > int(r.last):
        problem = f"the range ends at {r.last}, before its start {r.first}"
        yield Refused(problem, remedy="Exchange start and end", where=r.source)


def _reserved(subnet: ipam.Subnet) -> Iterator[Interval]:
    """Yield the addresses of a subnet that no host can have, as intervals.

    IPv4: network and broadcast. IPv6: the anycast address of the subnet's routers (RFC 4291,
    2.6.1). A /31 (RFC 3021), a /32, a /127 (RFC 6164) and a /128 have none.
    """
    if subnet.prefixlen >= subnet.max_prefixlen - 1:
        return
    yield int(subnet.network_address), int(subnet.network_address)
    if subnet.max_prefixlen == 32:
        yield int(subnet.broadcast_address), int(subnet.broadcast_address)


def _zeros(version: int, first: int, last: int) -> int:
    """Return how many IPv4 addresses from `first` to `last` end in .0; 0 for IPv6."""
    if version != ipam.Family.V4:
        return 0
    return last // _ZERO_EVERY - (first - 1) // _ZERO_EVERY


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the intervals in order; those that overlap or touch are merged."""
    out: list[Interval] = []
    for first, last in sorted(intervals):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return tuple(out)


def _without(intervals: Iterable[Interval], holes: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return the sorted intervals without the holes, which are sorted and disjoint."""
    out = []
    for first, last in intervals:
        start_ = first
        for at in range(_reaching(holes, first), len(holes)):
            low, high = holes[at]
            if low > last:
                break
            if low > start_:
                out.append((start_, low - 1))
            start_ = high + 1
        if start_ <= last:
            out.append((start_, last))
    return tuple(out)


def _reaching(intervals: tuple[Interval, ...], number: int) -> int:
    """Return the index of the first sorted, disjoint interval that ends at `number` or later."""
    return bisect_left(intervals, number, key=lambda interval: interval[1])
