"""A CNI plugin that hangs holds up nobody but the pods that asked for it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.socket import CALLER
from kube_rdma.attach.executor import WorkerPools
from kube_rdma.lib.logs import BLOCKING
from kube_rdma.model.pools import Mode
from tests.unit.agent.world import until
from tests.unit.attach.network_world import World, card, config, share


class Hanging:
    """A plugin that fails when it is let go. `calls` are those that have begun."""

    def __init__(self):
        self.calls, self._free = [], Event()

    def call(self, environment, _):
        self.calls.append(environment["CNI_COMMAND"])
        self._free.wait()
        raise Unavailable("it did not end")

    def let_go(self):
        self._free.set()


@pytest.fixture
async def world(tmp_path):
    """A node with a network of ours and one of another plugin; few threads, as the agent has."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(BLOCKING))
    cards = [card(0)]
    networks = {"default/rdma": config("macvlan"), "default/other": config("bridge")}
    return World(tmp_path / "w", cards, [share(cards[0], Mode.SHARED_MULTI)], networks)


async def test_a_pod_of_ours_comes_and_goes_while_plugins_hang(world):
    """As many as the loop has threads; their pods fail when the plugins do."""
    hanging = Hanging()
    world.host.plugins["bridge"] = hanging.call
    world.ask("other")
    stuck = [asyncio.create_task(world.add(world.sandbox())) for _ in range(BLOCKING)]
    try:
        await until(lambda: len(hanging.calls) == BLOCKING)
        world.ask("rdma")
        number = world.sandbox()
        await world.add(number)
        assert "net1" in world.inside(number)[0]
        await world.check(number)
        await world.delete(number)
        assert not any(task.done() for task in stuck)
    finally:
        hanging.let_go()
        found = await asyncio.gather(*stuck, return_exceptions=True)
    assert {type(one) for one in found} == {Unavailable}


@pytest.mark.parametrize("plugins", [False, True])
async def test_each_kind_of_work_has_its_bound(plugins):
    """The third of three waits for one of two threads, and the other kind does not."""
    threads, begun, free = WorkerPools(steps=2, plugins=2), [], Event()

    def work(number):
        begun.append(number)
        free.wait()
        return number

    tasks = [asyncio.create_task(threads.run(work, one, plugins=plugins)) for one in range(3)]
    try:
        await until(lambda: len(begun) == 2)
        assert await threads.run(lambda: "other", plugins=not plugins) == "other"
        assert begun == [0, 1]
    finally:
        free.set()
    assert await asyncio.gather(*tasks) == [0, 1, 2]


class Gone:
    hung_up = False
    place = None


async def test_what_nobody_waits_for_any_more_is_not_begun():
    """It is dropped when its turn comes; the end of what it had is done all the same, and first."""
    threads, begun, free = WorkerPools(steps=1), [], Event()
    caller = Gone()
    CALLER.set(caller)

    def work(name):
        begun.append(name)
        free.wait()

    tasks = [asyncio.create_task(threads.run(work, "first", plugins=False, begins=True))]
    await until(lambda: begun)
    for name, begins in (("second", True), ("end", False)):
        run = threads.run(work, name, plugins=False, begins=begins)
        tasks.append(asyncio.create_task(run))
    await asyncio.sleep(0)
    caller.hung_up = True
    free.set()
    first, second, end = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, end, begun) == (None, None, ["first", "end"])
    assert isinstance(second, Unavailable)


async def test_an_add_whose_runtime_hung_up_touches_no_kernel_and_keeps_no_address(world):
    """It gave up while the pod was planned: all is given back, and the journal knows nothing."""
    world.ask("rdma")
    caller = Gone()
    caller.hung_up = True
    token = CALLER.set(caller)
    number = world.sandbox()
    with pytest.raises(Unavailable, match="gave up this call"):
        await world.add(number)
    CALLER.reset(token)
    assert "net1" not in world.inside(number)[0]
    world.nothing_left(number)
    await world.add(world.sandbox())
