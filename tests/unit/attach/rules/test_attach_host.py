"""Interfaces of a node that are looked at before a pod's networks are planned; bonds."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.host_links import agree, host_network, may_leave, wanted
from kube_rdma.attach.rules.placement import base_of, pod_nics
from kube_rdma.model.attach.attachment import HostLink, NetworkKind, SeenLink, Way
from kube_rdma.model.attach.steps import MakeLink
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import FunctionPlace, Mode
from tests.kit.nodes import device, function, node, physical_with_virtual, position
from tests.kit.pod_networks import card, network, planned, share, wish
from tests.kit.pod_networks import node as network_of

ABOVE, BELOW, OTHER = physical_with_virtual(0x81, 2)
SURVEY = node(ABOVE, BELOW, OTHER).survey
VIRTUAL = card(1, virtual=True)
ADDRESSES = (ip_address("10.9.0.7"), 24), (ip_address("fe80::1"), 64)
LINK = SeenLink("ens1f0", 7, 1500, "", True, pci=ABOVE.position.pci, addresses=ADDRESSES)


def on(master):
    """A network on an interface that it names."""
    return wish(of=network(kind=NetworkKind.MACVLAN, device=master))


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("br0", ("br0",)),
        ("ens1f0", ("ens1f0",)),
        ("ens1f0v1", ("ens1f0v1", "ens1f0")),
        (OTHER.position.pci.upper(), ("ens1f0v1", "ens1f0")),
        ("0000:99:00.0", None),
        ("02:00:00:00:00:01", None),
    ],
)
def test_what_a_network_names_is_looked_at(said, names):
    """By its name or function, a virtual one with its physical one; a MAC may be anybody's."""
    assert wanted([on(said)], [], SURVEY) == names


def test_the_cards_of_the_pod_are_looked_at():
    """Once each, also those that a network names by address or by share."""
    cards = [card(number) for number in (1, 2)]
    shares = [share(each) for each in cards]
    wishes = [on(cards[0].id), on(shares[1].share), wish(of=network(kind=NetworkKind.CARD))]
    assert wanted(wishes, shares, SURVEY) == ("ens1f0", "ens2f0")


@pytest.mark.parametrize(
    ("kind", "mode", "leaves"),
    [
        (NetworkKind.MACVLAN, Mode.SHARED, False),
        (NetworkKind.DEVICE, Mode.SHARED, True),
        (NetworkKind.CARD, Mode.EXCLUSIVE, True),
        (NetworkKind.CARD, Mode.SRIOV, True),
    ],
)
def test_a_card_that_may_leave_the_node_is_known_before(kind, mode, leaves):
    """By the network's kind, or the mode of the share."""
    assert may_leave([wish(of=network(kind=kind))], [share(VIRTUAL, mode=mode)]) is leaves


@pytest.mark.parametrize(
    ("link", "agrees", "kind"),
    [
        (LINK, True, ""),
        (replace(LINK, pci=None), True, ""),
        (replace(LINK, pci=OTHER.position.pci), False, ""),
        (replace(LINK, kind="ipoib"), True, ""),
        (replace(LINK, kind="veth", pci=None), False, ""),
        (replace(LINK, name="eth9"), False, ""),
        (replace(LINK, name="eth9", pci=None), False, ""),
        (replace(LINK, name="ib0.8001", kind="ipoib", parent=7), True, "ipoib"),
        (replace(LINK, name="br0", kind="bridge", pci=None), True, "bridge"),
    ],
)
def test_what_the_kernel_tells_is_held_against_the_survey(link, agrees, kind):
    """A card's own link has to be known, and sit where it did; virtual ones are in no survey."""
    assert agree(SURVEY, (link.name,), [link]) is agrees
    (found,) = host_network(replace(SURVEY, routed=("ens1f0", "br0")), [link]).links
    assert (found.kind, found.addresses) == (kind, ADDRESSES[:1])
    assert found.default_route is (link.name == "br0")
    (found,) = host_network(replace(SURVEY, routed=None), [link]).links
    assert found.default_route is (link.name != "ens1f0"), "where the kernel does not say"


def test_a_virtual_function_is_at_its_number_of_its_physical_one():
    """Only where that one has an interface on the node too, of several the first."""
    names = ("ens1f0", "ens1f0v0", "ens1f0v1", "ens1f1")
    links = [replace(LINK, name=name, index=7 + at) for at, name in enumerate(names)]
    survey = node(function(ABOVE.position, "ens1f0", "ens1f1"), BELOW, OTHER).survey
    place = partial(FunctionPlace, PlannedHostLink(7, "ens1f0"), ABOVE.position.pci)
    found = [link.virtual for link in host_network(survey, links).links]
    assert found == [None, place(0), place(1), None]
    assert [link.virtual for link in host_network(survey, links[1:3]).links] == [None, None]


