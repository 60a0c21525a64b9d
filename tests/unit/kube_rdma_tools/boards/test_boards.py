"""What is measured on boards: the slices, how near a card is, and which requests are tried."""

import json
import re
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.cli.main import cli
from kube_rdma.hardware import machines
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_tools.boards.board import BoardSeat, CardPool, GpuDriver, board
from kube_rdma_tools.boards.measure import nearness, pod_sizes
from kube_rdma_tools.boards.page import PAGE

ROOT = Path(__file__).parents[4]
NUMA = "resource.kubernetes.io/numaNode"
# A root is of one NUMA node, or of none that is known.
PLACES = st.builds(
    lambda number, placed: BoardSeat(f"pci{number}", number % 2 if placed else None),
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
    seats = -(-len(gpus) // len(cards))
    deals = permutations(cards * seats, len(gpus))
    most = max(sum(worth(*pair)[0] for pair in zip(gpus, deal, strict=True)) for deal in deals)
    assert got.root == most
    assert got.gpus == len(gpus)


def test_without_a_card_no_gpu_is_near_one():
    assert nearness([BoardSeat("pci0", 0)], []).gpus == 0


@pytest.mark.parametrize(
    ("gpus", "sizes"), [(0, []), (1, [1]), (4, [1, 2, 4]), (6, [1, 3, 6]), (8, [1, 2, 4, 8])]
)
def test_pods_have_all_gpus_or_halves_of_them(gpus, sizes):
    assert pod_sizes(gpus) == sizes


@pytest.mark.parametrize("name", machines.names())
def test_every_device_of_a_machine_has_a_place(name):
    made = board(name)
    for pool in CardPool:
        for driver in GpuDriver:
            slices = json.loads(made.slices[pool, driver])
            listed = {
                (part["spec"]["driver"], device["name"])
                for part in slices
                for device in part["spec"].get("devices", ())
            }
            assert listed <= made.places.keys()
            assert len([one for one in listed if one[0] != DRIVER]) == len(made.gpus)


def test_only_the_newer_gpu_driver_says_the_numa_node():
    made = board("dgx-like")
    for driver in GpuDriver:
        slices = json.loads(made.slices[CardPool.WHOLE, driver])
        (gpus,) = (part["spec"]["devices"] for part in slices if part["spec"]["driver"] != DRIVER)
        assert all((NUMA in one["attributes"]) == (driver is GpuDriver.NEW) for one in gpus)


def test_every_request_of_the_page_is_one_that_the_command_takes():
    text = (ROOT / PAGE).read_text()
    requests = set(re.findall(r"`(--gpus [^`]+)`", text))
    assert requests
    options = {option for one in cli.get_command(None, "claim").params for option in one.opts}
    for request in requests:
        assert {word for word in request.split() if word.startswith("--")} <= options


def test_the_page_has_every_machine():
    text = (ROOT / PAGE).read_text()
    assert all(re.search(rf"(?m)^(### {name}$|\| `{name}` )", text) for name in machines.names())
