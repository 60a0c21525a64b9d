"""What a ring with one retry for each suspect names: what is bad, and nothing else."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube_rdma.model.verify import Pairing, PairStandard, SuspectKind
from kube_rdma.verify.rules.pairs import retries, turns_of
from kube_rdma.verify.rules.pods import with_rails
from kube_rdma.verify.rules.suspects import rate, suspects
from tests.kit.rails import LINE, device, outcome, pod, pods, rated

CARD, NODE, RAIL, PAIR = SuspectKind
FIGURES = st.sampled_from([195.0, None])


def named(among, is_bad, pairing=Pairing.RING, figure=195.0):
    return suspects(rated(among, is_bad, pairing, figure))


def cards(suspected):
    return {(each.node, each.device) for each in suspected if each.kind is CARD}


def one_of(bad):
    return lambda title, name: (title, name) in bad


@st.composite
def bad_cards(draw):
    """Cards of different nodes; on each rail at most half, and two neighbours that are well."""
    count, rails = draw(st.integers(4, 14)), draw(st.integers(1, 4))
    numbers = draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=5))
    bad = {(number, draw(st.integers(0, rails - 1))) for number in numbers}
    for rail in range(rails):
        well = [(number, rail) not in bad for number in range(count)]
        assume(sum(well) * 2 >= count)
        assume(any(well[place] and well[place - 1] for place in range(count)))
    return count, rails, {(f"node-{number}", device(rail)) for number, rail in bad}


@given(bad_cards(), FIGURES)
def test_bad_cards_are_named_and_no_other(cluster, figure):
    """Beside each other, around a good one, several on one rail."""
    count, rails, bad = cluster
    # With one rail a card is all that its node has.
    suspected = named(pods(count, rails), one_of(bad), figure=figure)
    assert cards(suspected) == bad
    assert {each.kind for each in suspected} == {CARD}


def test_a_card_that_many_bad_ones_are_measured_with_again_does_not_make_its_node_bad():
    """On rail 1 only node-1 and node-2 are well in the ring; on rail 0 node-2 has a bad card."""
    bad = {("node-2", device(0)), *((f"node-{number}", device(1)) for number in (0, 3, 5, 7))}
    suspected = named(pods(9, 2), one_of(bad))
    assert cards(suspected) == bad
    assert {each.kind for each in suspected} == {CARD}


@given(st.integers(3, 14), st.integers(2, 8), st.data(), FIGURES)
def test_a_bad_node_is_named(count, rails, data, figure):
    node = f"node-{data.draw(st.integers(0, count - 1))}"
    (suspect,) = named(pods(count, rails), lambda title, _: title == node, figure=figure)
    assert (suspect.kind, suspect.node) == (NODE, node)
    assert suspect.pairs == suspect.of


@given(st.integers(3, 14), st.integers(2, 8), st.data(), FIGURES)
def test_a_bad_rail_is_named(count, rails, data, figure):
    rail = data.draw(st.integers(0, rails - 1))
    bad = device(rail)
    (suspect,) = named(pods(count, rails), lambda _, name: name == bad, figure=figure)
    assert (suspect.kind, suspect.rail, suspect.device) == (RAIL, rail, bad)


@given(st.lists(st.integers(1, 8), min_size=3, max_size=12), st.data())
def test_nodes_with_unlike_numbers_of_rails(counts, data):
    """The bad card is on a rail that three nodes have."""
    among = with_rails([pod(f"node-{n}", range(rails)) for n, rails in enumerate(counts)])
    shared = sorted(counts)[-3]
    place = data.draw(st.sampled_from([n for n, rails in enumerate(counts) if rails >= shared]))
    bad = f"node-{place}", device(data.draw(st.integers(0, shared - 1)))
    assume(len(among[place].devices) > 1)
    assert cards(named(among, one_of({bad}))) == {bad}


def test_a_card_between_two_bad_ones_is_not_named():
    bad = {("node-3", "mlx5_0"), ("node-5", "mlx5_0")}
    assert cards(named(pods(10, 2), one_of(bad))) == bad


@pytest.mark.parametrize("bad", [(0, 1), (0, 1, 2), (2, 3, 4, 5, 6), (63, 0), (10, 11, 12)])
def test_neighbours_that_are_bad_are_each_named(bad):
    """The one in the middle has bad neighbours alone, and a measurement with a good card."""
    wanted = {(f"node-{number}", "mlx5_3") for number in bad}
    suspected = named(pods(64, 8), one_of(wanted))
    assert cards(suspected) == wanted
    assert {each.kind for each in suspected} == {CARD}


def test_where_every_second_of_four_is_bad_the_others_are_measured_with_each_other():
    """All pairs of the ring are bad: no card of the rail is well with anybody."""
    bad = {("node-0", "mlx5_1"), ("node-2", "mlx5_1")}
    assert cards(named(pods(4, 2), one_of(bad))) == bad


def test_a_bad_link_is_a_pair():
    """Both ends are well with their other neighbours."""
    among = pods(8, 2)
    first = [
        outcome(near, far, rail, 100.0 if (near.title, rail) == ("node-3", 1) else LINE)
        for turn in turns_of(Pairing.RING, among)
        for near, far, rail in turn
    ]
    every = rate(first, PairStandard())
    assert retries(every, among) == []
    (suspect,) = suspects(every)
    assert (suspect.kind, suspect.node, suspect.peer) == (PAIR, "node-3", "node-4")


@given(st.integers(4, 12), st.integers(2, 4), st.data())
def test_a_star_names_its_centre_and_its_ends(count, rails, data):
    bad = f"node-{data.draw(st.integers(0, count - 1))}", device(rails - 1)
    assert cards(named(pods(count, rails), one_of({bad}), Pairing.STAR)) == {bad}


@given(bad_cards())
def test_a_suspect_has_one_retry_against_a_good_card_that_it_has_not_met(cluster):
    count, rails, bad = cluster
    among = pods(count, rails)
    first = [
        outcome(near, far, rail, 100.0 if bad & ends(near, far, rail) else LINE)
        for turn in turns_of(Pairing.RING, among)
        for near, far, rail in turn
    ]
    every = rate(first, PairStandard())
    met = {(frozenset((each.client, each.server)), each.rail) for each in first}
    plan = retries(every, among)
    tried = []
    for turn in plan:
        busy = [end for near, far, rail in turn for end in ends(near, far, rail)]
        assert len(busy) == len(set(busy))
        for near, far, rail in turn:
            assert (frozenset((near.title, far.title)), rail) not in met
            assert (far.title, device(rail)) not in bad
            tried.append((near.title, device(rail)))
    assert len(tried) == len(set(tried))
    assert bad <= set(tried) or count < 4


def ends(near, far, rail):
    return {(near.title, device(rail)), (far.title, device(rail))}


def test_where_all_are_bad_nobody_is_named():
    assert named(pods(6, 3), lambda *_: True) == ()
