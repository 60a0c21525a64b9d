"""pyroute2 reads the requests that the agent sends, and finds in them what was meant.

Our own readers share our own mistakes; pyroute2 (0.9) is written by others. What a kernel does with
a request, it does not say.
"""

import struct
from ipaddress import ip_address, ip_network
from socket import AF_INET, AF_INET6

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink import rtnl_vf, rtnl_write
from kube_rdma.adapters.kernel.netlink.codec import Message, encode
from kube_rdma.model.attach import steps
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import FunctionSettings, LinkState, VlanProtocol
from tests.kit.pod_networks import AS_MADE

NONE = FunctionSettings()
MACS = st.binary(min_size=6, max_size=6).map(lambda b: b.hex(":"))
GUIDS = st.binary(min_size=8, max_size=8).map(lambda b: b.hex(":"))
NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,14}", fullmatch=True)
INDICES = st.integers(1, 2**31 - 1)
NUMBERS = st.integers(0, 2**32 - 1)
MTUS = st.none() | st.integers(68, 2**31)
ADDRESSES = st.ip_addresses()  # compared as values: inet_ntop writes ::ffff:0:0 in another way
MODES = [
    (kind, mode, number) for kind, m in rtnl_write._MODES.items() for mode, number in m.items()
]


def read(request, kind=ifinfmsg):
    """The request as pyroute2 decodes it."""
    message = kind(encode(Message(request.kind, request.flags, 1, request.body)))
    message.decode()
    assert message["header"]["type"] == request.kind
    return message


def attributes(message, *names):
    """The values of these attributes, and that there are no others."""
    assert {name for name, *_ in message["attrs"]} == {f"{message.prefix}{name}" for name in names}
    return [message.get_attr(f"{message.prefix}{name}") for name in names]


def address_of(message, name):
    """An attribute with an address, None where it is not there."""
    text = message.get_attr(name)
    return ip_address(text) if text else None


@given(
    st.sampled_from(MODES),
    INDICES,
    NAMES,
    MTUS,
    st.none() | MACS,
    st.none() | st.integers(0, 65535),
)
def test_a_virtual_link(chosen, parent, name, mtu, mac, pkey):
    kind, mode, number = chosen
    step = steps.MakeLink(kind, PlannedHostLink(parent, "p"), name, "m", mode, mtu, mac, pkey)
    message = read(rtnl_write.make_link(step, 9))
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == kind
    data = dict(info.get_attr("IFLA_INFO_DATA")["attrs"])
    is_ipoib = kind is steps.VirtualKind.IPOIB
    assert data.pop("IFLA_IPOIB_PKEY", None) == (pkey if is_ipoib else None)
    named = number if kind is steps.VirtualKind.IPVLAN else mode  # whose modes pyroute2 counts
    assert data == {f"IFLA_{kind.upper()}_MODE": named}
    assert message.get_attr("IFLA_LINK") == parent
    assert message.get_attr("IFLA_IFNAME") == name
    assert message.get_attr("IFLA_MTU") == mtu
    assert message.get_attr("IFLA_ADDRESS") == mac
    assert message.get_attr("IFLA_GROUP") == rtnl_write.GROUP
    assert message.get_attr("IFLA_NET_NS_FD") == 9
    assert rtnl_write.make_link(step, 9).flags == 0x600  # NLM_F_CREATE | NLM_F_EXCL


@given(NAMES, INDICES)
def test_names_and_namespaces(name, index):
    link = PlannedHostLink(index, name)
    mark = steps.MakeLink(steps.VirtualKind.MACVLAN, link, name, "kube-rdma c/net1")
    assert attributes(read(rtnl_write.mark_link(mark)), "IFNAME", "IFALIAS") == [
        name,
        "kube-rdma c/net1",
    ]
    take = steps.TakeLink(link, name, None, 1500, "02:00:00:00:00:01", up=True)
    taken = read(rtnl_write.take_link(take, index, 9))
    assert (taken["index"], attributes(taken, "NET_NS_FD", "IFNAME")) == (index, [9, name])
    renamed = read(rtnl_write.rename_link(index, name))
    assert (renamed["index"], attributes(renamed, "IFNAME")) == (index, [name])
    other = read(rtnl_write.remove_alternative_name(index, name))
    assert (other["index"], other["header"]["type"]) == (index, 109)  # RTM_DELLINKPROP
    (properties,) = attributes(other, "PROP_LIST")
    assert properties.get_attr("IFLA_ALT_IFNAME") == name


@given(NAMES, INDICES, MTUS, st.none() | MACS, st.booleans())
def test_states(name, index, mtu, mac, up):
    for request, place, has in (
        (rtnl_write.set_link(steps.SetLink(name, mtu, mac)), 0, True),
        (rtnl_write.restore_link(index, mtu, mac, up=up), index, up),
        (rtnl_write.set_down(index), index, False),
    ):
        message = read(request)
        assert (message["index"], message["flags"], message["change"]) == (place, int(has), 1)
        if request.body != rtnl_write.set_down(index).body:
            assert (message.get_attr("IFLA_MTU"), message.get_attr("IFLA_ADDRESS")) == (mtu, mac)
    assert read(rtnl_write.remove_link(index))["index"] == index
    assert attributes(read(rtnl_write.remove_group()), "GROUP") == [rtnl_write.GROUP]


