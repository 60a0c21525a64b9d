"""Waits: in vain when nothing new is seen for as long as this machine needs, and not before."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_lab import pace
from kube_rdma_lab.patience import MOST_BETWEEN_LOOKS, SLOWEST, Patience


class World:
    """A clock that a test moves, and a machine whose pace it sets."""

    def __init__(self, slowness=1.0):
        self.now = 0.0
        self.slowness = slowness

    def patience(self, quiet, booted_at=1.0):
        """A wait on this machine, whose lab measured its pace when it booted."""
        return Patience(booted_at, quiet, clock=lambda: self.now, measure=lambda: self.slowness)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=30))
def test_a_wait_is_lost_exactly_after_a_quiet_without_news(looks):
    """Whatever is seen when; a fact that was seen before is no news."""
    world, limit = World(), 40.0
    patience, seen, quiet = world.patience(limit), set(), 0.0
    for seconds, fact in looks:
        world.now += seconds
        quiet += min(seconds, MOST_BETWEEN_LOOKS)
        if fact not in seen:
            quiet = 0.0
        seen.add(fact)
        assert patience.lost([fact]) == (quiet >= limit)


@given(st.floats(0.1, 20), st.floats(0.1, 20))
def test_patience_is_a_multiple_of_the_slower_of_both_paces(then, now):
    """That of the boot, and that of the moment at which the wait would be given up."""
    world = World(now)
    patience = world.patience(10.0, then)
    patience.lost(["a"])
    looks = 0
    while not patience.lost(["a"]):
        world.now += 1.0
        looks += 1
    assert looks == ceil(10.0 * min(max(1.0, then, now), SLOWEST))


def test_a_machine_that_stood_still_is_no_quiet():
    """Nobody could move meanwhile: neither who is waited for nor who waits."""
    world = World()
    patience = world.patience(10.0)
    patience.lost(["a"])
    world.now = 1000.0
    assert not patience.lost(["a"])


def test_what_swings_to_and_fro_is_no_progress():
    """As a pod that becomes ready and not ready for ever."""
    world = World()
    patience = world.patience(10.0)
    lost = []
    for second in range(14):
        world.now = float(second)
        lost.append(patience.lost([("ready", second % 2 == 0)]))
    assert lost == [False] * 11 + [True] * 3


def test_the_machine_s_pace_is_told_in_words():
    assert pace.describe(2.52) == "slow machine: 2.5 × the reference"
    assert pace.describe(0.96) == "machine: 1.0 × the reference"
    assert pace.describe(pace.of_boot(30), "machines") == "slow machines: 2.5 × the reference"


def test_the_pace_is_measured_in_work_that_was_done():
    assert pace.measure() > 0
