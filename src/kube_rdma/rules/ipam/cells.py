"""The arithmetic of pools: what a pool can give, as sorted intervals that meet the grid of cells.

Nothing here walks over a range: a /10 or a /64 costs as much as a /24. A Zone is one pool's
addresses of one family and rail; every other rule asks it for `mask`, the set of a cell's addresses
that the zone gives, and finds cells by their number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import accumulate

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.model.ipam import (
    CELL,
    Address,
    Bits,
    Cell,
    Family,
    IPPool,
    IPRange,
    NetworkName,
    PoolName,
    Subnet,
)

Interval = tuple[int, int]  # first and last address as numbers, both in it
NONE = Bits(0)
_ALL = (1 << CELL) - 1
_ZERO_EVERY = 256  # IPv4 addresses that end in .0 are never given, as whereabouts does


class Zone(Frozen):
    """What a pool gives of one family for one rail (None: for NICs that name none).

    `spans` are sorted, disjoint and apart. `runs` are the cells they touch, as first and last cell
    number; `before` counts the cells of all earlier runs.
    """

    pool: PoolName
    network: NetworkName
    family: Family
    rail: int | None
    spans: tuple[Interval, ...]
    ranges: tuple[IPRange, ...]
    runs: tuple[Interval, ...]
    before: tuple[int, ...]
    block_size: int
    rest: float

    @property
    def cells(self) -> int:
        """How many cells it touches."""
        return self.before[-1] + self.runs[-1][1] - self.runs[-1][0] + 1

    @property
    def size(self) -> int:
        """How many addresses it can give."""
        return sum(
            last - first + 1 - _zeros(self.family, first, last) for first, last in self.spans
        )


def zones(pool: IPPool) -> tuple[Zone, ...]:
    """The pool, compiled: one zone for each family and rail; Refused names every wrong range."""
    faults = [fault for r in pool.ranges for fault in _faults(r)]
    if not pool.ranges:
        faults = [Refused("it has no ranges", remedy="Add a range", where=f"IPPool {pool.name}")]
    if faults:
        raise Refused.all(faults)
    excluded = [(int(span.first), int(span.last), span.first.version) for span in pool.excludes]
    compiled = []
    keys = sorted({(r.subnet.version, r.rail) for r in pool.ranges}, key=str)
    for version, rail in keys:
        ranges = tuple(r for r in pool.ranges if (r.subnet.version, r.rail) == (version, rail))
        holes = [(first, last) for first, last, v in excluded if v == version]
        holes += [(int(r.gateway), int(r.gateway)) for r in ranges if r.gateway]
        holes += [hole for r in ranges for hole in _reserved(r.subnet)]
        spans = _without(_merged(_bounds(r) for r in ranges), _merged(holes))
        if sum(last - first + 1 - _zeros(version, first, last) for first, last in spans) == 0:
            raise Refused(
                "nothing is left to give: excludes, gateway and reserved addresses cover it",
                remedy="Widen the range or exclude less",
                where=ranges[0].source or f"IPPool {pool.name}",
            )
        compiled.append(_zone(pool, ranges, spans))
    return tuple(compiled)


def zones_for(pool: Iterable[Zone], rail: int | None) -> tuple[Zone, ...]:
    """Those that a NIC of this rail draws from: its own, else those for every rail."""
    own = tuple(zone for zone in pool if zone.rail == rail)
    return own or tuple(zone for zone in pool if zone.rail is None)


def mask(zone: Zone, cell: Cell) -> Bits:
    """The addresses of `cell` that the zone gives."""
    if (cell.network, cell.family) != (zone.network, zone.family):
        return NONE
    first, last = cell.first, cell.first + CELL - 1
    bits = 0
    for at in range(_reaching(zone.spans, first), len(zone.spans)):
        start, end = zone.spans[at]
        if start > last:
            break
        bits |= run(max(start, first) - first, min(end, last) - first)
    if cell.family is Family.V4 and first % _ZERO_EVERY == 0:
        bits &= ~1
    return Bits(bits)


def cell_at(zone: Zone, number: int) -> Cell:
    """The zone's cell of this number, 0 to `zone.cells` - 1, in order of address."""
    at = bisect_right(zone.before, number) - 1
    return Cell(zone.network, zone.family, (zone.runs[at][0] + number - zone.before[at]) * CELL)


