"""A fault that is planted, of whatever kind, is named first, and nothing else is."""

import random
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.verify import PairOutcome, PairStandard, PerftestRow, SuspectKind
from kube_rdma.verify.rules import suspects as rule
from kube_rdma.verify.rules.suspects import rate, suspects
from tests.kit.rails import LINE, NOISE, SLOW, device

SEEDS = st.integers(0, 2**32).map(random.Random)
CARD, NODE, RAIL, PAIR = SuspectKind


def outcome(pair, rail, figure):
    """`figure` None is a pair that failed."""
    rows = () if figure is None else (PerftestRow(65536, 5000, figure),)
    names = (device(rail), device(rail))
    return PairOutcome(*pair, rail, names, LINE, rows, "" if rows else "no answer")


def measured(nodes, rails, is_bad, noise, bad_figure=SLOW):
    """All pairs of a cluster; figures stray by some percent, as real ones."""
    return [
        outcome(pair, rail, bad_figure and bad_figure * noise.uniform(0.96, 1.04))
        if is_bad(pair, rail)
        else outcome(pair, rail, LINE * noise.uniform(0.93, 0.99))
        for pair in combinations([f"node-{n}" for n in range(nodes)], 2)
        for rail in range(rails)
    ]


FAULTS = {
    CARD: lambda pair, rail, rails: "node-1" in pair and rail == rails - 1,
    NODE: lambda pair, _rail, _rails: "node-1" in pair,
    RAIL: lambda _pair, rail, rails: rail == rails - 1,
    PAIR: lambda pair, rail, rails: pair == ("node-1", "node-2") and rail == rails - 1,
}


def named(outcomes):
    return suspects(rate(outcomes, PairStandard()))


@given(
    st.sampled_from(list(SuspectKind)), st.integers(4, 9), st.integers(2, 5), st.booleans(), SEEDS
)
def test_the_one_fault_of_a_cluster_is_named_and_nothing_else(kind, nodes, rails, fails, noise):
    fault = FAULTS[kind]
    figure = None if fails else SLOW
    outcomes = measured(nodes, rails, lambda pair, rail: fault(pair, rail, rails), noise, figure)
    (suspect,) = named(outcomes)
    assert suspect.kind is kind
    assert suspect.node == (None if kind is RAIL else "node-1")
    assert suspect.device == (None if kind is NODE else device(rails - 1))
    assert suspect.rail == (rails - 1 if kind is RAIL else None)
    assert suspect.peer == ("node-2" if kind is PAIR else None)
    assert (suspect.why == "no answer") is fails
    bad = [each for each in outcomes if fault((each.client, each.server), each.rail, rails)]
    assert suspect.pairs == suspect.of == len(bad)
    if not fails:
        assert suspect.due == LINE * 0.8
        assert abs(suspect.median - SLOW) < 10


@given(st.integers(5, 9), st.integers(1, 4), SEEDS)
def test_two_bad_cards_are_two(nodes, rails, noise):
    bad = {("node-1", 0), ("node-3", rails - 1)}
    outcomes = measured(
        nodes, rails, lambda pair, rail: any((node, rail) in bad for node in pair), noise
    )
    assert {(each.kind, each.node, each.device) for each in named(outcomes)} == {
        (CARD, node, device(rail)) for node, rail in bad
    }


def test_in_a_ring_two_peers_are_enough_for_a_card():
    """Also where one of them is bad with all of its own; a good card between two is not named."""
    bad = {(f"node-{number}", f"node-{number}:1") for number in (1, 2, 6, 8)}
    outcomes = []
    for number, rail in product(range(12), range(2)):
        pair = f"node-{number}", f"node-{(number + 1) % 12}"
        names = tuple(f"{node}:{rail}" for node in pair)
        is_bad = not bad.isdisjoint(zip(pair, names, strict=True))
        outcomes.append(replace(outcome(pair, rail, SLOW if is_bad else LINE), devices=names))
    found = {(each.kind, each.node, each.device) for each in named(outcomes)}
    assert found == {(CARD, *one) for one in bad}


