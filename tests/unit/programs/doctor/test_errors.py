"""Counters are read twice: what rises meanwhile is seen, what merely stands there is not."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.model.doctor import ObservedErrors
from kube_rdma.programs.doctor.errors import watched_errors
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from tests.unit.programs.agent.world import hard_card

PORT = "mlx5_0/ports/1"


@pytest.fixture
def root(tmp_path):
    write_tree(tmp_path, [hard_card(0), hard_card(1)])
    write_counters(tmp_path, PORT, "counters", {"symbol_error": 900, "port_rcv_data": 1})
    write_counters(tmp_path, PORT, "hw_counters", {"out_of_sequence": 5})
    return tmp_path


def then(root, folder, counters):
    """A pause in which counters change."""

    async def pause(seconds):
        assert seconds == 2.0
        write_counters(root, PORT, folder, counters)

    return pause


async def test_what_rises_is_told_by_port(root):
    change = then(root, "counters", {"symbol_error": 912, "port_rcv_data": 10**9})
    seen = await watched_errors(2.0, root, change)
    assert seen == (ObservedErrors("mlx5_0", 1, 2.0, (("symbol_error", 12),)),)


@pytest.mark.parametrize("count", [900, 0])
async def test_what_stands_or_was_reset_is_nothing(root, count):
    assert await watched_errors(2.0, root, then(root, "counters", {"symbol_error": count})) == ()


async def test_a_counter_that_appears_meanwhile_has_not_risen(root):
    assert await watched_errors(2.0, root, then(root, "counters", {"link_downed": 4})) == ()


async def test_without_counters_or_without_time_nothing_is_seen(root, tmp_path):
    with pytest.raises(Unavailable, match="--interval 0"):
        await watched_errors(0, root)
    with pytest.raises(Unavailable, match="no port has counters"):
        await watched_errors(2.0, tmp_path / "none")
