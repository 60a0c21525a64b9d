"""The controller's rounds, on objects that nodes wrote."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Broken
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.programs.ipam.gc import OUT_OF_SERVICE, run_gc

from .conftest import SPACE, TIMING, ask, gives, texts, until


@asynccontextmanager
async def patrolling(world):
    task = asyncio.create_task(run_gc(world.cluster("controller"), SPACE, world.timing))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


def join(world, name, *taints):
    spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
    world.server.put(NODE, {"metadata": {"name": name}, "spec": spec})


async def test_addresses_of_a_node_that_is_declared_dead_come_back(world):
    """Not before T and margin; when the node lives after all, it says which addresses it lost."""
    world.pool("small", subnet="10.1.0.0/30")  # two addresses
    join(world, "node-1")
    join(world, "node-2")
    async with patrolling(world), world.node("node-1") as one, world.node("node-2") as two:
        lost = [texts(await one.add(ask(f"c{n}", pool="small"))) for n in range(2)]
        world.lines["node-1"].cut()
        join(world, "node-1", OUT_OF_SERVICE)
        await _round(world)
        world.clock.time += TIMING.silence / 2
        await _round(world)
        assert world.held("node-1") == 2
        world.clock.time += TIMING.silence / 2
        await until(lambda: world.held("node-1") == 0)
        await until(lambda: gives(two))
        found = [texts(await two.add(ask(f"d{n}", pool="small"))) for n in range(2)]
        assert sorted(found) == sorted(lost)
        join(world, "node-1")
        world.lines["node-1"].mend()
        await until(lambda: gives(one, lost=2))
        with pytest.raises(Broken, match=r"no longer held by node node-1.*delete the pod uid-c0"):
            await one.add(ask("c0", pool="small"))


async def test_a_node_that_is_only_silent_keeps_its_addresses(world):
    """Without a taint nothing is taken from a node, however long it is cut off."""
    join(world, "node-1")
    async with patrolling(world), world.node("node-1") as one:
        await one.add(ask("c1"))
        held = world.held("node-1")
        world.lines["node-1"].cut()
        for _ in range(3):
            world.clock.time += TIMING.silence
            await _round(world)
        assert world.held("node-1") == held


async def test_two_releases_leave_each_others_nodes_alone(world):
    """The leases of the other lie in its own namespace, and its node may live."""
    join(world, "node-1")
    other = run_gc(world.cluster("other"), "other-release", world.timing)
    task = asyncio.create_task(other)
    async with world.node("node-1") as one:
        given = texts(await one.add(ask("c1")))
        world.server.remove(NODE, "node-1")
        for _ in range(3):
            await _round(world)
            world.clock.time += TIMING.silence
        await until(lambda: gives(one))
        assert texts(await one.add(ask("c1"))) == given
        namespaces = {each["metadata"]["namespace"] for each in world.server.documents("leases")}
        assert namespaces == {SPACE}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_empty_goes(world):
    """A block that nobody holds is deleted, and the lease of a node that is gone, too."""
    world.pool("p", rest=0, block=1)
    join(world, "node-1")
    async with patrolling(world):
        async with world.node("node-1") as one:
            await one.add(ask("c1"))
            await one.delete("c1")
            assert world.server.documents("ipblocks")
        world.server.remove(NODE, "node-1")
        await _round(world)
        world.clock.time += TIMING.silence
        await _round(world)
        world.clock.time += TIMING.silence
        await until(lambda: not world.server.documents("ipblocks"))
        await until(lambda: not world.server.documents("leases"))


async def test_a_patrol_begins_only_with_a_whole_picture(world):
    """While the nodes cannot be watched, no node is taken for gone."""
    world.server.forbidden.add(("list", "nodes"))
    async with patrolling(world), world.node("node-1") as one:
        await one.add(ask("c1"))
        for _ in range(3):
            world.clock.time += 2 * TIMING.silence
            await until(lambda: gives(one))
        assert world.held("node-1")
        world.server.forbidden.clear()


async def _round(world):
    """Wait until the controller has looked: it tells nobody, so give it some rounds' time."""
    await asyncio.sleep(10 * world.timing.gc_interval)
