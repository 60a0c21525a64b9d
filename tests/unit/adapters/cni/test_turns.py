"""Who is served next: ends before beginnings, and never more than allowed."""

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.cni.socket import CALLER, Turns, set_aside


async def drained(turns, kinds, gone=()):
    """Let all wait while every place is taken, then go one by one; in which order they were."""
    order, free = [], asyncio.Event()

    async def one(number, begins):
        async with turns.turn(begins=begins):
            order.append(number)

    async def hold():
        async with turns.turn(begins=False):
            await free.wait()

    held = asyncio.create_task(hold())
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(one(number, begins)) for number, begins in enumerate(kinds)]
    await asyncio.sleep(0)
    for number in gone:
        tasks[number].cancel()
    free.set()
    await asyncio.gather(held, *tasks, return_exceptions=True)
    return order


@given(st.lists(st.booleans(), max_size=12), st.data())
def test_ends_first_then_in_the_order_in_which_they_came(kinds, data):
    """Whoever gives up while he waits is passed over, and costs nobody his turn."""
    gone = data.draw(st.sets(st.sampled_from(range(len(kinds))))) if kinds else set()
    order = asyncio.run(drained(Turns(1), kinds, gone))
    left = [number for number in range(len(kinds)) if number not in gone]
    assert order == sorted(left, key=lambda number: (kinds[number], number))


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=20),
)
def test_never_more_than_allowed_and_everybody_in_the_end(places, beginning, calls):
    """However long each takes, and whoever is cancelled at whatever moment."""

    async def run():
        turns, taken, most = Turns(places, beginning), {True: 0, False: 0}, []

        async def one(begins, steps):
            async with turns.turn(begins=begins):
                taken[begins] += 1
                most.append((taken[True], sum(taken.values())))
                try:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                finally:
                    taken[begins] -= 1

        tasks = [asyncio.create_task(one(begins, steps)) for begins, steps, _ in calls]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task, (_, _, gone) in zip(tasks, calls, strict=True):
            if gone:
                task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        assert all(begun <= beginning and every <= places for begun, every in most)
        for begins in (True, False):  # every place was given back
            for _ in range(places):
                async with turns.turn(begins=begins):
                    pass

    asyncio.run(run())


class Calling:
    """A caller that waits."""

    hung_up = False

    def __init__(self, place):
        self.place = place


async def test_while_others_are_waited_for_the_place_is_free():
    """The next one has it; it is taken again behind whoever waited, and given back once."""
    turns, order, free = Turns(1), [], asyncio.Event()

    async def first():
        async with turns.turn(begins=True) as place:
            CALLER.set(Calling(place))
            async with set_aside():
                await free.wait()
            order.append("first")

    async def second():
        async with turns.turn(begins=True):
            order.append("second")
            free.set()
            await asyncio.sleep(0)

    await asyncio.gather(first(), second())
    async with turns.turn(begins=True):
        order.append("third")
    assert order == ["second", "first", "third"]


async def test_who_is_cancelled_while_he_wants_his_place_again_has_none_to_give_back():
    """Else two would be served at once."""
    turns, aside, back = Turns(1), asyncio.Event(), asyncio.Event()

    async def call():
        async with turns.turn(begins=True) as place:
            CALLER.set(Calling(place))
            async with set_aside():
                aside.set()
                await back.wait()

    waiting = asyncio.create_task(call())
    await aside.wait()
    async with turns.turn(begins=True):
        back.set()
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        third = asyncio.create_task(turns.wait(begins=True))
        await asyncio.sleep(0)
        assert not third.done()
    await third


async def test_namespaces_have_turns():
    """A burst of pods of one namespace keeps no pod of another waiting for all of them."""
    turns, order = Turns(1), []

    async def call(namespace, number):
        async with turns.turn(begins=True, namespace=namespace):
            order.append((namespace, number))

    async with asyncio.TaskGroup() as tasks, turns.turn(begins=True):
        for number in range(9):
            tasks.create_task(call("tenant", number))
        await asyncio.sleep(0)
        for number in range(2):
            tasks.create_task(call("train", number))
        await asyncio.sleep(0)
    assert order[:4] == [("tenant", 0), ("train", 0), ("tenant", 1), ("train", 1)]


async def test_who_comes_again_and_again_goes_before_nobody_who_waits():
    """A namespace of which one call always waits has every second turn, and no more."""
    turns, order = Turns(1), []

    async def call(namespace, again=0):
        async with turns.turn(begins=True, namespace=namespace):
            order.append(namespace)
            if again:
                tasks.create_task(call(namespace, again - 1))
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks, turns.turn(begins=True):
        for _ in range(5):
            tasks.create_task(call("train"))
        tasks.create_task(call("tenant", again=20))
        await asyncio.sleep(0)
    assert order[:12].count("train") == 5
