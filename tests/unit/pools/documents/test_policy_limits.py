"""`rdmaLimits` of a pool: what it means, and one sentence for each value that cannot be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.pools import MOST, RdmaLimits
from kube_rdma.pools.documents import node_policy

NUMBERS = st.none() | st.integers(1, MOST)


def read(limits):
    pool = {"resource": "rdma/a", "mode": "shared-multi", "rdmaLimits": limits}
    (spec,) = node_policy.load_object(json.dumps({"pools": [pool]}).encode(), "p").pools
    return spec.limits


@given(NUMBERS, NUMBERS)
def test_each_number_is_the_kernel_s(handles, objects):
    written = {"hcaHandle": handles, "hcaObject": objects}
    given_numbers = {name: number for name, number in written.items() if number is not None}
    if given_numbers:
        assert read(given_numbers) == RdmaLimits(handles, objects)


def test_left_out_there_is_no_limit():
    assert read(None) is None


def test_limits_of_nothing_are_refused_with_place_and_remedy():
    with pytest.raises(Refused) as refused:
        read({})
    assert str(refused.value) == (
        "NodePolicy p: spec.pools[0].rdmaLimits: these limits limit nothing. "
        "Add hcaHandle or hcaObject, or remove rdmaLimits."
    )


@pytest.mark.parametrize(
    "wrong",
    [{"hcaObject": 0}, {"hcaHandle": -1}, {"hcaObject": MOST + 1}, {"hcaObject": "many"},
     {"hcaObject": True}, {"hca_object": 5}, {"queuePairs": 5}],
)  # fmt: skip
def test_what_the_kernel_cannot_hold_is_refused_where_it_stands(wrong):
    with pytest.raises(Refused, match=r"spec\.pools\[0\]\.rdmaLimits\."):
        read(wrong)
