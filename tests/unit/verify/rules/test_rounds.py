"""Everybody meets everybody, nobody two at once, in as few rounds as there can be."""

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.verify import PairedPod, PodDevice
from kube_rdma.verify.rules.pairs import measurements, rounds, turns

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
