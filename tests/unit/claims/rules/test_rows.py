"""Rows of shares: all of them, one of each at first, none much larger than those before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.claims.rules.shape import ROWS, row_count, row_sizes
from kube_rdma.model.claims.devices import OfferedCard


def shared(count, resource="rdma/multi"):
    attributes = (("mode", "shared-multi"), ("resource", resource))
    return [OfferedCard(f"{resource}{n}", "g", attributes, 16, shared=True) for n in range(count)]


@given(st.integers(1, 3000), st.sampled_from([1, 2, 4, ROWS]))
def test_rows_have_every_share_and_grow(slots, most):
    sizes = row_sizes(slots, most)
    assert sum(sizes) == slots
    assert len(sizes) == min(slots, most)
    assert min(sizes) >= 1
    assert list(sizes) == sorted(sizes)


@given(st.integers(1, 128))
def test_with_eight_rows_none_is_larger_than_all_before_it(slots):
    sizes = row_sizes(slots, ROWS)
    assert sizes[0] == 1
    assert all(size <= sum(sizes[:row]) for row, size in enumerate(sizes) if row)


def test_sixteen_and_sixty_four_shares():
    assert row_sizes(16, ROWS) == (1, 1, 1, 1, 2, 2, 3, 5)
    assert row_sizes(64, ROWS) == (1, 1, 2, 3, 5, 9, 16, 27)


def test_a_card_more_or_less_seldom_changes_the_rows():
    assert [row_count(shared(count), 64) for count in (1, 2, 8, 9, 16, 17, 32, 33)] == [
        *(1, 8, 8, 4, 4, 2, 2, 1)
    ]


def test_cards_of_two_pools_share_the_room():
    cards = [*shared(4), *shared(8, "rdma/more"), *shared(1, "rdma/alone")]
    assert row_count(cards, 64) == 4
