"""Virtual functions over routing netlink: requests byte by byte, answers as the kernel has them."""

from __future__ import annotations

import ctypes
import errno
import struct
from contextlib import suppress
from sys import byteorder

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink import rtnl_vf
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.model.pools import (
    FunctionSettings,
    LinkState,
    ResetFunction,
    SetFunction,
    VlanProtocol,
)
from tests.kit.pod_networks import AS_MADE
from tests.unit.adapters.kernel.vf_answers import INDEX, PLACE, Kernel, answer, function

NO_MAC = "00:00:00:00:00:00"
NUMBER = 3


# What ip of iproute2 6.1 sends behind struct ifinfomsg, as strace shows it (-e write=all), for
# `ip link set dev X vf 3 …`; the structs are those of include/uapi/linux/if_link.h.
SENT = {
    # struct ifla_vf_mac: vf, mac[32]
    "mac 02:00:00:00:00:01": (
        {"mac": "02:00:00:00:00:01"},
        "3000 1600 2c00 0100 2800 0100 03000000 020000000001" + "00" * 26,
    ),
    # struct ifla_vf_vlan_info: vf, vlan, qos, vlan_proto in network order
    "vlan 7 proto 802.1ad": (
        {"vlan": 7, "protocol": VlanProtocol.PROVIDER},
        "2000 1600 1c00 0100 1800 0c00 1400 0100 03000000 07000000 00000000 88a8 0000",
    ),
    # struct ifla_vf_rate: vf, min_tx_rate, max_tx_rate
    "min_tx_rate 5 max_tx_rate 9": (
        {"min_rate": 5, "max_rate": 9},
        "1800 1600 1400 0100 1000 0600 03000000 05000000 09000000",
    ),
    # struct ifla_vf_spoofchk: vf, setting
    "spoofchk off": ({"spoof_check": False}, "1400 1600 1000 0100 0c00 0400 03000000 00000000"),
    # struct ifla_vf_link_state: vf, link_state
    "state enable": (
        {"link_state": LinkState.ENABLE},
        "1400 1600 1000 0100 0c00 0500 03000000 01000000",
    ),
    "state disable": (
        {"link_state": LinkState.DISABLE},
        "1400 1600 1000 0100 0c00 0500 03000000 02000000",
    ),
    # struct ifla_vf_trust: vf, setting
    "trust on": ({"trust": True}, "1400 1600 1000 0100 0c00 0900 03000000 01000000"),
    # struct ifla_vf_guid: vf, guid, with four octets between
    "node_guid 02:00:0a:00:00:00:00:01": (
        {"node_guid": "02:00:0a:00:00:00:00:01"},
        "1c00 1600 1800 0100 1400 0a00 03000000 00000000 01000000 000a0002",
    ),
    "port_guid 02:00:0a:00:00:00:00:01": (
        {"port_guid": "02:00:0a:00:00:00:00:01"},
        "1c00 1600 1800 0100 1400 0b00 03000000 00000000 01000000 000a0002",
    ),
}


@pytest.mark.skipif(byteorder == "big", reason="the bytes are those of a little-endian machine")
@pytest.mark.parametrize("words", SENT)
def test_each_setting_is_sent_as_iproute2_sends_it(words):
    """Byte by byte, which no struct of ours has a part in."""
    wanted, sent_ = SENT[words]
    assert messages(**wanted) == [bytes.fromhex(sent_)]


def messages(now=AS_MADE, **wanted):
    """What is sent to get there, without struct ifinfomsg."""
    found = list(rtnl_vf.changes(INDEX, NUMBER, FunctionSettings(**wanted), now))
    for one in found:
        assert (one.request.kind, one.request.flags) == (19, 0)
        assert one.request.body[:16] == struct.pack("=BxHiII", 0, 0, INDEX, 0, 0)
    return [one.request.body[16:] for one in found]


