"""Routing netlink: interfaces and default routes, out of bytes and out of the running kernel."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from socket import AF_INET, AF_INET6

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes

MAIN, LOCAL = 254, 255
UNICAST, UNREACHABLE = 1, 7


def u32(number):
    return struct.pack("=I", number)


def attributes(**values):
    numbers = {"oif": 4, "multipath": 9, "table": 15, "nh_id": 30}
    numbers |= {"name": 3, "carrier": 33, "parent": 56, "bus": 57}
    return encode_attributes(Attribute(numbers[name], value) for name, value in values.items())


def route(family=AF_INET, bits=0, table=MAIN, kind=UNICAST, flags=0, **values):
    head = struct.pack("=8BI", family, bits, 0, 0, table, 3, 0, kind, flags)
    return head + attributes(**values)


def hop(index, more=b""):
    return struct.pack("=HBBi", 8 + len(more), 0, 0, index) + more


GATEWAY = encode_attributes([Attribute(5, bytes((10, 0, 0, 1)))])


@pytest.mark.parametrize("family", [AF_INET, AF_INET6])
def test_a_default_route_names_its_interface(family):
    assert rtnl_read.decode_default_route(route(family, oif=u32(4))) == ({4}, set())


@pytest.mark.parametrize(
    "other", [{"bits": 24}, {"table": LOCAL}, {"kind": UNREACHABLE}, {"flags": 0x200}]
)
def test_other_routes_name_none(other):
    assert rtnl_read.decode_default_route(route(**other, oif=u32(4))) == (set(), set())


def test_the_number_of_a_large_table_stands_in_an_attribute():
    payload = route(table=MAIN, oif=u32(4)) + attributes(table=u32(1000))
    assert rtnl_read.decode_default_route(payload) == (set(), set())


def test_a_multipath_route_names_all_its_interfaces():
    hops = hop(4, GATEWAY) + hop(7)
    assert rtnl_read.decode_default_route(route(multipath=hops)) == ({4, 7}, set())


def test_a_route_over_a_nexthop_object_is_resolved_only_where_the_kernel_does_not():
    assert rtnl_read.decode_default_route(route(nh_id=u32(9))) == (set(), {9})
    assert rtnl_read.decode_default_route(route(nh_id=u32(9), oif=u32(4))) == ({4}, set())


def nexthop(number, *, oif=None, group=()):
    found = [Attribute(1, u32(number))]
    found += [Attribute(5, u32(oif))] if oif else []
    found += [Attribute(2, b"".join(struct.pack("=IBBH", i, 0, 0, 0) for i in group))]
    return struct.pack("=BBBxI", 0, 0, 0, 0) + encode_attributes(found)


def test_nexthop_objects_and_groups_of_them_lead_to_interfaces():
    objects = (nexthop(1, oif=4), nexthop(2, oif=7), nexthop(3, oif=8), nexthop(9, group=(1, 2)))
    assert rtnl_read.resolve_nexthops({9}, objects) == {4, 7}
    assert rtnl_read.resolve_nexthops({3, 10}, objects) == {8}


def test_an_interface_names_the_function_it_sits_on():
    head = struct.pack("=BxHiII", 0, 32, 5, 0x1, 0)
    facts = {"name": b"ib0\0", "carrier": b"\x01"}
    there = {"parent": b"0000:81:00.0\0", "bus": b"pci\0"}
    link = rtnl_read.decode_interface(head + attributes(**facts, **there))
    assert (link.seen.name, link.seen.index, link.hardware) == ("ib0", 5, 32)
    assert (link.seen.up, link.carrier, link.seen.pci) == (True, True, "0000:81:00.0")
    virtio = rtnl_read.decode_interface(
        head + attributes(**facts, parent=b"virtio2\0", bus=b"virtio\0")
    )
    assert virtio.seen.pci is None
    with pytest.raises(Unavailable, match="not a PCI address: '0000'"):
        rtnl_read.decode_interface(head + attributes(**facts, parent=b"0000\0", bus=b"pci\0"))


def test_the_carrier_of_an_interface_that_is_down_says_nothing():
    head = struct.pack("=BxHiII", 0, 1, 5, 0, 0)
    link = rtnl_read.decode_interface(head + attributes(name=b"eth0\0", carrier=b"\x01"))
    assert (link.seen.up, link.carrier, link.seen.pci) == (False, None, None)


@given(st.binary(max_size=80))
def test_garbage_is_a_value_or_unavailable(garbage):
    readers = (rtnl_read.decode_interface, rtnl_read.decode_default_route)
    for read in (*readers, lambda data: rtnl_read.resolve_nexthops({1}, (data,))):
        with suppress(Unavailable):
            read(garbage)


def test_a_hop_that_is_cut_short_is_said_to_be():
    with pytest.raises(Unavailable, match="cut short"):
        rtnl_read.decode_default_route(route(multipath=bytes(8)))


def test_the_running_kernel_tells_what_sysfs_and_proc_tell():
    with rtnl_read.open_rtnl() as netlink:
        found = {link.seen.name: link.seen for link in rtnl_read.interfaces(netlink)}
    for name, link in found.items():
        assert int(Path(f"/sys/class/net/{name}/ifindex").read_text()) == link.index
    lines = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    defaults = {words[0] for words in lines if words[1] == words[7] == "00000000"}
    assert defaults <= set(rtnl_read.read_default_routes()) <= set(found)


def test_an_address_of_the_node_is_on_the_interface_that_has_it():
    """Asked of the running kernel; one that no interface has is nowhere."""
    assert rtnl_read.read_holders({"192.0.2.77": "nobody's"}) == rtnl_read.read_holders({}) == {}
    with rtnl_read.open_rtnl() as netlink:
        links = [link for link in rtnl_read.seen_links(netlink) if link.addresses]
    for link in links:
        address, _ = link.addresses[0]
        assert link.name in rtnl_read.read_holders({str(address): "it"})


def test_an_interface_that_is_gone_again_is_none():
    with rtnl_read.open_rtnl() as netlink:
        assert rtnl_read.interface_at(netlink, 0x7FFFFFF0) is None
        assert rtnl_read.interface_at(netlink, 1).seen.name == "lo"
