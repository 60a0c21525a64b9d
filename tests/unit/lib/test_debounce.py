"""Many events are one signal, and an endless burst cannot hide what happens."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.lib.debounce import EVENTS_A_SECOND, Debounce, apart


async def test_many_touches_are_one_signal():
    burst = Debounce(quiet=0.01, longest=60)
    for _ in range(100):
        burst.touch()
    await burst.wait()
    assert await unsignalled(burst)


async def test_each_touch_prolongs_the_burst():
    loop = asyncio.get_running_loop()
    burst = Debounce(quiet=0.05, longest=60)
    start = loop.time()
    burst.touch()
    loop.call_at(start + 0.04, burst.touch)
    await burst.wait()
    assert loop.time() - start >= 0.085


async def test_a_later_touch_is_another_signal():
    burst = Debounce(quiet=0.01, longest=60)
    for _ in range(3):
        burst.touch()
        await burst.wait()


async def test_a_touch_while_nobody_waits_is_kept():
    """The survey takes a while; what happens meanwhile leads to another one."""
    burst = Debounce(quiet=0, longest=60)
    burst.touch()
    assert not await unsignalled(burst)


async def test_an_endless_burst_is_cut():
    burst = Debounce(quiet=60, longest=0.01)
    burst.touch()
    burst.touch()
    await burst.wait()


async def test_waiting_can_end_by_the_clock():
    await Debounce().wait(0.01)


async def unsignalled(burst):
    """Whether nothing is signalled within a moment in which timers that are due would run."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    await burst.wait(0.05)
    return loop.time() - before >= 0.05


@given(st.floats(0.0, 60.0), st.integers(0, 10**6))
def test_writes_are_apart_so_that_events_of_all_agents_have_a_rate(shortest, events):
    seconds = apart(shortest, events)
    assert seconds >= shortest
    assert events <= seconds * EVENTS_A_SECOND * (1 + 1e-9)
    assert seconds in {shortest, events / EVENTS_A_SECOND}
