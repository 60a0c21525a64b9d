"""Virtual functions: their plan by example, what is asked for, what is told of them."""

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.procedure import LocatedNics
from kube_rdma.attach.rules.undo import check, undo
from kube_rdma.attach.rules.vf import with_settings
from kube_rdma.attach.views import describe
from kube_rdma.model.attach.attachment import HostLink, NetworkKind, PodView
from kube_rdma.model.attach.steps import GiveBackLink, MoveRdma, SetLink
from kube_rdma.model.pools import (
    FunctionSettings,
    LinkState,
    Mode,
    ResetFunction,
    SetFunction,
    VlanProtocol,
)
from kube_rdma.model.survey import NamespaceMode
from tests.kit.pod_networks import AS_MADE, card, network, node, place, planned, share, wish

VIRTUAL = card(1, virtual=True)
TAG = FunctionSettings(vlan=100, qos=3, protocol=VlanProtocol.PROVIDER)
MAC = "02:00:00:00:00:AA"
UP = ("SetSysctl", "SetLink")  # router advertisements are ignored before the link is up


def plan(*, of=VIRTUAL, function=TAG, mac=None, mode=NamespaceMode.SHARED, rdma=True, **facts):
    """The plan of one network of this function."""
    asked = wish(of=network(kind=NetworkKind.DEVICE, function=function, rdma=rdma), mac=mac)
    granted = [share(of, mode=Mode.SRIOV)]
    (found,) = planned([asked], granted, node(of, mode=mode, **facts))
    return found


def kinds(acts):
    return [type(act).__name__ for act in acts]


def test_the_vlan_is_there_before_the_link_goes_and_the_mac_when_it_is_gone():
    found = plan(mac=MAC)
    assert kinds(found.steps) == ["SetFunction", "TakeLink", "SetFunction", *UP]
    tag, _, mac, _, last = found.steps
    before = FunctionSettings(vlan=0, qos=0, protocol=VlanProtocol.CUSTOMER)
    assert tag == SetFunction(place(VIRTUAL), TAG, before)
    assert (mac.wanted, mac.previous) == (
        FunctionSettings(mac=MAC.lower()),
        FunctionSettings(mac=AS_MADE.mac),
    )
    assert last.mac == MAC
    assert kinds(undo(found)) == ["ResetFunction", "GiveBackLink", "ResetFunction"]
    assert undo(found)[-1] == ResetFunction(place(VIRTUAL), before)


def test_the_rdma_device_of_a_function_comes_along():
    """In RDMA namespace mode exclusive; it is back before the function is set back."""
    found = plan(mac=MAC, mode=NamespaceMode.EXCLUSIVE)
    assert kinds(found.steps) == ["SetFunction", "TakeLink", "MoveRdma", "SetFunction", *UP]
    assert found.steps[2] == MoveRdma("mlx5_1", VIRTUAL.pci)
    order = ["GiveBackRdma", "ResetFunction", "GiveBackLink", "ResetFunction"]
    assert kinds(undo(found)) == order


@pytest.mark.parametrize("function", [None, FunctionSettings()])
def test_what_nobody_asks_for_is_not_touched(function):
    assert kinds(plan(function=function).steps) == ["TakeLink", *UP]


def test_a_mac_that_the_physical_function_does_not_tell_is_the_link_s_alone():
    for settings in (None, replace(AS_MADE, mac=None)):
        found = plan(function=None, mac=MAC, settings=settings)
        assert kinds(found.steps) == ["TakeLink", *UP]


@pytest.mark.parametrize(
    ("own", "physical", "asked", "wanted"),
    [
        (1500, 9000, None, 9000),
        (9000, 1500, None, None),
        (1500, 1500, None, None),
        (1500, 9000, 4200, 4200),
    ],
)
def test_a_function_gets_the_mtu_of_its_physical_one(own, physical, asked, wanted):
    """Where that is larger: drivers make functions with 1500. What the network says comes first;
    undoing brings back what it had."""
    on = node(VIRTUAL, mtu=own)
    above = HostLink(117, place(VIRTUAL).physical.name, physical, MAC, True, None, "ether")
    net = network(kind=NetworkKind.DEVICE, mtu=asked)
    granted = [share(VIRTUAL, mode=Mode.SRIOV)]
    (found,) = planned([wish(of=net)], granted, replace(on, links=(*on.links, above)))
    assert [step.mtu for step in found.steps if isinstance(step, SetLink)] == [wanted]
    assert [act.mtu for act in undo(found) if isinstance(act, GiveBackLink)] == [own]


