"""A hung program is told from a starved one by what its threads waited for processors."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.lib.hang import PATIENCE, TICK, Spent, silence

SECONDS = st.floats(0, 10_000)
MORE = st.floats(1, 100)


def after(looks):
    """The silence after these looks."""
    silent = 0.0
    for spent in looks:
        silent = silence(silent, spent)
    return silent


@given(st.lists(st.tuples(SECONDS, MORE)))
def test_who_never_got_a_processor_was_never_silent(waits):
    assert after(Spent(passed, 0, passed * threads) for passed, threads in waits) == 0


@given(st.lists(st.tuples(SECONDS, st.floats(0, 1))))
def test_of_a_starved_program_only_what_it_ran_counts(looks):
    """A thread that is late in everything it does is as silent as the work that it did."""
    starved = [Spent(passed, passed * share, passed * (1 - share)) for passed, share in looks]
    assert abs(after(starved) - sum(spent.ran for spent in starved)) < 1e-3


@given(st.integers(0, 100), MORE)
def test_who_could_run_all_the_time_was_silent_all_the_time(looks, busy):
    """Blocked or spinning, also in several threads: a hang is noticed after PATIENCE."""
    assert after([Spent(TICK, 0, 0)] * looks) == looks * TICK
    assert after([Spent(TICK, TICK * busy, 0)] * looks) >= looks * TICK
    assert TICK < PATIENCE


@given(SECONDS, SECONDS)
def test_a_stopped_program_loses_a_tick_at_most(before, passed):
    assert silence(before, Spent(passed, 0, 0)) <= before + TICK
