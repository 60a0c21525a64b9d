"""Which interfaces of a node are looked at before a pod's networks are planned, and believed."""

import pytest

from kube_base.frozen import replace
from kube_rdma.attach.rules.host_links import agree, may_leave, wanted
from kube_rdma.model.attach.attachment import NetworkKind, SeenLink
from kube_rdma.model.pools import Mode
from tests.kit.nodes import node, physical_with_virtual
from tests.kit.pod_networks import card, network, share, wish

ABOVE, BELOW, OTHER = physical_with_virtual(0x81, 2)
SURVEY = node(ABOVE, BELOW, OTHER).survey
VIRTUAL = card(1, virtual=True)
LINK = SeenLink("ens1f0", 7, 1500, "", True, pci=ABOVE.seat.pci)


def on(master):
    """A network on an interface that it names."""
    return wish(of=network(kind=NetworkKind.MACVLAN, master=master))


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("br0", ("br0",)),
        ("ens1f0", ("ens1f0",)),
        ("ens1f0v1", ("ens1f0v1", "ens1f0")),
        (OTHER.seat.pci.upper(), ("ens1f0v1", "ens1f0")),
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
    found = may_leave([wish(of=network(kind=kind))], [share(VIRTUAL, mode=mode)])
    assert found is leaves


@pytest.mark.parametrize(
    ("link", "agrees"),
    [
        (LINK, True),
        (replace(LINK, pci=None), True),
        (replace(LINK, pci=OTHER.seat.pci), False),
        (replace(LINK, kind="veth", pci=None), False),
        (replace(LINK, name="eth9"), False),
        (replace(LINK, name="eth9", pci=None), False),
        (replace(LINK, name="br0", kind="bridge", pci=None), True),
    ],
)
def test_what_the_kernel_tells_is_held_against_the_survey(link, agrees):
    """A card's own link has to be known, and sit where it did; virtual ones are in no survey."""
    assert agree(SURVEY, (link.name,), [link]) is agrees


def test_a_link_that_is_not_there_is_no_agreement():
    """Then somebody has renamed it, or it is in a pod."""
    assert not agree(SURVEY, ("ens1f0", "ens1f0v0"), [LINK])
