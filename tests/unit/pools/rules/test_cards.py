"""The units that pools are made of: every device and function of a node is in exactly one card."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Netdev
from kube_rdma.model.survey import Verdict
from kube_rdma.pools.rules.selection import cards, is_vital
from tests.kit.nodes import DOWN, device, function, node, nodes, physical_with_virtual, seat

WHERE = seat(0x81)


@given(nodes())
def test_each_device_and_each_function_is_in_one_card(found):
    """Nothing is lost, nothing is counted twice, ids leave room for the slot of a share."""
    known = found.cards
    assert sorted(d.name for c in known for d in c.devices) == sorted(
        d.name for d in found.survey.devices
    )
    functions = [card.function for card in known if card.function]
    assert sorted(f.seat.pci for f in functions) == [f.seat.pci for f in found.survey.functions]
    ids = [card.id for card in known]
    assert ids == sorted(set(ids))
    assert all(card.devices or card.function for card in known)
    for card in known:
        if card.devices:
            ill = [v for v in found.verdicts if v.device in card.devices and not v.usable]
            assert card.usable is (len(ill) < len(card.devices))


@given(nodes(), st.randoms(use_true_random=False))
def test_the_order_of_devices_and_functions_does_not_matter(found, random):
    verdicts, functions = list(found.verdicts), list(found.survey.functions)
    random.shuffle(verdicts)
    random.shuffle(functions)
    assert cards(replace(found.survey, functions=tuple(functions)), verdicts) == found.cards


def test_a_function_joins_the_devices_on_it():
    """A soft device on a card's interface is the same card, and one usable device is enough."""
    hard = device(0, WHERE, "eth0")
    soft = device(1, None, "eth0", seat=WHERE)
    (card,) = node(function(WHERE, "eth0"), devices=(hard, soft), ill={"mlx5_0"}).cards
    assert (card.id, card.name, card.usable) == ("0000:81:00.0", "mlx5_0+rxe1", True)
    (card,) = node(function(WHERE, "eth0"), devices=(hard, soft), ill={"mlx5_0", "rxe1"}).cards
    assert card.reasons == (DOWN,)


def test_a_sub_function_is_a_card_of_its_own():
    """The function that it lies on keeps its interfaces for itself."""
    sub = device(1, WHERE, auxiliary="mlx5_core.sf.4")
    whole, part = node(function(WHERE, "eth0"), devices=(device(0, WHERE), sub)).cards
    assert (whole.id, part.id) == ("0000:81:00.0", "mlx5_core.sf.4")
    assert part.function is None
    assert (part.pci, part.numa_node) == (WHERE.pci, 0)


def test_a_device_without_a_function_is_a_card_by_its_identity():
    (card,) = node(devices=(device(0, None, "veth0", identity="rxe0@veth0"),)).cards
    assert (card.id, card.seat, card.numa_node) == ("rxe0@veth0", None, None)


def test_two_long_names_stay_two_cards():
    """Soft devices may have names as long as the kubelet allows for a whole share."""
    names = ["r" * 62 + end for end in "ab"]
    found = [device(n, None, "eth0", identity=f"{name}@eth0") for n, name in enumerate(names)]
    ids = [card.id for card in node(devices=found).cards]
    assert len(set(ids)) == 2
    assert {len(name) for name in ids} == {54}


def test_a_bare_function_says_what_stands_against_it():
    """Its driver, its own link, and the link of the card that it is a part of."""
    above, part = physical_with_virtual(0x81, 1, "ens1f0")
    unplugged = replace(above, netdevs=(Netdev("ens1f0", "ether", True, False),))
    whole, virtual = node(unplugged, replace(part, driver=None)).cards
    cable = "ens1f0 has no carrier: check the cable and the switch port behind it"
    assert whole.reasons == (cable,)
    assert virtual.reasons == (
        "no driver is bound to it: load its module, dmesg may say why it did not bind",
        cable,
    )


@pytest.mark.parametrize(("up", "carrier"), [(True, True), (False, None), (False, False)])
def test_an_interface_that_nobody_has_set_up_is_no_fault(up, carrier):
    known = replace(function(WHERE), netdevs=(Netdev("eth0", "ether", up, carrier),))
    assert node(known).cards[0].usable


def test_the_default_route_is_found_on_the_card_that_carries_it():
    used = replace(function(WHERE), netdevs=(Netdev("eth0", "ether", True, True, True),))
    assert is_vital(node(used).cards[0])
    assert not is_vital(node(function(WHERE, "eth0")).cards[0])
    assert not is_vital(node(devices=(device(0, netdev="eth0"),)).cards[0])


def test_a_soft_device_of_a_pod_is_nobody_s_card():
    """One node shows the RDMA devices of all namespaces; those of pods are not to be given away."""
    assert [card.name for card in node(devices=(device(0, netdev="eth0"), device(1))).cards] == [
        "rxe0"
    ]


def test_reasons_of_two_devices_are_said_once():
    first, second = device(0, WHERE), device(1, WHERE)
    found = node(function(WHERE), devices=(first, second))
    verdicts = (Verdict(first, (DOWN, "a")), Verdict(second, (DOWN, "b")))
    assert cards(found.survey, verdicts)[0].reasons == (DOWN, "a", "b")
