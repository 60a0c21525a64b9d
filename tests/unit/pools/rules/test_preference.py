"""Which free shares a container should get: the kubelet's rules, then the policy of the pool."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model.holdings import FreeGpu
from kube_rdma.model.pools import Bind, Mode, PoolSpec, Preference
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.preference import prefer
from tests.kit.nodes import (
    DOWN,
    device,
    hard_card,
    node,
    nodes,
    physical_with_virtual,
    position,
    specs,
)
from tests.kit.refusals import refusal

SURVEY = node().survey
MULTI = PoolSpec("rdma/multi", Mode.SHARED_MULTI, "c:1", shares=4)
NODE_0, NODE_1 = FreeGpu((0,)), FreeGpu((1,))


def pool_of(cards, **said):
    ((pool,), _) = resolve([replace(MULTI, **said)], cards, SURVEY)
    return pool


def rails(count, numa=lambda n: n // 2):
    """So many physical cards, two on each NUMA node, called A, B, C… below."""
    return [hard_card(0x81 + n, n, numa=numa(n)) for n in range(count)]


def chosen(pool, taken, size, must=(), gpus=()):
    names = {card.id: letter for card, letter in zip(pool.cards, "ABCDEFGH", strict=False)}
    by_card = {}
    for share in pool.shares:
        by_card.setdefault(names[share.card], []).append(share.id)
    gone = {name for letter, n in taken.items() for name in by_card[letter][:n]}
    have = [by_card[letter][-1] for letter in must]
    free = [share.id for share in pool.shares if share.id not in gone]
    card_of = {share.id: names[share.card] for share in pool.shares}
    return "".join(sorted(card_of[name] for name in prefer(pool, free, have, size, gpus)))


@st.composite
def questions(draw):
    """What a kubelet may ask, sane or not; and what it may know less of than we do."""
    found = draw(nodes())
    pool = draw(st.sampled_from(resolve(draw(specs()), found.cards, found.survey)[0]))
    pool = replace(pool, shares=pool.shares[:40])
    ids = [share.id for share in pool.shares]
    some = st.lists(st.sampled_from([*ids, "strange"]), unique=True)
    available = tuple(draw(some))
    must = tuple(draw(st.lists(st.sampled_from([*available, "other"]), max_size=2)))
    gpus = draw(
        st.lists(st.sampled_from([NODE_0, NODE_1, FreeGpu((), position(0x30))]), max_size=3)
    )
    return pool, available, must, draw(st.integers(0, len(ids) + 1)), gpus


@given(questions())
def test_an_answer_is_complete_or_a_refusal(question):
    """A subset of the available shares with all that must be in it, exactly as many as asked."""
    pool, available, must, size, gpus = question
    healthy = {share.id for share in pool.shares if share.healthy}
    can = set(must) | (healthy & set(available))
    sane = set(must) <= set(available) and len(set(must)) <= size <= len(can)
    if not sane:
        assert str(refusal(prefer, *question)).startswith(f"{pool.spec.resource}: ")
        return
    answer = prefer(*question)
    assert len(answer) == len(set(answer)) == size
    assert set(must) <= set(answer) <= can
    assert (
        prefer(pool, available[::-1], must[::-1], size, gpus[::-1])[len(set(must)) :]
        == (answer[len(set(must)) :])
    ), "the kubelet hands over sets, their order means nothing"


@given(questions())
def test_distinct_cards_come_before_a_second_share(question):
    """Whatever the policy but PACK says: a job that asks for four wants four rails."""
    pool, available, must, size, gpus = question
    ids = {s.id: s for s in pool.shares}
    if terms(pool.spec).prefer is Preference.PACK or terms(pool.spec).bind is Bind.POOL:
        return
    try:
        answer = prefer(pool, available, must, size, gpus)
    except Refused:
        return
    cards = {card.id: card for card in pool.cards}

    def rail(name):
        place = cards[ids[name].card].position
        return (place.physical_function or place.pci) if place else ids[name].card

    free = [name for name in available if name in ids and ids[name].healthy]
    known = [name for name in answer if name in ids]
    begun = {rail(name) for name in must if name in ids}
    new = begun | {rail(name) for name in free}
    strange = len(answer) - len(known)
    spare = size - strange - len({name for name in must if name in ids})
    assert len({rail(name) for name in known}) == min(len(begun) + spare, len(new))


@pytest.mark.parametrize(
    ("policy", "taken", "size", "expected"),
    [
        (Preference.PACK, {}, 3, "AAA"),
        (Preference.PACK, {"C": 1}, 3, "CCC"),
        (Preference.PACK, {"C": 1}, 4, "ACCC"),
        (Preference.PACK, {"B": 3, "C": 2}, 4, "ABCC"),
        (Preference.PACK, {"A": 4, "B": 4}, 1, "C"),
        (Preference.SPREAD, {}, 3, "ABC"),
        (Preference.SPREAD, {"A": 1, "B": 1}, 2, "CD"),
        (Preference.SPREAD, {"A": 3}, 5, "ABBCD"),
        (Preference.LEAST_LOADED, {"A": 2, "B": 1}, 1, "C"),
        (Preference.LEAST_LOADED, {"A": 2, "C": 1, "D": 3}, 3, "ABC"),
        (Preference.LEAST_LOADED, {"A": 3, "B": 2, "C": 2}, 6, "ABCDDD"),
        (Preference.SPREAD, {"A": 3, "B": 2, "C": 2}, 6, "ABBCDD"),
    ],
)
def test_policies(policy, taken, size, expected):
    assert chosen(pool_of(rails(4), prefer=policy), taken, size) == expected


@pytest.mark.parametrize("policy", [p for p in Preference if p is not Preference.PACK])
def test_what_the_container_has_already_counts_as_its_card(policy):
    assert chosen(pool_of(rails(2), prefer=policy), {"B": 3}, 2, must="A") == "AB"


@pytest.mark.parametrize(
    ("taken", "size", "gpus", "expected"),
    [
        ({}, 2, [NODE_1, NODE_1], "CD"),
        ({}, 3, [NODE_1], "ACD"),
        ({"C": 1}, 1, [NODE_1], "D"),
        ({"C": 4, "D": 4}, 1, [NODE_1], "A"),
        ({"A": 1}, 1, [NODE_0, NODE_1], "B"),
        ({"A": 1, "B": 1}, 2, [NODE_0, NODE_1, NODE_1], "CD"),
        ({"A": 1, "B": 1}, 2, [], "CD"),
        ({}, 1, [FreeGpu((0, 1))], "A"),
        ({}, 1, [NODE_0, NODE_1, NODE_1], "C"),
    ],
)
def test_cards_beside_free_gpus(taken, size, gpus, expected):
    assert chosen(pool_of(rails(4), prefer=Preference.NUMA), taken, size, gpus=gpus) == expected


def test_the_same_switch_goes_before_the_same_node():
    cards = rails(2, numa=lambda _: 0)
    beside = replace(position(0x99), path=(cards[1].position.path[0], position(0x99).pci))
    pool = pool_of(cards, prefer=Preference.NUMA)
    assert chosen(pool, {"B": 3}, 1, gpus=[FreeGpu((0,), beside)]) == "B"
    assert chosen(pool, {"B": 3}, 1, gpus=[FreeGpu((0,))]) == "A"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Preference.PACK, ["0000:81:00.2", "0000:81:00.3"]),
        (Preference.SPREAD, ["0000:a1:00.1", "0000:81:00.2"]),
        (Preference.LEAST_LOADED, ["0000:a1:00.1", "0000:81:00.2"]),
        (Preference.NUMA, ["0000:a1:00.1", "0000:81:00.2"]),
    ],
)
def test_virtual_functions_of_one_card_are_one_rail(policy, expected):
    """One of the first card is in use: the next come from it, or from the other card first."""
    parts = physical_with_virtual(0x81, 3) + physical_with_virtual(0xA1, 3, "ens2f0")
    spec = PoolSpec("rdma/vf", Mode.SRIOV, "c:1", prefer=policy)
    found = node(*parts)
    ((pool,), _) = resolve([spec], found.cards, found.survey)
    free = [share.id for share in pool.shares[1:]]
    assert list(prefer(pool, free, [], 2)) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Preference.PACK, ["0000:81:00.2-1", "0000:81:00.1-0"]),
        (Preference.LEAST_LOADED, ["0000:81:00.1-0", "0000:81:00.3-0"]),
    ],
)
def test_functions_with_several_shares_fill_or_take_turns(policy, expected):
    found = node(*physical_with_virtual(0x81, 3))
    devices = [device(n, f.position) for n, f in enumerate(found.survey.functions) if n]
    found = node(*found.survey.functions, devices=devices)
    spec = PoolSpec("rdma/a", Mode.HCA, "c:1", bind=Bind.PER_CARD, shares=2, prefer=policy)
    ((pool,), _) = resolve([spec], found.cards, found.survey)
    free = [share.id for share in pool.shares if share.id != "0000:81:00.2-0"]
    assert list(prefer(pool, free, [], 2)) == expected


def test_shares_of_a_whole_pool_come_in_order():
    pool = pool_of(rails(2), mode=Mode.HCA, shares=5)
    assert prefer(pool, ["hca-4", "hca-3", "hca-1"], [], 2) == ("hca-1", "hca-3")


def test_a_card_that_has_fallen_ill_meanwhile_is_left_out():
    cards = rails(2)
    cards[0] = replace(cards[0], reasons=(DOWN,))
    pool = pool_of(cards, shares=2)
    free = [share.id for share in pool.shares]
    assert prefer(pool, free, [], 2) == ("0000:82:00.0-0", "0000:82:00.0-1")
    assert prefer(pool, free, ["0000:81:00.0-1"], 2) == ("0000:81:00.0-1", "0000:82:00.0-0")


A0, A1 = "0000:81:00.0-0", "0000:81:00.0-1"


@pytest.mark.parametrize(
    ("available", "must", "size", "sentence"),
    [
        ([A0], [A1], 1, "0000:81:00.0-1 must be given but is not among the 1 available. Name it"),
        ([A0, A1], [A0, A1], 1, "2 shares must be given but only 1 are asked for. Ask for at"),
        ([A0], [], 2, "2 shares are asked for and 1 are available. Ask for at most 1."),
        ([], [], 1, "1 shares are asked for and 0 are available. Wait until a pod ends."),
        ([A0, "b"], [], 2, "2 shares are asked for, but of the available ones too few are healthy"),
    ],
)
def test_impossible_demands_are_refused_in_a_sentence(available, must, size, sentence):
    caught = refusal(prefer, pool_of(rails(1)), available, must, size)
    assert str(caught).startswith(f"rdma/multi: {sentence}")


def test_a_thousand_shares_of_eight_cards_are_evenly_loaded():
    """The largest pool there is, asked for more than a person would."""
    pool = pool_of(rails(8), shares=1000)
    answer = prefer(pool, [share.id for share in pool.shares], [], 4000)
    assert set(Counter(name.rpartition("-")[0] for name in answer).values()) == {500}
