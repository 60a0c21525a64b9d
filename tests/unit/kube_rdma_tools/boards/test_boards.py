"""What is measured on boards: how near a card is. The lab compares the page (test_boards)."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.boards.board import BoardPosition
from kube_rdma_tools.boards.measure import nearness, pod_sizes

# A root is of one NUMA node, or of none that is known.
PLACES = st.builds(
    lambda number, placed: BoardPosition(f"pci{number}", number % 2 if placed else None),
    st.integers(0, 3),
    st.booleans(),
)


def worth(gpu, card):
    if gpu.root == card.root:
        return (1, 0)
    return (0, 1 if gpu.numa_node is not None and gpu.numa_node == card.numa_node else 0)


@given(st.lists(PLACES, min_size=1, max_size=4), st.lists(PLACES, min_size=1, max_size=4))
def test_gpus_have_as_many_cards_at_their_root_as_any_deal_gives_them(gpus, cards):
    got = nearness(gpus, cards)
    each = -(-len(gpus) // len(cards))
    deals = permutations(cards * each, len(gpus))
    most = max(sum(worth(*pair)[0] for pair in zip(gpus, deal, strict=True)) for deal in deals)
    assert got.root == most
    assert got.gpus == len(gpus)


def test_without_a_card_no_gpu_is_near_one():
    assert nearness([BoardPosition("pci0", 0)], []).gpus == 0


@pytest.mark.parametrize(
    ("gpus", "sizes"), [(0, []), (1, [1]), (4, [1, 2, 4]), (6, [1, 3, 6]), (8, [1, 2, 4, 8])]
)
def test_pods_have_all_gpus_or_halves_of_them(gpus, sizes):
    assert pod_sizes(gpus) == sizes
