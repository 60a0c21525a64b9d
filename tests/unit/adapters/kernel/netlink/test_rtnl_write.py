"""Requests to routing netlink, attribute by attribute; what reads the answers, against noise."""

from __future__ import annotations

import struct
from contextlib import suppress
from ipaddress import ip_address, ip_network
from socket import AF_INET, AF_INET6

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.netlink import rtnl_write
from kube_rdma.adapters.kernel.netlink.codec import Attribute, decode_attributes, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_write import new_device
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    decode_address,
    decode_interface,
    decode_route,
    decode_rule,
)
from kube_rdma.adapters.kernel.pod.probe import advertisement, arp_announcement
from kube_rdma.model.attach import steps
from kube_rdma.model.device import PlannedHostLink

CREATE_ONLY, CREATE_OR_REPLACE = 0x600, 0x500
PARENT = PlannedHostLink(7, "eth1")
MAC = "02:00:00:00:00:01"
V4, V6 = ip_address("10.9.0.5"), ip_address("fd00::5")


def u32(number):
    return struct.pack("=I", number)


def u16(number):
    return struct.pack("=H", number)


def found(body, head=16):
    """The attributes behind a family's header, by their number."""
    return {attribute.type: attribute.value for attribute in decode_attributes(body[head:])}


def head(body):
    """struct ifinfomsg: index, flags, change."""
    return struct.unpack_from("=BxHiII", body)[2:]


def make(kind=steps.VirtualKind.MACVLAN, **facts):
    return rtnl_write.make_link(
        steps.MakeLink(kind, PARENT, "net1", "kube-rdma c/net1", **facts), 9
    )


def test_a_virtual_link_is_one_request_that_never_changes_another():
    request = make(mode="private", mtu=1400, mac=MAC)
    assert (request.kind, request.flags, head(request.body)) == (16, CREATE_ONLY, (0, 0, 0))
    attributes = found(request.body)
    info = found(attributes.pop(18), 0)
    assert attributes == {
        3: b"net1\0",
        5: u32(7),
        4: u32(1400),
        1: bytes.fromhex("020000000001"),
        27: u32(rtnl_write.GROUP),
        28: u32(9),
    }
    assert info == {1: b"macvlan\0", 2: encode_attributes([Attribute(1, u32(1))])}


@pytest.mark.parametrize(
    ("kind", "mode", "pkey", "data"),
    [
        (steps.VirtualKind.MACVLAN, "", None, {1: u32(4)}),
        (steps.VirtualKind.IPVLAN, "", None, {1: u16(0)}),
        (steps.VirtualKind.IPVLAN, "l3s", None, {1: u16(2)}),
        (steps.VirtualKind.IPOIB, "", None, {2: u16(0)}),
        (steps.VirtualKind.IPOIB, "connected", 0x8005, {1: u16(0x8005), 2: u16(1)}),
    ],
)
def test_each_kind_has_data_of_its_own(kind, mode, pkey, data):
    assert found(found(found(make(kind, mode=mode, pkey=pkey).body)[18], 0)[2], 0) == data


def test_a_card_s_link_is_moved_and_renamed_in_one_request():
    step = steps.TakeLink(PlannedHostLink(7, "eth1"), "net1", None, 1500, MAC, up=True)
    request = rtnl_write.take_link(step, 12, 9)
    assert (request.kind, head(request.body)) == (19, (12, 0, 0))
    assert found(request.body) == {28: u32(9), 3: b"net1\0"}


def test_a_link_is_set_by_name_and_brought_up_in_one_request():
    request = rtnl_write.set_link(steps.SetLink("net1", 9000, MAC))
    assert head(request.body) == (0, 1, 1)
    assert found(request.body) == {3: b"net1\0", 4: u32(9000), 1: bytes.fromhex("020000000001")}
    assert found(rtnl_write.set_link(steps.SetLink("net1")).body) == {3: b"net1\0"}


