"""The end of a pod with outdated device nodes is asked for when its refusal lasts, not often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.repair import AGAIN, LONGEST, REFUSALS, is_remade, refused
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import MIRROR, PodState

KEYS = [("uid-1", None), ("uid-1", InterfaceName("net1")), ("uid-2", None)]
TRIES = st.lists(st.tuples(st.floats(0.0, 2 * LONGEST), st.sampled_from(KEYS)), max_size=30)


@given(TRIES)
def test_it_is_asked_at_the_second_refusal_in_a_row_and_once_in_a_while(tries):
    """What was refused long ago is forgotten, so the state has an end."""
    state, now, history = {}, 0.0, {}
    for seconds, key in tries:
        now += seconds
        state, asks = refused(state, key, now)
        times, at, asked = history.get(key, (0, now, None))
        if now - at > LONGEST:
            times, asked = 0, None
        due = times + 1 >= REFUSALS and (asked is None or now - asked >= AGAIN)
        assert asks is due
        history[key] = (times + 1, now, now if due else asked)
        assert all(now - one.at <= LONGEST for one in state.values())


@pytest.mark.parametrize(
    ("facts", "remade"),
    [
        ({"owner": "Job/j"}, True),
        ({}, False),
        ({"owner": "Job/j", "annotations": ((MIRROR, "x"),)}, False),
    ],
)
def test_only_what_an_owner_makes_anew_is_ended(facts, remade):
    """The Node owns a static pod's mirror, and makes nothing."""
    assert is_remade(PodState("default", "a", "u", **facts)) is remade
