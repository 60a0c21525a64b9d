"""The arithmetic of pools: each subpool is compared with a plain list of its addresses."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.ipam.rules import subpools
from kube_rdma.model.ipam import BLOCK_ADDRESSES, BlockKey, Family, IPPool, IPRange, Span

BASE = int(ip_address("10.0.0.0"))


def pool(*ranges, **more):
    return IPPool("p", ranges, **more)


def addresses(subpool):
    return {
        subpools.key_at(subpool, n).address(offset)
        for n in range(subpool.block_count)
        for offset in subpools.offsets(subpools.mask(subpool, subpools.key_at(subpool, n)))
    }


spans = st.tuples(st.integers(0, 1100), st.integers(0, 90)).map(
    lambda pair: (ip_address(BASE + pair[0]), ip_address(BASE + pair[0] + pair[1]))
)


@given(st.lists(spans, min_size=1, max_size=4), st.lists(spans, max_size=4))
def test_a_subpool_is_what_the_ranges_say(ranges, excludes):
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
            subpools.subpools(wish)
        assert "nothing is left to give" in caught.value.problem
        return
    (subpool,) = subpools.subpools(wish)
    assert addresses(subpool) == expected
    assert subpool.size == len(expected)
    assert all(subpools.range_of(subpool, address).subnet == subnet for address in expected)


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
    (subpool,) = subpools.subpools(pool(IPRange(ip_network(subnet))))
    assert subpool.size == size
    for number in (
        0,
        subpool.block_count // 2,
        subpool.block_count - 1,
        subpools.start_block(subpool, "node-1"),
    ):
        key = subpools.key_at(subpool, number)
        assert subpools.mask(subpool, key)
        assert key.address(0) in ip_network(subnet) or subpool.size < BLOCK_ADDRESSES


def test_families_and_rails_are_subpools_of_their_own():
    """A NIC gets addresses of its rail's subpools, else of those for every rail."""
    wish = pool(
        IPRange(ip_network("10.0.0.0/24"), rail=0),
        IPRange(ip_network("10.0.1.0/24"), rail=1),
        IPRange(ip_network("fd00::/64"), rail=0),
    )
    found = subpools.subpools(wish)
    assert [(z.family, z.rail) for z in subpools.subpools_for(found, 0)] == [(4, 0), (6, 0)]
    assert [(z.family, z.rail) for z in subpools.subpools_for(found, 1)] == [(4, 1)]
    assert subpools.subpools_for(found, 2) == ()
    every = subpools.subpools(pool(IPRange(ip_network("10.0.0.0/24"))))
    assert subpools.subpools_for(every, 5) == every


def test_wrong_ranges_are_all_named():
    subnet, outside = ip_network("10.0.0.0/24"), ip_address("10.1.0.0")
    backwards = IPRange(subnet, ip_address("10.0.0.9"), ip_address("10.0.0.2"), source="ranges[1]")
    with pytest.raises(Refused) as caught:
        subpools.subpools(pool(IPRange(subnet, gateway=outside, source="ranges[0]"), backwards))
    first, second = str(caught.value).splitlines()
    assert first.startswith("ranges[0]: 10.1.0.0 is outside of 10.0.0.0/24")
    assert second.startswith("ranges[1]: the range ends at 10.0.0.2, before its start")


def test_names_of_blocks_are_dns_names_and_differ():
    keys = [BlockKey("a", Family.V4, BASE + 64), BlockKey("b", Family.V4, BASE + 64)]
    keys.append(subpools.key_of("a", ip_address("fd00::40"))[0])
    assert [key.name for key in keys] == ["a.10-0-0-64", "b.10-0-0-64", "a.fd00-0-0-0-0-0-0-40"]


@given(st.integers(0, 2**BLOCK_ADDRESSES - 1), st.integers(0, BLOCK_ADDRESSES))
def test_bits_are_sets(bits, count):
    chosen = subpools.lowest(bits, count)
    assert list(subpools.offsets(chosen)) == list(subpools.offsets(bits))[:count]
