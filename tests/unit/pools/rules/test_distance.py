"""How near a container's cards are to its GPUs, and how that is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.holdings import HeldGpu
from kube_rdma.pools.rules.nearness import Distance, Nearness, Side, gpu_distances, rank, way
from tests.kit.nodes import device, hard_card, position


def gpu(bus, numa=0, root=None):
    """A GPU below its own root port; `root` is a card's position behind the same switch."""
    place = position(bus, numa=numa)
    if root:
        place = replace(place, path=(root.path[0], place.pci))
    return HeldGpu(place.pci, () if numa is None else (numa,), place)


CARD = hard_card(0x81)
BESIDE = gpu(0x82, root=CARD.position)
FAR = replace(gpu(0xC1, 1), position=replace(gpu(0xC1, 1).position, root="pci0000:c0"))
SOFT = Card(CardId("rxe0@veth0"), (device(0, numa_node=0),), None)


def test_near_and_far_are_named_and_one_way_is_said_once():
    (found,) = gpu_distances([CARD], [FAR, BESIDE])
    assert found == Distance(CARD.id, "0000:82:00.0", Nearness.PIX, "0000:c1:00.0", Nearness.SYS)
    assert str(found) == "0000:81:00.0 to GPU 0000:82:00.0: PIX, to GPU 0000:c1:00.0: SYS"
    assert str(gpu_distances([CARD], [BESIDE])[0]) == "0000:81:00.0 to GPU 0000:82:00.0: PIX"


@pytest.mark.parametrize(
    ("card", "nodes", "place", "expected"),
    [
        (CARD, (1,), BESIDE.position, Nearness.PIX),
        (CARD, (0, 1), None, Side.SAME),
        (CARD, (1,), None, Side.OTHER),
        (CARD, (), None, None),
        (SOFT, (0,), BESIDE.position, Side.SAME),
        (SOFT, (1,), BESIDE.position, Side.OTHER),
        (replace(SOFT, devices=()), (0,), None, None),
    ],
)
def test_positions_go_before_nodes(card, nodes, place, expected):
    assert way(card, nodes, place) == expected


def test_what_is_known_of_nodes_alone():
    near, far = HeldGpu("nvidia0", (0,)), HeldGpu("nvidia4", (1,))
    assert str(gpu_distances([SOFT], [far, near])[0]) == (
        "rxe0@veth0 to GPU nvidia0: same NUMA node, to GPU nvidia4: other NUMA node"
    )
    assert (
        str(gpu_distances([SOFT], [HeldGpu("nvidia0", ())])[0])
        == "rxe0@veth0 to GPU nvidia0: not known"
    )


POSITIONS = st.builds(
    lambda bus, numa, root: PciPosition(
        PciAddress(f"0000:{bus:02x}:00.0"), root, (PciAddress(f"0000:{bus:02x}:00.0"),), numa
    ),
    st.integers(1, 9),
    st.sampled_from([None, 0, 1]),
    st.sampled_from(["pci0000:00", "pci0000:80"]),
)
NODES = st.lists(st.integers(0, 1), unique=True).map(tuple)
GPUS = st.lists(st.builds(HeldGpu, st.text(max_size=3), NODES, st.none() | POSITIONS), max_size=5)


@given(GPUS)
def test_the_nearest_is_never_farther_than_any_other(gpus):
    found = gpu_distances([CARD, SOFT], gpus)
    assert [one.card for one in found] == ([CARD.id, SOFT.id] if gpus else [])
    for card, one in zip((CARD, SOFT), found, strict=False):
        ranks = [rank(way(card, each.numa_nodes, each.position)) for each in gpus]
        assert (rank(one.best), rank(one.worst)) == (min(ranks), max(ranks))
        assert {one.nearest, one.farthest} <= {each.name for each in gpus}