def with_guid(guid, driver="mlx5_core"):
    """The function whose RDMA device has this node GUID."""
    devices = tuple(replace(one, node_guid=guid) for one in VIRTUAL.devices)
    function = replace(VIRTUAL.function, driver=driver)
    return replace(VIRTUAL, devices=devices, function=function)


@pytest.mark.parametrize("guid", ["0000:0000:0000:0000", "0000:00ff:fe00:0000"])
def test_a_mac_brings_no_node_guid_to_a_driver_that_is_bound(guid):
    """None, or that of a MAC of zeros; RDMA CM would not work, and nobody would say why."""
    with pytest.raises(Refused, match="mlx5_1 has no node GUID, without which RDMA CM"):
        plan(of=with_guid(guid), function=None, mac=MAC)
    assert kinds(plan(of=with_guid(guid), function=None).steps) == ["TakeLink", *UP]
    assert plan(of=with_guid(guid), function=None, mac=MAC, rdma=False).steps[-1].mac == MAC


@pytest.mark.parametrize(
    "of",
    [
        with_guid("0200:0aff:fe00:0001"),
        with_guid(None),
        with_guid("0000:0000:0000:0000", "bnxt_en"),
        card(1, virtual=True, soft=True),
        card(1, virtual=True, rdma=False),
    ],
    ids=["its own", "not told", "another driver", "a soft device", "no device"],
)
def test_a_function_that_needs_no_node_guid_takes_any_mac(of):
    found = plan(of=of, function=None, mac=MAC)
    assert [step.mac for step in found.steps if isinstance(step, SetLink)] == [MAC]


def test_only_functions_that_move_are_asked_about():
    """What is told of them goes to their interfaces, and to no other."""
    shared, moved = card(2), card(3, virtual=True)
    asked = [wish(0), wish(1, network("b", NetworkKind.DEVICE, resource="rdma/b"))]
    granted = [share(shared), share(moved, mode=Mode.SRIOV, resource="rdma/b")]
    found = pod_nics(asked, granted, node(shared, moved, settings=None))
    assert LocatedNics(None, None, found, ()).functions == (place(moved),)
    told = with_settings(found, [(place(moved), AS_MADE)])
    assert [nic.link.settings for nic in told] == [None, AS_MADE]
    assert with_settings(found, []) == found


def test_each_difference_is_told():
    """In the words of the network's document; what a driver does not tell counts as right."""
    wanted = FunctionSettings(
        None, 100, 3, VlanProtocol.PROVIDER, False, True, LinkState.ENABLE, 5, 9
    )
    found = plan(function=wanted)

    def said(*functions):
        return [one for one in check(found, PodView(functions=functions)) if "virtual" in one]

    assert said((place(VIRTUAL), wanted)) == []
    assert said((place(VIRTUAL), FunctionSettings())) == []
    start = "net1 (default/rdma-net): "
    assert said() == [f"{start}virtual function 0 of ens17pf is not there"]
    (line,) = said((place(VIRTUAL), AS_MADE))
    assert line.startswith(f"{start}the VLAN of virtual function 0 of ens17pf is 0, not 100 and ")
    for words in ("spoof check", "is on, not off", "trust", "link state", "is auto, not enable"):
        assert words in line


def test_what_is_done_can_be_read():
    first, *_, last = plan().steps[0], *undo(plan())
    assert describe(first) == (
        "set up virtual function 0 of ens17pf: VLAN 100, priority 3, VLAN protocol 802.1ad"
    )
    assert describe(last) == (
        "set virtual function 0 of ens17pf back: VLAN 0, VLAN protocol 802.1q"
    )
    flags = FunctionSettings(spoof_check=False, trust=True, min_rate=1, max_rate=9)
    assert describe(plan(function=flags).steps[0]).endswith(
        ": spoof check off, trust on, at least (Mbit/s) 1, at most (Mbit/s) 9"
    )
