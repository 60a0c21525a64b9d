"""The arithmetic of pools: every zone is compared with the plain enumeration of its addresses."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.ipam import CELL, Cell, Family, IPPool, IPRange, Span
from kube_rdma.rules.ipam.cells import (
    cell_at,
    cell_of,
    lowest,
    mask,
    places,
    range_of,
    start,
    zones,
    zones_for,
)

BASE = int(ip_address("10.0.0.0"))


def pool(*ranges, **more):
    return IPPool("p", ranges, **more)


def addresses(zone):
    return {
        cell_at(zone, n).address(place)
        for n in range(zone.cells)
        for place in places(mask(zone, cell_at(zone, n)))
    }


spans = st.tuples(st.integers(0, 1100), st.integers(0, 90)).map(
    lambda pair: (ip_address(BASE + pair[0]), ip_address(BASE + pair[0] + pair[1]))
)


@given(st.lists(spans, min_size=1, max_size=4), st.lists(spans, max_size=4))
def test_a_zone_is_what_the_ranges_say(ranges, excludes):
    """Ranges, overlapping or not, without excludes, gateway, network, broadcast and every .0."""
    subnet = ip_network("10.0.0.0/21")
    gateway = ip_address("10.0.0.9")
    wish = pool(
        *(IPRange(subnet, first, last, gateway) for first, last in ranges),
        excludes=tuple(Span(first, last) for first, last in excludes),
    )
    expected = {
        ip_address(n)
        for first, last in ranges
        for n in range(int(first), int(last) + 1)
        if n % 256 and ip_address(n) != gateway
    } - {ip_address(n) for low, high in excludes for n in range(int(low), int(high) + 1)}
    if not expected:
        with pytest.raises(Refused) as caught:
            zones(wish)
        assert "nothing is left to give" in caught.value.problem
        return
    (zone,) = zones(wish)
    assert addresses(zone) == expected
    assert zone.size == len(expected)
    assert all(range_of(zone, address).subnet == subnet for address in expected)


@pytest.mark.parametrize(
    ("subnet", "size"),
    [
        ("10.0.0.0/24", 254),
        ("10.0.0.16/30", 2),
        ("10.0.0.16/31", 2),
        ("10.0.0.17/32", 1),
        ("10.64.0.0/10", 4194304 - 16384 - 1),
        ("fd00::/126", 3),
        ("fd00::/127", 2),
        ("fd00::/64", 2**64 - 1),
        ("fd00::/32", 2**96 - 1),
    ],
)
def test_any_prefix_costs_the_same(subnet, size):
    """From one address to 2**96 of them: what is reserved is missing, nothing is enumerated."""
    (zone,) = zones(pool(IPRange(ip_network(subnet))))
    assert zone.size == size
    for number in (0, zone.cells // 2, zone.cells - 1, start(zone, "node-1")):
        cell = cell_at(zone, number)
        assert mask(zone, cell)
        assert cell.address(0) in ip_network(subnet) or zone.size < CELL


def test_families_and_rails_are_zones_of_their_own():
    """A NIC draws from its rail's zones, else from those for every rail; no other rail's."""
    wish = pool(
        IPRange(ip_network("10.0.0.0/24"), rail=0),
        IPRange(ip_network("10.0.1.0/24"), rail=1),
        IPRange(ip_network("fd00::/64"), rail=0),
    )
    found = zones(wish)
    assert [(z.family, z.rail) for z in zones_for(found, 0)] == [(4, 0), (6, 0)]
    assert [(z.family, z.rail) for z in zones_for(found, 1)] == [(4, 1)]
    assert zones_for(found, 2) == ()
    every = zones(pool(IPRange(ip_network("10.0.0.0/24"))))
    assert zones_for(every, 5) == every


def test_wrong_ranges_are_all_named():
    """Each one with its place and a remedy."""
    subnet, outside = ip_network("10.0.0.0/24"), ip_address("10.1.0.0")
    backwards = IPRange(subnet, ip_address("10.0.0.9"), ip_address("10.0.0.2"), source="ranges[1]")
    with pytest.raises(Refused) as caught:
        zones(pool(IPRange(subnet, gateway=outside, source="ranges[0]"), backwards))
    first, second = str(caught.value).splitlines()
    assert first.startswith("ranges[0]: 10.1.0.0 is outside of 10.0.0.0/24")
    assert second.startswith("ranges[1]: the range ends at 10.0.0.2, before its start")


def test_names_of_cells_are_dns_names_and_differ():
    """Networks and families never meet in one object."""
    cells = [Cell("a", Family.V4, BASE + 64), Cell("b", Family.V4, BASE + 64)]
    cells.append(cell_of("a", ip_address("fd00::40"))[0])
    assert [cell.name for cell in cells] == [
        "a.10-0-0-64",
        "b.10-0-0-64",
        "a.fd00-0-0-0-0-0-0-40",
    ]


@given(st.integers(0, 2**CELL - 1), st.integers(0, CELL))
def test_bits_are_sets(bits, count):
    """`lowest` is the first ones of `places`."""
    chosen = lowest(bits, count)
    assert list(places(chosen)) == list(places(bits))[:count]