def test_an_address_has_its_broadcast_and_no_duplicate_detection():
    request = rtnl_write.add_address(steps.AddAddress("net1", V4, 24), 3)
    assert request.flags == CREATE_OR_REPLACE
    assert struct.unpack_from("=BBBBI", request.body) == (AF_INET, 24, 0, 0, 3)
    everyone = ip_address("10.9.0.255").packed
    assert found(request.body, 8) == {2: V4.packed, 1: V4.packed, 4: everyone}
    assert 4 not in found(rtnl_write.add_address(steps.AddAddress("net1", V4, 32), 3).body, 8)
    six = rtnl_write.add_address(steps.AddAddress("net1", V6, 64), 3)
    assert struct.unpack_from("=BBBBI", six.body) == (AF_INET6, 64, 2, 0, 3)


NETWORKS = st.ip_addresses().flatmap(
    lambda a: st.integers(0, a.max_prefixlen).map(lambda n: ip_network((a, n), strict=False))
)


@given(NETWORKS, st.booleans(), st.none() | st.integers(1, 2**31).filter(lambda n: n != 254))
def test_a_route_is_read_as_it_was_written(to, direct, table):
    if table == 255:
        return
    via = None if direct else to.network_address + 0
    route = steps.AddRoute("net1", to, via, None, table)
    request = rtnl_write.add_route(route, 3)
    assert request.flags == CREATE_OR_REPLACE
    assert list(decode_route(request.body, {3: "net1"})) == [route]
    assert list(decode_route(request.body, {4: "net2"})) == []


def test_a_next_hop_in_no_subnet_has_its_flag():
    """RTNH_F_ONLINK, in struct rtmsg."""
    for onlink, flags in ((False, 0), (True, 4)):
        step = steps.AddRoute("net1", ip_network("10.8.0.0/16"), V4, None, None, onlink)
        assert struct.unpack_from("=8BI", rtnl_write.add_route(step, 3).body)[8] == flags


@given(st.ip_addresses(), st.integers(1, 2**31), st.integers(1, 2**31))
def test_a_rule_is_read_as_it_was_written(source, table, priority):
    request = rtnl_write.add_rule(steps.AddRule(source, table, priority))
    assert request.flags == CREATE_ONLY
    assert list(decode_rule(request.body)) == [steps.AddRule(source, table, priority)]


def test_a_soft_device_is_named_by_its_interface():
    body = new_device(steps.MakeRdma("rxe0", "rxe", "net1"))
    assert found(body, 0) == {2: b"rxe0\0", 65: b"rxe\0", 51: b"net1\0"}


def test_words_that_the_kernel_could_not_be_told_are_refused():
    with pytest.raises(Refused, match="Choose one of l2, l3, l3s"):
        make(steps.VirtualKind.IPVLAN, mode="bridge")
    with pytest.raises(Refused, match="is not a MAC"):
        make(mac="02:00:00:00:00:0g")


@given(st.binary(max_size=120))
def test_noise_is_a_value_or_unavailable(noise):
    for read in (decode_interface, decode_address, decode_rule, lambda n: decode_route(n, {})):
        with suppress(Unavailable):
            list(read(noise) or ())


def test_an_arp_announcement_asks_for_its_own_address():
    """RFC 5227: sender and target are the same, the target's MAC is zero."""
    frame = arp_announcement(bytes.fromhex("020000000001"), V4)
    assert frame[:14].hex() == "ffffffffffff0200000000010806"
    assert frame[14:22].hex() == "0001080006040001"
    assert frame[22:] == frame[6:12] + V4.packed + bytes(6) + V4.packed


def test_an_advertisement_overrides_what_neighbours_know():
    message = advertisement(bytes.fromhex("020000000001"), V6)
    assert message[:8].hex() == "8800000020000000"
    assert message[8:] == V6.packed + bytes.fromhex("0201020000000001")
