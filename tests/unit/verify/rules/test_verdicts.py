"""A slow link is named as a link, a slow pod as a pod; who is well is not named."""

from itertools import combinations
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.verify import PairOutcome, PairStandard, PerftestRow, Rating, SuspectKind
from kube_rdma.verify.rules.suspects import comparison, key, rate, suspects
from tests.kit import rails as kit

LINE = 100.0
WELL, SLOW = st.floats(95, 99), st.floats(0.1, 60)


# A pod has the same card as client and as server; two names would be two cards, of which a pod's
# second one has the pairs with its predecessors alone.
CARDS = ("mlx5_0", "mlx5_0")


def outcome(pair, figure, rail=0, line=LINE):
    return PairOutcome(*pair, rail, CARDS, line, (PerftestRow(65536, 5000, figure),))


def failed(pair, why="no answer"):
    return PairOutcome(*pair, 0, CARDS, LINE, (), why)


def bad(rated):
    return {key(pair.outcome) for pair in rated if pair.rating is not Rating.WELL}


@st.composite
def clusters(draw):
    """Pairs of all pods, of which few are slow altogether, and few links between the others."""
    pods = [f"default/pod-{n}" for n in range(draw(st.integers(8, 14)))]
    slow = set(draw(st.lists(st.sampled_from(pods), max_size=1)))
    pairs = list(combinations(pods, 2))
    others = [pair for pair in pairs if not slow & set(pair)]
    links = set(draw(st.lists(st.sampled_from(others), max_size=2)))
    outcomes = [
        outcome(pair, draw(SLOW if slow & set(pair) or pair in links else WELL)) for pair in pairs
    ]
    return slow, links, outcomes


@given(clusters(), st.booleans())
def test_slow_pods_and_links_are_found_and_told_apart(cluster, has_line):
    """With a line rate and without one: then the others say what is usual."""
    slow, links, outcomes = cluster
    if not has_line:
        outcomes = [
            PairOutcome(o.client, o.server, o.rail, o.devices, None, o.rows) for o in outcomes
        ]
    rated = rate(outcomes, PairStandard())
    assert bad(rated) == {
        key(o) for o in outcomes if slow & {o.client, o.server} or (o.client, o.server) in links
    }
    assert {each.node for each in suspects(rated) if each.kind is SuspectKind.CARD} == slow


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
def test_nothing_is_slow_where_nothing_is_asked(figures):
    outcomes = [outcome(("a", f"b{n}"), figure, line=None) for n, figure in enumerate(figures)]
    assert not bad(rate(outcomes, PairStandard(tolerance=1)))


def test_who_fails_says_why():
    (pair,) = rate([failed(("a", "b"))], PairStandard())
    assert (pair.rating, pair.why) == (Rating.FAILED, "no answer")


def test_a_limit_that_was_asked_for():
    low, high = rate([outcome(("a", "b"), 49.9), outcome(("a", "c"), 50)], _asks(50))
    assert low.why == "49.90 Gb/s is less than the 50.00 asked for"
    assert high.rating is Rating.WELL


def _asks(limit):
    return PairStandard(limit=limit, line_share=0, tolerance=1)


def test_of_latencies_the_long_ones_are_slow():
    standard = PairStandard(latency=True, tolerance=0.2)
    rated = rate([outcome(("a", f"b{n}"), us) for n, us in enumerate((2, 2.1, 1.9, 5))], standard)
    assert bad(rated) == {("a", "b3", 0)}
    assert rated[-1].why == "5.00 µs is more than the 2.46 usual here"


def test_an_earlier_run_is_held_against_this_one():
    outcomes = [outcome(("a", "b"), 90), outcome(("b", "a"), 90)]
    rated = rate(outcomes, PairStandard(), {("a", "b", 0): 120.0, ("b", "a", 0): 100.0})
    assert bad(rated) == {("a", "b", 0)}
    assert rated[0].why.endswith("less than the 96.00 what it had before")


def test_each_rail_has_its_own_median():
    outcomes = [outcome((f"a{n}", "b"), 10.0, rail=0, line=None) for n in range(3)]
    outcomes += [outcome((f"a{n}", "b"), 90.0, rail=1, line=None) for n in range(3)]
    assert not bad(rate(outcomes, PairStandard()))


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_what_is_no_figure_is_never_well(figure):
    (bad, *others) = rate(
        [outcome(("a", f"b{n}"), f) for n, f in enumerate((figure, 98, 97, 96))], PairStandard()
    )
    assert bad.rating is Rating.FAILED
    assert {each.rating for each in others} == {Rating.WELL}


# A run beside an earlier one, over the pairs that both have.

AMONG = kit.pods(2, 8)
FIGURES = st.dictionaries(st.integers(0, 7), st.floats(1, 400))


@given(FIGURES, FIGURES.filter(bool))
def test_medians_are_those_of_the_pairs_that_both_have(now, before):
    rated = rate([kit.outcome(*AMONG, rail, now[rail]) for rail in now], PairStandard())
    compared = comparison(rated, {("node-0", "node-1", rail): before[rail] for rail in before})
    shared = now.keys() & before.keys()
    assert (compared.pairs, compared.missing) == (len(shared), len(before) - len(shared))
    if shared:
        assert compared.before == median(before[rail] for rail in shared)
        assert compared.now == median(now[rail] for rail in shared)
    else:
        assert (compared.before, compared.now) == (None, None)


def test_a_pair_that_fails_now_is_missing():
    rated = rate([kit.outcome(*AMONG, 0, None)], PairStandard())
    assert comparison(rated, {("node-0", "node-1", 0): 390.0}).missing == 1


def test_without_an_earlier_run_there_is_nothing_to_compare():
    assert comparison((), {}) is None
