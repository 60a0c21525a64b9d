"""Everybody meets everybody, nobody two at once, in as few rounds as there can be."""

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.verify import BandwidthHistory, PairedPod, Pairing, PodDevice
from kube_rdma.verify.rules.pairs import (
    AGAIN,
    apart,
    due,
    measurements,
    planned,
    rounds,
    turns,
    turns_of,
)
from tests.kit.rails import pod, pods

PODS = st.integers(0, 33).map(lambda count: [f"pod-{n}" for n in range(count)])


@given(PODS)
def test_every_two_meet_once(pods):
    met = Counter(frozenset(pair) for pairs in rounds(pods) for pair in pairs)
    assert met == Counter(map(frozenset, combinations(pods, 2)))


@given(PODS)
def test_nobody_is_in_two_pairs_at_once(pods):
    for pairs in rounds(pods):
        busy = [pod for pair in pairs for pod in pair]
        assert len(busy) == len(set(busy))


@given(PODS)
def test_there_are_as_few_rounds_as_there_can_be(pods):
    count = len(pods)
    least = 0 if count < 2 else count - 1 if count % 2 == 0 else count
    assert len([pairs for pairs in rounds(pods) if pairs]) == least


@given(PODS)
def test_both_ways_is_each_pair_and_its_reverse(pods):
    there = {pair for pairs in rounds(pods) for pair in pairs}
    both = [pair for pairs in rounds(pods, both_ways=True) for pair in pairs]
    assert set(both) == there | {(server, client) for client, server in there}
    assert len(both) == 2 * len(there)


@given(st.lists(st.integers(0, 4), max_size=9), st.booleans())
def test_turns_measure_each_two_once_on_each_rail_that_they_share(rails, both_ways):
    """No pod is in two pairs of a turn, and the number of all is known before."""
    pods = [
        PairedPod(str(n), "ns", str(n), "", tuple(PodDevice(f"d{r}") for r in range(count)))
        for n, count in enumerate(rails)
    ]
    plan = list(turns(pods, both_ways=both_ways))
    for turn in plan:
        ends = [pod.title for near, far, _ in turn for pod in (near, far)]
        assert len(ends) == len(set(ends))
        assert len({rail for _, _, rail in turn}) == 1
    met = [(near.title, far.title, rail) for turn in plan for near, far, rail in turn]
    assert len(met) == len(set(met)) == measurements(pods, both_ways=both_ways)
    undirected = {(frozenset((near, far)), rail) for near, far, rail in met}
    assert len(undirected) == measurements(pods)


# A ring measures each card with two neighbours in two or three rounds; a star tries the first.

RING, STAR = Pairing.RING, Pairing.STAR
RAILS = st.sets(st.integers(0, 7), max_size=8)
CLUSTERS = st.lists(RAILS, max_size=17).map(
    lambda many: [pod(f"n{place}", sorted(rails)) for place, rails in enumerate(many)]
)


def by_number(clusters):
    """The same pods, whose devices have the numbers of their rails."""
    return [
        PairedPod(each.title, "ns", each.name, "", each.devices, rails_of(each))
        for each in clusters
    ]


def rails_of(each):
    return tuple(int(device.name.removeprefix("mlx5_")) for device in each.devices)


def ends(turn):
    return [(each.title, rail) for near, far, rail in turn for each in (near, far)]


@given(CLUSTERS.map(by_number), st.booleans())
def test_each_card_meets_its_two_neighbours(among, both_ways):
    """Two different ones; where a rail has two cards only the other, alone nobody."""
    met = defaultdict(list)
    for turn in turns_of(RING, among, both_ways=both_ways):
        for near, far, rail in turn:
            met[near.title, rail].append(far.title)
            met[far.title, rail].append(near.title)
    members = Counter(rail for each in among for rail in each.by_rail)
    for each in among:
        for rail in each.by_rail:
            neighbours = min(2, members[rail] - 1)
            assert len(set(met[each.title, rail])) == neighbours
            assert len(met[each.title, rail]) == neighbours * (1 + both_ways)
            assert each.title not in met[each.title, rail]


@given(CLUSTERS.map(by_number), st.sampled_from(Pairing), st.booleans())
def test_no_card_is_in_two_measurements_at_one_time(among, pairing, both_ways):
    for turn in turns_of(pairing, among, both_ways=both_ways):
        assert max(Counter(ends(turn)).values()) == 1


