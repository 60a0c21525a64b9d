"""Every value that the journal may be given comes back as it was."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.journal import codec
from kube_rdma.model.attachment import Attachment, GivenAddress, Plan, Sandbox
from kube_rdma.model.binding import PodName
from kube_rdma.model.device import PciAddress
from kube_rdma.model.link import Host
from kube_rdma.model.step import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    CallPlugin,
    MakeLink,
    MakeRdma,
    MoveRdma,
    PluginConf,
    Probe,
    SetLink,
    SetSysctl,
    TakeLink,
    VirtualKind,
)

V4, V6 = ip_address("192.168.111.1"), ip_address("fd00::1")
PCI = PciAddress("0000:81:00.0")
STEPS = (
    MakeLink(VirtualKind.MACVLAN, Host(3, "ens2f0"), "net1", "kube-rdma a/net1", "bridge", 9000),
    TakeLink(Host(3, "ens2f0"), "net1", PCI, 9000, "02:00:00:00:00:01", up=True),
    SetLink("net1", 9000, None),
    Probe("net1", V4),
    AddAddress("net1", V4, 24),
    AddAddress("net1", V6, 64),
    AddRoute("net1", ip_network("10.0.0.0/8"), V4, None, 101),
    AddRule(V6, 101, 20000),
    SetSysctl("net/ipv4/conf/net1/arp_ignore", "1"),
    MakeRdma("rxe-1", "rxe", "net1"),
    MoveRdma("mlx5_0", None),
    AwaitGid("rxe-1", "net1", V4),
    Announce("net1", V4),
    CallPlugin("net1", (PluginConf("bridge", b'{"type": "bridge"}'),), "1.0.0"),
)


@given(st.lists(st.sampled_from(STEPS)))
def test_an_attachment_of_any_steps_comes_back(steps):
    sandbox = Sandbox("c", PodName("default", "a"), "u", "/run/netns/x", 7)
    plan = Plan("net1", "default/net", None, tuple(steps), (GivenAddress(V4, 24, None),))
    wanted = Attachment(sandbox, (plan,))
    assert codec.decode(Attachment, codec.encode(wanted)) == wanted


def test_a_record_from_before_a_field_has_its_default():
    """An agent that was updated gives back what the one before it attached."""
    data = codec.encode(SetLink("net1", 9000, "02:00:00:00:00:01"))
    del data["mac"]
    assert codec.decode(SetLink, data) == SetLink("net1", 9000, None)


@pytest.mark.parametrize("change", ["missing", "strange", "kind", "type"])
def test_what_is_not_as_it_was_written_is_not_understood(change):
    data = codec.encode(SetLink("net1", 9000, None))
    if change == "missing":
        del data["name"]
    elif change == "strange":
        data["colour"] = "red"
    elif change == "kind":
        data[codec.KIND] = "AddAddress"
    else:
        data["mtu"] = "9000"
    with pytest.raises(ValueError, match=r"is no|has not the fields|of no type"):
        codec.decode(SetLink, data)
