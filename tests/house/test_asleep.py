"""A test that sleeps for a minute is found while it sleeps; a slow one is not."""

import pytest

from tests.asleep import LOOK_SECONDS, SECONDS, Sleep


def looks(*works):
    """Look at a test again and again; `works`: the seconds of processor between two looks."""
    clock, awake = [0.0], {"self": 0.0}
    sleep = Sleep(lambda: clock[0], awake.copy)
    sleep.look()
    for work in works:
        clock[0] += LOOK_SECONDS
        if work is None:
            awake[str(clock[0])] = 0.0  # a new process
        else:
            awake["self"] += work
        sleep.look()
    return sleep


def test_a_minute_of_sleep_fails_a_test_and_its_clean_up_has_another():
    enough = int(SECONDS / LOOK_SECONDS)
    assert looks(*[0] * (enough - 1)).seconds == SECONDS - LOOK_SECONDS
    with pytest.raises(pytest.fail.Exception, match="slept for 60 s"):
        looks(*[0] * enough)
    with pytest.raises(pytest.fail.Exception, match="slept for"):
        looks(*[LOOK_SECONDS / 4] * 2 * enough)


def test_who_works_or_waits_for_a_processor_may_take_for_ever():
    """In more than one thread, or by programs that begin and end."""
    for work in (LOOK_SECONDS, 3 * LOOK_SECONDS, None):
        assert looks(*[work] * 1000).seconds == 0
