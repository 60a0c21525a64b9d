"""The odd one out is named only where three quarters of at least four agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.doctor.rules.errors import Majority, majority, rises

VALUES = st.lists(st.sampled_from("abc"), max_size=12)


@given(VALUES)
def test_a_majority_is_three_quarters_of_at_least_four(values):
    common = majority(values)
    top = max(map(values.count, values), default=0)
    assert (common is not None) == (len(values) >= 4 and 4 * top >= 3 * len(values))
    if common:
        assert values.count(common.value) == common.agreeing == top
        assert common.every == len(values)


def test_of_three_nobody_is_odd():
    assert majority("aab") is None
    assert majority("aaab") == Majority("a", 3, 4)


COUNTERS = st.dictionaries(
    st.sampled_from(["symbol_error", "out_of_sequence", "port_rcv_data"]), st.integers(0, 9)
)


@given(COUNTERS, COUNTERS)
def test_what_rises_is_an_error_that_both_readings_have(before, after):
    grown = dict(rises(before, after))
    for name, more in grown.items():
        assert name != "port_rcv_data"
        assert after[name] - before[name] == more > 0
    errors = {name for name in before.keys() & after.keys() if name != "port_rcv_data"}
    assert {name for name in errors if after[name] > before[name]} == grown.keys()
