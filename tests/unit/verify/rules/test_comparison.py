"""A run beside an earlier one, over the pairs that both have."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.verify import PairStandard
from kube_rdma.verify.rules.suspects import comparison, rate
from tests.kit.rails import outcome, pods

AMONG = pods(2, 8)
FIGURES = st.dictionaries(st.integers(0, 7), st.floats(1, 400))


@given(FIGURES, FIGURES.filter(bool))
def test_medians_are_those_of_the_pairs_that_both_have(now, before):
    rated = rate([outcome(*AMONG, rail, now[rail]) for rail in now], PairStandard())
    compared = comparison(rated, {("node-0", "node-1", rail): before[rail] for rail in before})
    shared = now.keys() & before.keys()
    assert (compared.pairs, compared.missing) == (len(shared), len(before) - len(shared))
    if shared:
        assert compared.before == median(before[rail] for rail in shared)
        assert compared.now == median(now[rail] for rail in shared)
    else:
        assert (compared.before, compared.now) == (None, None)


def test_a_pair_that_fails_now_is_missing():
    rated = rate([outcome(*AMONG, 0, None)], PairStandard())
    assert comparison(rated, {("node-0", "node-1", 0): 390.0}).missing == 1


def test_without_an_earlier_run_there_is_nothing_to_compare():
    assert comparison((), {}) is None
