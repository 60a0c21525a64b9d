"""A schedule is its seed's alone, and can be done: what begins ends, and in this order."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from chaos import sites
from chaos.__main__ import faults_of, main
from chaos.schedule import (
    GROUPS,
    LASTING,
    OF_A_CARD,
    OF_THE_CLUSTER,
    Begin,
    Create,
    Delete,
    End,
    Fault,
    Place,
    Size,
    schedule,
)
from kube_base.errors import Refused

PLACE = Place(("node-1", "node-2"), ("mlx5_0", "mlx5_4"))
SEEDS = st.integers(0, 2**32)
SIZES = st.builds(
    Size, pods=st.integers(2, 12), faults=st.integers(0, 8), longest=st.integers(1, 6)
)
EVERY = tuple(Fault)


@given(SEEDS, SIZES)
def test_the_same_seed_is_the_same_run(seed, size):
    assert schedule(seed, PLACE, size, EVERY) == schedule(seed, PLACE, size, EVERY)


def test_other_seeds_are_other_runs():
    assert len({schedule(seed, PLACE, Size(), EVERY) for seed in range(50)}) == 50


def test_fifty_seeds_have_every_fault():
    steps = (step for seed in range(50) for step in schedule(seed, PLACE, Size(), EVERY))
    assert {step.fault for step in steps if isinstance(step, Begin)} == set(Fault)


@given(SEEDS, SIZES)
def test_what_lasts_ends_and_nothing_else_does(seed, size):
    still = []
    for step in schedule(seed, PLACE, size, EVERY):
        if isinstance(step, Begin) and step.fault in LASTING:
            still.append((step.fault, step.target))
        elif isinstance(step, End):
            still.remove((step.fault, step.target))
    assert not still


@given(SEEDS, SIZES)
def test_faults_of_one_group_do_not_last_at_the_same_time(seed, size):
    still = set()
    for step in schedule(seed, PLACE, size, EVERY):
        if isinstance(step, Begin) and step.fault in LASTING:
            assert not any({step.fault} | still <= group for group in GROUPS if still & group)
            still.add(step.fault)
        elif isinstance(step, End):
            still.discard(step.fault)


@given(SEEDS, SIZES)
def test_a_target_is_what_its_fault_hits(seed, size):
    for step in schedule(seed, PLACE, size, EVERY):
        if isinstance(step, Begin):
            assert bool(step.target.node) is (step.fault not in OF_THE_CLUSTER)
            assert bool(step.target.card) is (step.fault in OF_A_CARD)


@given(SEEDS, SIZES)
def test_pods_are_made_before_they_are_deleted_and_some_stay(seed, size):
    alive = set()
    for step in schedule(seed, PLACE, size, EVERY):
        if isinstance(step, Create):
            assert step.name not in alive
            alive.add(step.name)
        elif isinstance(step, Delete):
            alive.remove(step.name)
    assert alive


@given(SEEDS, st.sets(st.sampled_from(EVERY), min_size=1))
def test_only_the_chosen_faults_happen(seed, chosen):
    steps = schedule(seed, PLACE, Size(), tuple(chosen))
    assert {step.fault for step in steps if isinstance(step, Begin)} <= chosen


GOLDEN = Path(__file__).with_name("native_seeds.txt")


def test_seeds_that_ran_on_native_nodes_are_still_what_they_were():
    """Else the lines of runs.jsonl name runs that nobody can repeat. Never write this file anew."""
    shown = CliRunner().invoke(main, ["--show", "--seed", "1", "--count", "4"])
    assert shown.output == GOLDEN.read_text()


@pytest.mark.parametrize("site", sites.SITES, ids=lambda site: site.topology)
def test_fifty_seeds_have_every_fault_of_a_site_and_no_other(site):
    steps = (step for n in range(50) for step in schedule(n, site.place, Size(), site.faults))
    assert {step.fault for step in steps if isinstance(step, Begin)} == {*site.faults}


@given(SEEDS, SIZES)
def test_no_card_of_a_machine_goes_while_the_machine_is_off(seed, size):
    """A boot brings all cards back."""
    site, still = sites.MACHINES, set()
    for step in schedule(seed, site.place, size, site.faults):
        if isinstance(step, Begin) and step.fault in LASTING:
            still.add(step.fault)
        elif isinstance(step, End):
            still.discard(step.fault)
        assert not (Fault.NODE_OFF in still and still & OF_A_CARD)


def test_natives_have_no_clock_to_set():
    assert faults_of(sites.MACHINES, ["clock-ahead"]) == (Fault.CLOCK_AHEAD,)
    with pytest.raises(Refused, match="topology native cannot have the fault 'clock ahead'"):
        faults_of(sites.NATIVE, ["clock-ahead"])