def nested(*parts):
    """IFLA_VFINFO_LIST with IFLA_VF_INFO with these; bytes as in include/uapi/linux/if_link.h."""
    inner = b"".join(parts)
    return struct.pack("=HHHH", len(inner) + 8, 22, len(inner) + 4, 1) + inner


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ({"trust": True}, struct.pack("=HHII", 12, 9, NUMBER, 1)),
        ({"spoof_check": False}, struct.pack("=HHII", 12, 4, NUMBER, 0)),
        ({"link_state": LinkState.DISABLE}, struct.pack("=HHII", 12, 5, NUMBER, 2)),
        ({"link_state": LinkState.ENABLE}, struct.pack("=HHII", 12, 5, NUMBER, 1)),
        ({"min_rate": 5, "max_rate": 9}, struct.pack("=HHIII", 16, 6, NUMBER, 5, 9)),
        ({"max_rate": 9}, struct.pack("=HHIII", 16, 6, NUMBER, 0, 9)),
        (
            {"mac": "02:00:00:00:00:01"},
            struct.pack("=HHI", 40, 1, NUMBER) + bytes.fromhex("020000000001") + bytes(26),
        ),
        (
            {"vlan": 100, "qos": 3},
            struct.pack("=HHHHIII", 24, 12, 20, 1, NUMBER, 100, 3) + b"\x81\x00\0\0",
        ),
        (
            {"vlan": 7, "protocol": VlanProtocol.PROVIDER},
            struct.pack("=HHHHIII", 24, 12, 20, 1, NUMBER, 7, 0) + b"\x88\xa8\0\0",
        ),
    ],
)
def test_each_setting_is_a_message_of_its_own(wanted, value):
    assert messages(**wanted) == [nested(value)]


GUID, ZEROS, ONES = "02:00:0a:00:00:00:00:01", ":".join(["00"] * 8), ":".join(["ff"] * 8)


class VfGuid(ctypes.Structure):
    """struct ifla_vf_guid of include/uapi/linux/if_link.h, as a compiler lays it out."""

    _fields_ = (("vf", ctypes.c_uint32), ("guid", ctypes.c_uint64))


def test_no_guid_is_not_set_where_there_is_none():
    """A physical function tells zeros where it has set none."""
    assert messages(now=FunctionSettings(node_guid=ZEROS), node_guid=ONES) == []
    assert len(messages(now=FunctionSettings(node_guid=GUID), node_guid=ONES)) == 1


def test_what_is_right_already_is_not_sent():
    said = {name: getattr(AS_MADE, name) for name in AS_MADE.__struct_fields__}
    assert messages(**said) == []
    assert len(messages(now=FunctionSettings(), **said)) == 4  # not told: trust, spoof, state, MAC


def test_what_is_set_keeps_its_order():
    """The VLAN before the MAC, which resets many a function."""
    wanted = {"mac": "02:00:00:00:00:01", "vlan": 7, "trust": True, "max_rate": 9}
    words = [
        one.what for one in rtnl_vf.changes(INDEX, NUMBER, FunctionSettings(**wanted), AS_MADE)
    ]
    assert words == [
        "trust on",
        "VLAN 7 (802.1q, priority 0)",
        "rate of 0 to 9 Mbit/s",
        "MAC 02:00:00:00:00:01",
    ]


def test_an_answer_tells_every_function():
    found = rtnl_vf.decode_physical(
        answer(function(0), function(1, told=False, vlan=7, tag=b"\x88\xa8"))
    )
    assert (found.interface.seen.name, found.has_parent) == ("ens1f0", True)
    mac = "02:00:00:00:00:01"
    plain = FunctionSettings(mac, 0, 0, VlanProtocol.CUSTOMER, True, True, LinkState.AUTO, 1, 100)
    unknown = replace(plain, spoof_check=None, trust=None, vlan=7, protocol=VlanProtocol.PROVIDER)
    assert found.functions == {0: plain, 1: unknown}


def test_a_card_without_functions_has_none():
    head = struct.pack("=BxHiII", 0, 1, INDEX, 1, 0)
    found = rtnl_vf.decode_physical(head + encode_attributes([Attribute(3, b"eth0\0")]))
    assert (found.functions, found.has_parent) == ({}, False)


def test_an_infiniband_function_has_no_mac():
    """Its link layer address is made of a GUID, and not set by this."""
    assert rtnl_vf.decode_physical(answer(function(0), hardware=32)).functions[0].mac is None


def test_an_infiniband_function_has_guids():
    """Both, where the driver tells them (rtnl_fill_vfinfo, since Linux 5.6)."""
    guids = [
        Attribute(10, bytes(VfGuid(0, 0x02000A0000000001))),
        Attribute(11, bytes(VfGuid(0, 0))),
    ]
    told = Attribute(1, function(0).value + encode_attributes(guids))
    found = rtnl_vf.decode_physical(answer(told, hardware=32)).functions[0]
    assert (found.node_guid, found.port_guid) == (GUID, ZEROS)
    silent = rtnl_vf.decode_physical(answer(function(0), hardware=32)).functions[0]
    assert (silent.node_guid, silent.port_guid) == (None, None)