@given(CLUSTERS.map(by_number))
def test_a_ring_has_two_rounds_and_three_where_a_rail_is_odd(among):
    counts = Counter(rail for each in among for rail in each.by_rail).values()
    rings = [count for count in counts if count > 2]
    rounds = len(turns_of(RING, among))
    if rings:
        assert rounds == (3 if any(count % 2 for count in rings) else 2)
    else:
        assert rounds == int(2 in counts)


@given(st.integers(3, 40), st.integers(1, 8))
def test_all_rails_are_measured_at_once(count, rails):
    plan = turns_of(RING, pods(count, rails))
    assert len(plan) == 2 + count % 2
    assert sum(map(len, plan)) == count * rails
    for turn in plan:
        assert {rail for _, _, rail in turn} == set(range(rails))


@given(CLUSTERS.map(by_number))
def test_a_star_measures_the_first_with_each_other_one(among):
    met = [(far.title, rail) for turn in turns_of(STAR, among) for _, far, rail in turn]
    centre, others = among[:1], among[1:]
    wanted = {
        (other.title, rail)
        for other in others
        for first in centre
        for rail in first.by_rail.keys() & other.by_rail.keys()
    }
    assert sorted(met) == sorted(wanted)
    assert all(near is among[0] for turn in turns_of(STAR, among) for near, _, _ in turn)


@given(CLUSTERS.map(by_number), st.sampled_from(Pairing), st.booleans())
def test_the_number_of_measurements_is_known_before(among, pairing, both_ways):
    turns = turns_of(pairing, among, both_ways=both_ways)
    assert planned(pairing, among, both_ways=both_ways) == sum(map(len, turns))


@given(st.integers(4, 12), st.data())
def test_a_node_that_is_away_changes_only_the_pairs_beside_it(count, data):
    """So the others are compared with their figures of before."""
    among = pods(count, 2)
    away = data.draw(st.sampled_from(among))

    def keys(those):
        pairs = (pair for turn in turns_of(RING, those) for pair in turn)
        return {(near.title, far.title, rail) for near, far, rail in pairs}

    rest = keys([each for each in among if each is not away])
    kept = {key for key in keys(among) if away.title not in key}
    assert kept <= rest
    assert len(rest - kept) <= 2


def test_two_networks_on_one_card_are_not_measured_at_once():
    """A pod may have the same device on two rails."""
    twice = tuple(PodDevice("mlx5_0") for _ in range(2))
    among = [PairedPod(name, "ns", name, "", twice) for name in "abcd"]
    plan = turns_of(RING, among)
    assert len(plan) == 4
    for turn in plan:
        assert max(Counter(title for title, _ in ends(turn)).values()) == 1
    assert sum(map(len, plan)) == 8
    assert apart([]) == []


# When a BandwidthCheck is done: at once if changed, again if hindered, else by its own clock.

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SPANS = st.timedeltas(timedelta(0), timedelta(days=3))


@st.composite
def histories(draw, ends=(True, False)):
    began = NOW - draw(SPANS)
    span = min(draw(SPANS), NOW - began)
    outcome = draw(st.sampled_from(["measured", "hindered", "refused"]))
    return BandwidthHistory(
        draw(st.integers(1, 3)),
        began,
        began + span if draw(st.sampled_from(ends)) else None,
        hindered=outcome == "hindered",
        refused=outcome == "refused",
    )


@given(st.integers(1, 3), st.none() | st.integers(60, 10**6), histories() | st.none())
def test_what_nobody_has_done_to_its_end_is_due_now(generation, every, history):
    at = due(generation, every, history, NOW)
    if history is None or history.generation != generation or history.ended is None:
        assert at == NOW
    elif history.refused or (not history.hindered and every is None):
        assert at is None
    else:
        assert at is not None
        assert at >= history.ended


@given(st.integers(60, 10**6), histories(ends=(True,)))
def test_runs_keep_the_time_between_their_begins(every, history):
    at = due(history.generation, every, history, NOW)
    planned = max(history.ended, history.began + timedelta(seconds=every))
    if history.refused:
        assert at is None
    elif history.hindered:
        assert at == min(planned, history.ended + AGAIN)
    else:
        assert at == planned