def test_a_link_that_is_not_there_is_no_agreement():
    """Then somebody has renamed it, or it is in a pod."""
    assert not agree(SURVEY, ("ens1f0", "ens1f0v0"), [LINK])


CARD = card(1)
BOND = HostLink(77, "bond0", 9000, "02:00:00:00:00:07", True, None, "ether")


def bonded(of=CARD, *bonds, master="bond0", **facts):
    """The node's network where the card is enslaved; its device names the slave, as RoCE LAG."""
    host = network_of(of, **facts)
    slaves = (replace(one, master=master, bonded=True) for one in host.links)
    return replace(host, links=(*slaves, *bonds))


def shares(kind, **facts):
    return [wish(of=network(kind=kind, **facts))], [share(CARD)]


@pytest.mark.parametrize("kind", [NetworkKind.CARD, NetworkKind.MACVLAN, NetworkKind.IPVLAN])
def test_a_virtual_interface_of_a_bonded_card_stands_on_the_bond(kind):
    """The kernel makes none on a slave; the card's RDMA device is the pod's all the same."""
    (placed,) = pod_nics(*shares(kind), bonded(CARD, BOND))
    assert (placed.link, placed.card) == (BOND, CARD)
    assert placed.devices == ("mlx5_1",)
    (plan,) = planned(*shares(kind), bonded(CARD, BOND))
    (made,) = (step for step in plan.steps if isinstance(step, MakeLink))
    assert (made.parent.index, made.parent.name) == (77, "bond0")


@pytest.mark.parametrize("way", Way)
def test_only_macvlan_and_ipvlan_stand_on_what_a_slave_is_in_and_only_on_a_bond(way):
    host = bonded(CARD, BOND)
    slave, port = host.links[0], replace(host.links[0], bonded=False)
    assert base_of(slave, way, host) == (BOND if way in (Way.MACVLAN, Way.IPVLAN) else slave)
    assert base_of(port, way, host) == port


@pytest.mark.parametrize("resource", [None, "rdma/hca_shared_devices_a"])
@pytest.mark.parametrize("name", ["bond0", "ens1f0", "02:00:00:00:00:07", CARD.id])
def test_a_network_on_the_bond_has_the_card_of_its_slave(name, resource):
    asked = shares(NetworkKind.MACVLAN, device=name, resource=resource)
    (placed,) = pod_nics(*asked, bonded(CARD, BOND))
    assert (placed.link, placed.card, placed.devices) == (BOND, CARD, ("mlx5_1",))


def test_a_network_on_another_bond_has_none_of_its_cards():
    asked = shares(NetworkKind.MACVLAN, device="bond1")
    with pytest.raises(Refused, match="the network is on bond1, and the pod was given mlx5_1"):
        pod_nics(*asked, bonded(CARD, BOND, replace(BOND, index=78, name="bond1", mac="02::8")))


def test_a_slave_that_is_named_without_its_card_is_refused_with_its_bond():
    """The pod holds no share, so nobody knows that the network follows a card."""
    asked = [wish(of=network(kind=NetworkKind.MACVLAN, device="ens1f0", resource=None))]
    with pytest.raises(Refused, match="kernel makes no macvlan on it") as caught:
        pod_nics(asked, [], bonded(CARD, BOND))
    assert caught.value.remedy == 'Write "master": "bond0"'


@pytest.mark.parametrize("kind", [NetworkKind.CARD, NetworkKind.DEVICE])
def test_a_card_with_a_master_never_moves(kind):
    """A bond would fall apart, a bridge lose its port, and nothing puts either together again."""
    asked = [wish(of=network(kind=kind))]
    with pytest.raises(Refused, match="ens1f0 is enslaved to br0, which would not get it back"):
        pod_nics(asked, [share(CARD, mode=Mode.EXCLUSIVE)], bonded(CARD, master="br0"))


def test_the_bond_is_among_the_interfaces_that_are_looked_at():
    """As the survey shows the two functions of RoCE LAG: one device, on the first slave."""
    first, second = function(position(0x81), "ens1f0"), function(position(0x81, 1), "ens1f1")
    slaves = [
        replace(one, netdevs=(replace(one.netdevs[0], master="bond0", bonded=True),))
        for one in (first, second)
    ]
    lag = device(0, first.position, "ens1f0", name="mlx5_bond_0")
    found = node(*slaves, devices=(lag,))
    one_card, other = found.cards
    assert (one_card.name, other.devices) == ("mlx5_bond_0", ())
    names = wanted([wish()], [share(one_card)], found.survey)
    assert names == ("ens1f0", "bond0")
    seen = [SeenLink("ens1f0", 7, 1500, "", True, pci=first.position.pci)]
    assert not agree(found.survey, names, seen)
    assert agree(found.survey, names, [*seen, SeenLink("bond0", 8, 1500, "", True, kind="bond")])