def test_as_many_functions_as_a_card_has_are_told_in_one_answer():
    """An attribute has room for 64 KiB."""
    many = rtnl_vf.decode_physical(answer(*map(function, range(256)))).functions
    assert len(many) == 256
    assert many[255] == many[0]


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_noise_is_a_value_or_unavailable(noise):
    for payload in (noise, answer(Attribute(1, noise)), answer(function(0), Attribute(1, noise))):
        with suppress(Unavailable):
            rtnl_vf.decode_physical(payload)


GUIDS = st.binary(min_size=8, max_size=8).map(lambda octets: octets.hex(":"))
REAL_GUIDS = GUIDS.filter(lambda guid: guid not in (ZEROS, ONES))
MACS = st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))
SETTINGS = st.builds(
    FunctionSettings,
    mac=st.none() | MACS,
    vlan=st.none() | st.integers(0, 4094),
    qos=st.none() | st.integers(0, 7),
    protocol=st.none() | st.sampled_from(VlanProtocol),
    spoof_check=st.none() | st.booleans(),
    trust=st.none() | st.booleans(),
    link_state=st.none() | st.sampled_from(LinkState),
    min_rate=st.none() | st.integers(0, 2**32 - 1),
    max_rate=st.none() | st.integers(0, 2**32 - 1),
    node_guid=st.none() | REAL_GUIDS,
    port_guid=st.none() | REAL_GUIDS,
)


@given(SETTINGS, SETTINGS)
@settings(deadline=None)
def test_all_messages_together_lead_to_what_is_wanted(wanted, now):
    """Read as the kernel reads them; what is not wanted stays."""
    then = replace(
        FunctionSettings(vlan=0, qos=0, protocol=VlanProtocol.CUSTOMER, min_rate=0, max_rate=0),
        **dict(parts(now)),
    )
    before = then
    for one in rtnl_vf.changes(INDEX, NUMBER, wanted, now):
        then = replace(then, **dict(parts(rtnl_vf.sent(one.request.body))))
    assert then == replace(before, **dict(parts(wanted)))


def parts(said):
    """The fields that say something."""
    return [(f, getattr(said, f)) for f in said.__struct_fields__ if getattr(said, f) is not None]


TRUST = SetFunction(PLACE, FunctionSettings(trust=False), FunctionSettings(trust=True))


@pytest.mark.parametrize(
    ("interfaces", "index"),
    [
        ([answer(function(0))], INDEX),
        ([answer(function(0), has_parent=False)], INDEX),
        ([answer(function(0), index=9, name=b"other")], 9),
        ([answer(name=b"ens1f0r0"), answer(function(0), index=9, name=b"ens1f0np0")], 9),
        ([answer(function(0), has_parent=False, name=b"x"), answer(function(0), index=9)], 9),
    ],
    ids=["at its index", "before Linux 5.14", "moved", "switchdev", "another's index"],
)
def test_the_physical_function_is_found(interfaces, index):
    kernel = Kernel(*interfaces)
    rtnl_vf.set_function(kernel, TRUST)
    assert kernel.set == [(index, FunctionSettings(trust=False))]


def test_one_question_for_all_functions_of_a_card():
    """Those that are not there are left out."""
    places = [replace(PLACE, number=number) for number in range(3)]
    found = dict(rtnl_vf.seen_functions(Kernel(answer(function(0), function(2))), places))
    assert list(found) == [places[0], places[2]]


def test_a_driver_that_takes_no_mac_back_keeps_it():
    """EINVAL for zeros; anything else is told."""
    undo = ResetFunction(PLACE, FunctionSettings(mac=NO_MAC))
    rtnl_vf.reset_function(Kernel(answer(function(0)), refuse=errno.EINVAL), undo)
    for code, kind in ((errno.EBUSY, Unavailable), (errno.EPERM, Refused)):
        with pytest.raises(kind, match="virtual function 0 of ens1f0, MAC 00:00"):
            rtnl_vf.reset_function(Kernel(answer(function(0)), refuse=code), undo)
    with pytest.raises(Refused, match="what the card allows"):
        rtnl_vf.reset_function(
            Kernel(answer(function(0)), refuse=errno.EINVAL),
            ResetFunction(PLACE, FunctionSettings(max_rate=0)),
        )