@given(ADDRESSES, st.data(), INDICES)
def test_an_address(address, data, index):
    prefix = data.draw(st.integers(0, address.max_prefixlen))
    message = read(
        rtnl_write.add_address(steps.AddAddress("net1", address, prefix), index), ifaddrmsg
    )
    assert (message["index"], message["prefixlen"]) == (index, prefix)
    assert message["family"] == (AF_INET if address.version == 4 else AF_INET6)
    assert ip_address(message.get_attr("IFA_LOCAL")) == address
    assert ip_address(message.get_attr("IFA_ADDRESS")) == address
    everyone = message.get_attr("IFA_BROADCAST")
    if address.version == 4 and prefix < 31:
        network = ip_network((address, prefix), strict=False)
        assert ip_address(everyone) == network.broadcast_address
    else:
        assert everyone is None
    assert message["flags"] == (2 if address.version == 6 else 0)  # IFA_F_NODAD


@given(ADDRESSES, st.data(), INDICES, st.none() | st.integers(1, 2**32 - 1), NUMBERS)
def test_a_route(address, data, index, table, metric):
    prefix = data.draw(st.integers(0, address.max_prefixlen))
    via, source = (data.draw(st.sampled_from([None, address])) for _ in range(2))
    onlink = data.draw(st.booleans())
    to = ip_network((address, prefix), strict=False)
    step = steps.AddRoute("net1", to, via, source, table, onlink, metric)
    message = read(rtnl_write.add_route(step, index), rtmsg)
    assert (message["dst_len"], message["type"], message["proto"]) == (prefix, 1, 4)
    assert bool(message["flags"] & 4) is onlink  # RTNH_F_ONLINK
    assert message["scope"] == (0 if via or address.version == 6 else 253)
    assert address_of(message, "RTA_DST") == (to.network_address if prefix else None)
    assert message.get_attr("RTA_OIF") == index
    assert message.get_attr("RTA_TABLE") == (table or 254)
    assert message.get_attr("RTA_PRIORITY") == (metric or None)
    for name, value in (("RTA_GATEWAY", via), ("RTA_PREFSRC", source)):
        assert address_of(message, name) == value


@given(ADDRESSES, st.integers(1, 2**32 - 1), NUMBERS)
@example(ip_address("::ffff:0:0"), 1, 0)
def test_a_rule(source, table, priority):
    for request in (
        rtnl_write.add_rule(steps.AddRule(source, table, priority)),
        rtnl_write.remove_rule(steps.RemoveRule(source, table, priority)),
    ):
        message = read(request, fibmsg)
        assert (message["src_len"], message["action"]) == (source.max_prefixlen, 1)
        text, *found = attributes(message, "SRC", "PRIORITY", "TABLE")
        assert (ip_address(text), found) == (source, [priority, table])


def function(wanted, now=AS_MADE):
    """The settings of function 3 in the one request that leads to what is wanted."""
    (setting,) = rtnl_vf.changes(7, 3, wanted, now)
    message = read(setting.request)
    assert (message["index"], message["header"]["type"]) == (7, 19)
    (listed,) = attributes(message, "VFINFO_LIST")
    ((name, info),) = listed["attrs"]
    assert name == "IFLA_VF_INFO"
    ((name, value),) = info["attrs"]
    return name.removeprefix("IFLA_VF_"), value


@pytest.mark.parametrize("state", LinkState)
def test_the_link_state_of_a_function(state):
    wanted = replace(NONE, link_state=state)
    other = next(one for one in LinkState if one is not state)
    name, value = function(wanted, replace(AS_MADE, link_state=other))
    numbers = {LinkState.AUTO: 0, LinkState.ENABLE: 1, LinkState.DISABLE: 2}
    assert (name, value["vf"], value["link_state"]) == ("LINK_STATE", 3, numbers[state])


@pytest.mark.parametrize("flag", [False, True])
def test_trust_and_spoof_check_of_a_function(flag):
    for field, which in (("trust", "trust"), ("spoof_check", "spoofchk")):
        name, value = function(
            replace(NONE, **{field: flag}), replace(AS_MADE, **{field: not flag})
        )
        assert (name, value["vf"], value[which]) == (which.upper(), 3, flag)


@given(st.integers(1, 4094), st.integers(0, 7), st.sampled_from(VlanProtocol))
def test_the_vlan_of_a_function(vlan, qos, protocol):
    name, value = function(replace(NONE, vlan=vlan, qos=qos, protocol=protocol))
    ((_, info),) = value["attrs"]
    number = {VlanProtocol.CUSTOMER: 0x8100, VlanProtocol.PROVIDER: 0x88A8}[protocol]
    assert (name, info["vf"], info["vlan"], info["qos"]) == ("VLAN_LIST", 3, vlan, qos)
    assert info["proto"] == number


@given(NUMBERS, st.integers(1, 2**32 - 1))
def test_the_rate_of_a_function(least, most):
    name, value = function(replace(NONE, min_rate=least, max_rate=most))
    assert (name, value["vf"], value["min_tx_rate"], value["max_tx_rate"]) == (
        "RATE",
        3,
        least,
        most,
    )


@given(MACS.filter(lambda mac: mac != AS_MADE.mac))
def test_the_mac_of_a_function(mac):
    name, value = function(replace(NONE, mac=mac))
    assert (name, value["vf"], value["mac"]) == ("MAC", 3, mac)


@given(GUIDS.filter(lambda guid: guid not in rtnl_vf.NO_GUIDS), st.sampled_from(["node", "port"]))
def test_the_guids_of_a_function(guid, which):
    """pyroute2 has the attributes' names, and their structs as bytes behind the header."""
    name, value = function(replace(NONE, **{f"{which}_guid": guid}))
    assert name == f"IB_{which.upper()}_GUID"
    assert value[4:] == struct.pack("=I4xQ", 3, int(guid.replace(":", ""), 16))
