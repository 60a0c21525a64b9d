"""A node is judged in one order, whoever asks and however much is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Use
from kube_rdma.model.device import Gid, GidType
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.pools.rules.absence import DEVICE_GONE
from kube_rdma.pools.rules.node_health import LEAVING, UNMANAGED, NodeFacts, evaluate, node_cards
from tests.kit.nodes import device, function, node, nodes, position, specs

SHARED = PoolSpec("rdma/shared", Mode.SHARED, "c:1")
ALONE = PoolSpec("rdma/alone", Mode.EXCLUSIVE, "c:2")
CARD = function(position(0x81), "ens1")
GID = Gid(1, "fe80:0000:0000:0000:bace:f6ff:fe0a:1c50", GidType.ROCE_V2, "ens1")
DEVICE = device(0, CARD.position, "ens1")
DEVICE = replace(DEVICE, ports=(replace(DEVICE.ports[0], gids=(GID,)),))
SURVEY = node(CARD, devices=(DEVICE,)).survey


def facts(survey=SURVEY, wishes=(SHARED,), **more):
    return NodeFacts(survey, node_cards(survey), wishes, **more)


def reasons(verdict):
    (card,) = verdict.assessment.cards
    return card.reasons


def test_a_good_card_is_offered():
    verdict = evaluate(facts())
    assert reasons(verdict) == ()
    assert verdict.pools[0].shares
    assert all(share.healthy for share in verdict.pools[0].shares)


def test_every_pass_adds_its_reason_behind_those_before_and_takes_the_card_from_its_pool():
    uverbs = SURVEY.devices[0].char_devices[0]
    (identity,) = (card.id for card in node_cards(SURVEY))
    verdict = evaluate(facts(missing={uverbs.path}, leaving={identity}))
    first, second = reasons(verdict)
    assert first.startswith(
        f"{uverbs.path.rpartition('/')[2]} is missing in /dev/infiniband: mknod"
    )
    assert second == LEAVING
    assert not any(share.healthy for share in verdict.pools[0].shares)


@pytest.mark.parametrize("driver", ["mlx5_core", None])
def test_why_the_device_of_a_card_is_gone_is_told_once(driver):
    survey = node(replace(CARD, driver=driver)).survey
    (card,) = node_cards(survey)
    told = reasons(evaluate(facts(survey, gone={card.id})))
    assert told == (card.reasons if driver is None else (DEVICE_GONE, *card.reasons))
    assert card.reasons or driver


@given(nodes(), specs(), st.data())
def test_more_knowledge_never_makes_a_card_better(scene, wishes, data):
    """What is missing or leaving only adds reasons; the cards and their order stay."""
    base = facts(scene.survey, wishes)
    paths = [char.path for one in scene.survey.devices for char in one.char_devices]
    missing = data.draw(st.sets(st.sampled_from(paths))) if paths else set()
    ids = [card.id for card in base.cards]
    leaving = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    worse = evaluate(replace(base, missing=missing, leaving=leaving))
    for before, after in zip(evaluate(base).cards, worse.cards, strict=True):
        assert before.id == after.id
        assert after.reasons[: len(before.reasons)] == before.reasons
        assert (after.id in leaving) == (LEAVING in after.reasons)


def test_a_card_that_the_node_uses_is_left_to_it_and_its_holder_keeps_it():
    netdev = replace(CARD.netdevs[0], use=Use(beyond=("10.0.0.0/8",)))
    survey = node(replace(CARD, netdevs=(netdev,)), devices=(DEVICE,)).survey
    verdict = evaluate(facts(survey, (ALONE,)))
    assert verdict.pools[0].cards == ()
    (sentence,) = verdict.spared
    assert sentence.startswith(
        "mlx5_0 is not a card of rdma/alone (c:2): the node's routes to 10.0"
    )
    (card,) = node_cards(survey)
    held = evaluate(facts(survey, (ALONE,), held={ALONE.resource: {card.id: ("default/a",)}}))
    assert (len(held.pools[0].cards), held.spared) == (1, ())
    assert evaluate(facts(survey, (SHARED,))).spared == ()


@given(st.lists(st.sampled_from(("10.9.0.1/24", "2001:db8::1/64", "10.8.0.1/16")), unique=True))
def test_an_address_that_ends_by_itself_is_told_of_a_free_card_that_would_move(dynamic):
    """A pool whose cards stay with the node, and a card in a pod, are nobody's trouble."""
    use = Use(addresses=("10.1.0.1/24", *dynamic), dynamic=tuple(dynamic))
    netdev = replace(CARD.netdevs[0], use=use)
    survey = node(replace(CARD, netdevs=(netdev,)), devices=(DEVICE,)).survey
    verdict = evaluate(facts(survey, (ALONE,)))
    assert len(verdict.pools[0].cards) == 1
    assert bool(verdict.dynamic) == bool(dynamic)
    if dynamic:
        (sentence,) = verdict.dynamic
        assert sentence.startswith(f"ens1 of rdma/alone has {dynamic[0]} by DHCP or SLAAC")
        assert sentence.endswith(UNMANAGED)
    (card,) = node_cards(survey)
    held = {ALONE.resource: {card.id: ("default/a",)}}
    assert evaluate(facts(survey, (ALONE,), held=held)).dynamic == ()
    assert evaluate(facts(survey, (SHARED,))).dynamic == ()


def test_the_file_that_keeps_others_away_is_there():
    """The sentence names it as it stands in the repository."""
    assert (Path(__file__).parents[4] / UNMANAGED).is_file()
