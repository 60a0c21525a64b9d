"""Walls: a part that fails is begun anew while the others go on; what may end a program does."""

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.bulkhead import ObjectWalls, contained, kept, start
from kube_rdma_testing.recording import recorded

TOLD = "part of the program failed"


class Part:
    """Raises these, one at each start; then it runs until it is cancelled."""

    def __init__(self, *errors):
        self.errors, self.running = list(errors), asyncio.Event()

    async def __call__(self):
        if self.errors:
            raise self.errors.pop(0)
        self.running.set()
        await asyncio.Event().wait()


def at_once(_failures):
    return 0.0


async def ended(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        RecursionError(),
        ExceptionGroup("g", [OverflowError()]),
        Unavailable("X."),
    ],
)
async def test_a_part_that_fails_begins_anew(error):
    """Each failure is counted, and logged with its cause, or as the sentence that it is."""
    part, before = Part(error, error), bulkhead.failures["trial"]
    with recorded() as log:
        task = asyncio.create_task(kept("trial", part, pause=at_once))
        await part.running.wait()
        await ended(task)
    assert bulkhead.failures["trial"] == before + 2
    lines = log.of(TOLD)
    assert {line["part"] for line in lines} == {"trial"}
    if isinstance(error, Unavailable):
        assert [line["why"] for line in lines] == ["X."]  # once while it stands
    else:
        assert [line["exc_info"] for line in lines] == [error, error]


async def test_the_pauses_grow_with_failures():
    pauses = []
    with recorded():
        part = Part(*[ValueError()] * 3)
        task = asyncio.create_task(
            kept("trial", part, pause=lambda failures: pauses.append(failures) or 0.0)
        )
        await part.running.wait()
        await ended(task)
    assert pauses == [0, 1, 2]


async def test_a_part_that_returns_is_over():
    async def once():
        return

    await kept("trial", once)


async def test_what_is_the_end_is_raised():
    """Also out of a group, and nothing else is."""
    errors = KeyError(), ExceptionGroup("g", [Refused("a", remedy="b")])
    with recorded(), pytest.raises(ExceptionGroup):
        await kept("trial", Part(*errors), ends=Refused, pause=at_once)


async def test_the_neighbours_of_a_part_go_on():
    good, bad = Part(), Part(MemoryError())

    async def program():
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"good": good, "bad": bad})

    with recorded():
        task = asyncio.create_task(program())
        await good.running.wait()
        await bad.running.wait()
        await ended(task)


def test_one_callers_exception_ends_his_block_alone():
    before = bulkhead.failures["caller"]
    with recorded() as log:
        with contained("caller"):
            raise RuntimeError("x")
        with contained("caller"):
            pass
    assert bulkhead.failures["caller"] == before + 1
    assert len(log.of(TOLD)) == 1
    with pytest.raises(asyncio.CancelledError), contained("caller"):
        raise asyncio.CancelledError


class Objects:
    """Work on objects, of which some raise; what was told of each."""

    def __init__(self, pause=lambda _: 0.0):
        self.walls, self.bad, self.done, self.told = ObjectWalls("Trial", pause), set(), [], []

    async def run(self, name, version=1):
        async def work(why):
            if why:
                self.told.append((name, why))
                return False
            if name in self.bad:
                raise KeyError(name)
            self.done.append(name)
            return True

        return await self.walls.run((name, version), work)


async def test_one_object_that_fails_is_told_and_ends_no_other():
    """It is counted each time, and its cause is logged once."""
    objects, before = Objects(), bulkhead.object_failures["Trial"]
    objects.bad.add("bad")
    with recorded() as log:
        assert [await objects.run(name) for name in ("bad", "good", "bad")] == [False, True, False]
    assert objects.done == ["good"]
    assert [name for name, _ in objects.told] == ["bad", "bad"]
    assert objects.told[0][1].startswith("kube-rdma cannot handle this Trial (KeyError: 'bad')")
    assert bulkhead.object_failures["Trial"] == before + 2
    (line,) = log.of("object failed")
    assert isinstance(line["exc_info"], KeyError)


async def test_an_object_that_failed_waits_longer_each_time_until_it_is_another():
    asked = []
    objects = Objects(lambda failures: asked.append(failures) or 0.0)
    objects.bad.add("a")
    with recorded():
        for _ in range(3):
            await objects.run("a")
        assert asked == [0, 1, 2]
        objects.walls._pause = lambda _: 3600.0
        await objects.run("a")
        objects.bad.clear()
        assert not await objects.run("a")
        assert await objects.run("a", version=2)
        assert objects.done == ["a"]


async def test_failures_that_are_remembered_have_an_end():
    objects = Objects(lambda _: 3600.0)
    objects.bad |= {str(number) for number in range(bulkhead.MOST_FAILED + 1)}
    with recorded():
        for name in sorted(objects.bad, key=int):
            await objects.run(name)
    assert len(objects.walls._failed) == bulkhead.MOST_FAILED
    objects.bad.clear()
    assert await objects.run("0")


async def test_what_is_raised_on_purpose_goes_through_and_a_status_that_fails_does_not():
    walls = ObjectWalls("Trial")

    async def refused(_why):
        raise Unavailable("away")

    async def broken(_why):
        raise ValueError("trial")

    with recorded(), pytest.raises(Unavailable):
        await walls.run("a", refused)
    with recorded():
        assert not await walls.run("a", broken)
