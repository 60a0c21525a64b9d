"""A card whose interface left without a pod of kube-rdma is unhealthy, and no other one is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import TakeLink
from kube_rdma.model.card import USER_SPACE, CardId
from kube_rdma.model.device import Gid, GidType, LinkLayer, PlannedHostLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules import absence
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from tests.kit.nodes import device, function, node, physical_with_virtual, position

WHOLE = function(position(0x81), "ens1")
ABOVE, PART = physical_with_virtual(0x82, 1)
GID = Gid(1, "fe80:0000:0000:0000:bace:f6ff:fe0a:1c50", GidType.ROCE_V2, None)
BOTH = (NamespaceMode.SHARED, NamespaceMode.EXCLUSIVE)


def rdma(where, netdev=None, layer=LinkLayer.ETHERNET, **facts):
    found = device(0, where.position, netdev, **facts)
    return replace(found, ports=(replace(found.ports[0], link_layer=layer, gids=(GID,)),))


def survey(*functions, devices=(), mode=NamespaceMode.SHARED):
    return replace(node(*functions, devices=devices).survey, namespace_mode=mode)


def away(of, *beside, devices=()):
    cards = {card.id: card for card in node_cards(survey(of, *beside, devices=devices))}
    return absence.is_away(cards[of.position.pci])


def gone(of, **facts):
    return replace(of, netdevs=(), **facts)


@pytest.mark.parametrize("card", [WHOLE, PART], ids=["card", "function"])
def test_a_card_is_away_when_its_interface_is(card):
    """Its RDMA device stays where every namespace sees all, and goes along where it moves."""
    assert not away(card, ABOVE, devices=(rdma(card, card.netdevs[0].name),))
    assert away(gone(card), ABOVE, devices=(rdma(card),))
    assert away(gone(card), ABOVE)


@pytest.mark.parametrize("driver", [None, "mlx5_vfio_pci", *sorted(USER_SPACE)])
def test_a_function_that_no_network_driver_has_is_judged_by_other_rules(driver):
    assert not away(gone(PART, driver=driver), ABOVE)


@pytest.mark.parametrize("layer", [LinkLayer.INFINIBAND, LinkLayer.UNKNOWN])
def test_what_needs_no_interface_is_never_away(layer):
    assert not away(gone(WHOLE), devices=(rdma(WHOLE, layer=layer),))


def test_a_port_may_have_the_interface_of_another_function():
    assert not away(gone(WHOLE), devices=(rdma(WHOLE, "eth7"),))


def test_a_sub_function_is_away_when_its_port_has_no_interface():
    name = "mlx5_core.sf.4"
    for netdev, is_gone in (("ens1s4", False), (None, True)):
        sub = rdma(WHOLE, netdev, auxiliary=name, identity=name)
        (card,) = (c for c in node_cards(survey(WHOLE, devices=(sub,))) if c.id == name)
        assert absence.is_away(card) is is_gone


def test_a_tree_without_facts_of_functions_says_nothing():
    (card,) = node_cards(survey(devices=(rdma(WHOLE),)))
    assert not absence.is_away(card)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("namespaces", BOTH)
@pytest.mark.parametrize("visible", [True, False])
def test_in_every_mode_a_moved_card_is_unhealthy_and_back_it_is_good(mode, namespaces, visible):
    card, beside = (PART, (ABOVE,)) if mode is Mode.SRIOV else (WHOLE, ())
    spec = PoolSpec("rdma/a", mode, "c:1", host_network=True)
    here = survey(card, *beside, devices=(rdma(card, card.netdevs[0].name),), mode=namespaces)
    left = survey(gone(card), *beside, devices=(rdma(card),) if visible else (), mode=namespaces)
    before = evaluate(NodeFacts(here, node_cards(here), (spec,)))
    name = card.position.pci
    facts = NodeFacts(left, node_cards(left), (spec,), gone={name}, stays={spec.resource: {name}})
    moved = evaluate(facts)
    assert [one.healthy for one in before.pools[0].shares]
    assert all(one.healthy for one in before.pools[0].shares)
    assert [one.id for one in moved.pools[0].shares] == [one.id for one in before.pools[0].shares]
    assert not any(one.healthy for one in moved.pools[0].shares)
    assert moved.pools[0].cards[0].reasons[0] == absence.MOVED
    later = evaluate(NodeFacts(here, node_cards(here), (spec,)), moved.assessment.health, 10.0)
    again = evaluate(NodeFacts(here, node_cards(here), (spec,)), later.assessment.health, 20.0)
    assert all(one.healthy for one in again.pools[0].shares)


OUT = node_cards(survey(gone(WHOLE)))
NAME = CardId(WHOLE.position.pci)


def look(before, now, explained=frozenset()):
    return absence.absent(before, OUT, explained, now)


def test_after_a_pod_of_kube_rdma_its_last_plugin_has_time_to_give_the_interface_back():
    held = look(absence.Absences(), 0.0, {NAME})
    assert (held.moved, held.again) == (frozenset(), None)
    ended = look(held, 1000.0)
    assert (ended.moved, ended.again) == (frozenset(), absence.ENDING)
    assert look(look(held, 500.0, None), 1000.0) == ended
    assert look(ended, 1000.0 + absence.ENDING).moved == {NAME}


def test_a_doubt_after_a_pod_s_end_shortens_no_time_to_give_back():
    ended = look(look(absence.Absences(), 0.0, {NAME}), 0.0)
    again = look(look(ended, 1.0, None), 2.0)
    assert look(again, 2.0 + absence.CONFIRM).moved == frozenset()
    assert look(again, 2.0 + absence.ENDING).moved == {NAME}


def test_while_nobody_can_say_who_has_a_card_nothing_new_is_said():
    assert look(absence.Absences(), 0.0, None) == absence.Absences(
        frozenset({NAME}), again=absence.ASK
    )
    known = look(look(absence.Absences(), 0.0), absence.CONFIRM)
    assert look(known, 50.0, None).moved == {NAME}
    assert look(look(look(absence.Absences(), 0.0), 50.0, None), 60.0).moved == frozenset()


IDS = [CardId(f"0000:{bus:02x}:00.0") for bus in (1, 2, 3)]
LOOKS = st.lists(
    st.tuples(
        st.floats(0.0, 2 * absence.ENDING),  # seconds since the look before
        st.fixed_dictionaries(dict.fromkeys(IDS, st.sampled_from(["here", "ours", "away"]))),
        st.booleans(),  # whether anybody can say who has a card
    ),
    max_size=12,
)


@given(LOOKS)
def test_only_what_is_away_without_a_record_for_long_enough_is_called_moved(looks):
    """And that in every case; no card that a pod has or is getting, whatever came before."""
    state, now = absence.Absences(), 0.0
    strange = {}  # since which look a card is away, known to be nobody's, and how long that takes
    patience = dict.fromkeys(IDS, absence.CONFIRM)
    for seconds, where, known in looks:
        now += seconds
        functions = [
            function(position(bus), *(["eth"] if where[name] == "here" else []))
            for bus, name in zip((1, 2, 3), IDS, strict=True)
        ]
        explained = {name for name in IDS if where[name] == "ours"} if known else None
        before, state = state, absence.absent(state, node_cards(survey(*functions)), explained, now)
        for name in IDS:
            if where[name] == "here" or (known and where[name] == "ours"):
                strange.pop(name, None)
                patience[name] = absence.CONFIRM if where[name] == "here" else absence.ENDING
                assert name not in state.moved
            elif not known:
                assert (name in state.moved) == (name in before.moved)
                if name not in before.moved:
                    strange.pop(name, None)
            else:
                strange.setdefault(name, now + patience[name])
                assert (name in state.moved) == (strange[name] <= now)
                assert name in state.moved or state.again <= strange[name] - now


def test_a_record_of_an_attachment_has_the_cards_of_its_plans_and_of_the_links_that_move():
    link = PlannedHostLink(7, "ens2")
    take = TakeLink(link, InterfaceName("net1"), IDS[1], 1500, "02:00:00:00:00:01", True)
    sandbox = Sandbox(ContainerId("c"), PodName("default", "a"), "u", "/run/netns/a", 1)
    given_card = Plan(InterfaceName("net0"), "default/n", IDS[0], ())
    taken = Plan(InterfaceName("net1"), "default/n", None, (take, replace(take, pci=None)))
    assert set(absence.attached_cards([Attachment(sandbox, (given_card, taken))])) == {
        IDS[0],
        IDS[1],
    }
    assert set(absence.attached_cards([Attachment(sandbox, ())])) == set()