def cell_of(network: NetworkName, address: Address) -> tuple[Cell, Bits]:
    """The cell of an address, and the address as a set of one."""
    number = int(address)
    cell = Cell(network, Family(address.version), number - number % CELL)
    return cell, Bits(1 << number % CELL)


def range_of(zone: Zone, address: Address) -> IPRange:
    """The range that an address of the zone comes from; its subnet and gateway go with it."""
    number = int(address)
    for r in zone.ranges:
        first, last = _bounds(r)
        if first <= number <= last:
            return r
    raise LookupError(f"{address} is outside of pool {zone.pool}")


def start(zone: Zone, node: str) -> int:
    """The cell where a node begins to look: nodes spread, so that they seldom race."""
    digest = blake2b(f"{zone.network}/{zone.pool}/{node}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % zone.cells


def places(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, lowest first."""
    rest = bits
    while rest:
        low = rest & -rest
        yield low.bit_length() - 1
        rest ^= low


def lowest(bits: int, count: int) -> Bits:
    """The `count` lowest of them, or all where there are fewer."""
    taken, rest = 0, bits
    while rest and count > 0:
        low = rest & -rest
        taken |= low
        rest ^= low
        count -= 1
    return Bits(taken)


def run(first: int, last: int) -> Bits:
    """The places from `first` to `last`, both in it."""
    return Bits((_ALL >> (CELL - 1 - last)) & (_ALL << first))


def _zone(pool: IPPool, ranges: tuple[IPRange, ...], spans: tuple[Interval, ...]) -> Zone:
    runs = _merged((first // CELL, last // CELL) for first, last in spans)
    counts = [last - first + 1 for first, last in runs]
    return Zone(
        pool.name,
        pool.network,
        Family(ranges[0].subnet.version),
        ranges[0].rail,
        spans,
        ranges,
        runs,
        (0, *accumulate(counts[:-1])),
        pool.block_size,
        pool.rest,
    )


def _faults(r: IPRange) -> Iterator[Refused]:
    """What is wrong with one range."""
    ends = [end for end in (r.first, r.last, r.gateway) if end is not None]
    for end in ends:
        if end not in r.subnet:
            yield Refused(
                f"{end} is outside of {r.subnet}",
                remedy="Write an address inside the subnet",
                where=r.source,
            )
    if r.first is not None and r.last is not None and int(r.first) > int(r.last):
        yield Refused(
            f"the range ends at {r.last}, before its start {r.first}",
            remedy="Exchange start and end",
            where=r.source,
        )


def _bounds(r: IPRange) -> Interval:
    return (
        int(r.first if r.first is not None else r.subnet.network_address),
        int(r.last if r.last is not None else r.subnet.broadcast_address),
    )


def _reserved(subnet: Subnet) -> Iterator[Interval]:
    """IPv4: network and broadcast, which a /31 and a /32 lack (RFC 3021). IPv6: the anycast
    address of the subnet's routers (RFC 4291, 2.6.1), which a /127 lacks (RFC 6164)."""
    if subnet.prefixlen >= subnet.max_prefixlen - 1:
        return
    yield int(subnet.network_address), int(subnet.network_address)
    if subnet.max_prefixlen == 32:
        yield int(subnet.broadcast_address), int(subnet.broadcast_address)


def _zeros(version: int, first: int, last: int) -> int:
    """How many addresses of the span end in .0."""
    if version != Family.V4:
        return 0
    return last // _ZERO_EVERY - (first - 1) // _ZERO_EVERY


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sorted; what overlaps or touches is one."""
    out: list[Interval] = []
    for first, last in sorted(intervals):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return tuple(out)


def _without(intervals: Iterable[Interval], holes: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What is left of sorted intervals; the holes are sorted and disjoint."""
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
    """The index of the first of the sorted, disjoint intervals that ends at `number` or later."""
    return bisect_left(intervals, number, key=lambda interval: interval[1])
