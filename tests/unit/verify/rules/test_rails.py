"""A node that lacks a card meets cards of the same rail all the same."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.verify.rules.pods import lonely, with_rails
from tests.kit.rails import device, pod, pods


@given(st.integers(1, 6), st.sets(st.integers(0, 7), max_size=7))
def test_what_a_node_has_keeps_its_rail_without_the_others(whole, rails):
    some = pod("some", sorted(rails))
    *others, placed = with_rails([*pods(whole, 8), some])
    assert dict(placed.by_rail) == dict(zip(sorted(rails), some.devices, strict=True))
    assert others == pods(whole, 8)


def test_other_names_are_read_by_their_places():
    few = pod("few", [11, 12])
    assert with_rails([*pods(3, 4), few])[-1].by_rail.keys() == {0, 1}


def test_the_names_that_most_have_are_those_that_count():
    placed = with_rails([pod("odd", [4, 5, 6]), *pods(3, 3), pod("few", [2])])[-1]
    assert placed.by_rail.keys() == {2}


def test_a_card_that_nobody_else_has_on_its_rail_is_told():
    among = [pod("few", [0]), pod("more", [0, 1])]
    assert list(lonely(among)) == [(f"more {device(1)}", "no other pod has a device on rail 1")]
    assert list(lonely(pods(4, 2))) == []


def test_where_there_is_one_pod_no_card_is_singled_out():
    assert list(lonely(pods(1, 8))) == []