def test_a_card_comes_before_a_node_a_rail_and_a_pair():
    def is_bad(pair, rail):
        return (
            ("node-1" in pair and rail == 1)
            or "node-2" in pair
            or rail == 3
            or (pair == ("node-4", "node-5") and rail == 0)
        )

    outcomes = measured(12, 4, is_bad, NOISE())
    assert [each.kind for each in named(outcomes)] == [CARD, NODE, RAIL, PAIR]


@pytest.mark.parametrize("rails", [1, 3])
def test_where_all_are_bad_nobody_is_named(rails):
    assert named(measured(5, rails, lambda *_: True, NOISE())) == ()


@pytest.mark.parametrize("both_ways", [False, True])
def test_of_two_nodes_neither_is_guilty(both_ways):
    """Seven rails of eight are bad between them: it may be either, or what lies between."""
    outcomes = measured(2, 8, lambda _, rail: rail > 0, NOISE())
    if both_ways:
        outcomes += [
            outcome((each.server, each.client), each.rail, each.rows[0].figure) for each in outcomes
        ]
    (suspect,) = named(outcomes)
    ways = 2 if both_ways else 1
    assert (suspect.kind, suspect.pairs, suspect.of) == (PAIR, 7 * ways, 8 * ways)
    assert suspect.device is None


def test_a_node_is_named_for_its_cards_and_not_for_its_pairs():
    """Of five pairs four are bad: three of its first card, and one that is its neighbour's."""
    bad = {("node-0", 0), ("node-1", 1)}
    pairs = [("node-0", f"node-{n}", 0) for n in (1, 2, 3)]
    pairs += [("node-0", "node-1", 1), ("node-0", "node-2", 1), ("node-1", "node-2", 1)]
    pairs += [("node-1", "node-3", 1), ("node-1", "node-2", 0), ("node-2", "node-3", 0)]
    outcomes = [
        outcome((near, far), rail, SLOW if {(near, rail), (far, rail)} & bad else LINE)
        for near, far, rail in pairs
    ]
    assert {(each.kind, each.node, each.device) for each in named(outcomes)} == {
        (CARD, node, device(rail)) for node, rail in bad
    }


def test_sixty_four_nodes_with_eight_rails():
    """One card of 512: it is named in the first line, with what it has and what is due."""
    noise = NOISE()
    outcomes = measured(
        64, 8, lambda pair, rail: ("node-17" in pair and rail == 3) or noise.random() < 0.001, noise
    )
    first, *others = named(outcomes)
    assert (first.kind, first.node, first.device) == (CARD, "node-17", "mlx5_3")
    assert (first.pairs, first.of, round(first.due)) == (63, 63, 320)
    assert {each.kind for each in others} == {PAIR}


def test_the_work_is_that_of_the_pairs():
    """Every card of half the nodes is bad: still each pair is taken out once."""
    outcomes = measured(24, 4, lambda pair, _: int(pair[0][5:]) < 12, NOISE())
    rated = rate(outcomes, PairStandard())
    looks = 0

    def ends(pair):
        nonlocal looks
        looks += 1
        return ((pair.outcome.client,), (pair.outcome.server,))

    tally = rule.Tally(rated, ends)
    while (worst := tally.worst()) is not None:
        tally.take_out(worst)
    assert looks == len(rated)
    assert tally.pushes <= 4 * len(rated)


def test_a_pair_of_two_suspects_is_counted_out_once():
    """What is left of each end is what was not explained, whoever explained it."""
    outcomes = measured(5, 1, lambda pair, _: pair[0] in ("node-0", "node-1"), NOISE())

    def ends(pair):
        return ((pair.outcome.client,), (pair.outcome.server,))

    tally = rule.Tally(rate(outcomes, PairStandard()), ends)
    for node in ("node-0", "node-1"):
        tally.take_out((node,))
        for cause, count in tally._every.items():
            assert count == len(tally.pairs(cause))
        mixed = [cause for cause, count in tally._every.items() if tally._bad[cause] < count]
        assert tally._mixed == len(mixed)
