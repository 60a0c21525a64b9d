"""Slices of nodes in a world where everything goes wrong: no two nodes ever give from one."""

from __future__ import annotations

import pytest

from .truth import Breach
from .walk import SLICED, Walk
from .world import Flaw

STEPS = 20_000
SOONEST = {Flaw.LOST_SWAP: 2, Flaw.FORGOTTEN_FENCE: 4, Flaw.DOUBLE_TAKE: 1}  # as in test_model


def test_no_two_nodes_give_from_one_slice() -> None:
    """Crashes, restores, nodes declared dead: a slice has one node, and nodes get theirs again."""
    walk = Walk(3, pools=SLICED)
    walk.run(STEPS)
    assert walk.world.truth.granted > 200, "a walk that grants nothing proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 36))
def test_no_two_nodes_give_from_one_slice_for_long(seed: int) -> None:
    """Six walks of 50,000 steps."""
    Walk(seed, pools=SLICED).run(50_000)


@pytest.mark.parametrize("flaw", SOONEST)
def test_a_broken_allocator_shares_a_slice(flaw: Flaw) -> None:
    """What protects addresses protects slices: without it a walk breaks its promise."""
    for seed in (SOONEST[flaw], *range(1, 9)):
        walk = Walk(seed, flaw, pools=SLICED)
        try:
            walk.run(STEPS)
        except Breach:
            return
    pytest.fail(f"not caught: {flaw}")
