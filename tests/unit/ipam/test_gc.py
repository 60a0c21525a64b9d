"""The controller's rounds, on objects that nodes wrote."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Broken
from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.ipam.gc import OUT_OF_SERVICE, run_gc
from kube_rdma_testing.cluster.server import ClientLine
from kube_rdma_testing.recording import recorded
from tests.unit.ipam.conftest import SPACE, TIMING, ask, gives, texts, until

EAGER = RequestTiming(pause=lambda _: 0.0)


@asynccontextmanager
async def patrolling(world, line=None):
    cluster = Cluster(line, EAGER) if line else world.cluster("controller")
    events = Events(cluster, "controller")
    telling = asyncio.create_task(events.run())
    task = asyncio.create_task(run_gc(cluster, SPACE, events, world.timing))
    yield
    for each in (task, telling):
        each.cancel()
    await asyncio.gather(task, telling, return_exceptions=True)
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


async def test_two_releases_leave_each_others_nodes_alone(world):
    """The leases of the other lie in its own namespace, and its node may live."""
    join(world, "node-1")
    cluster = world.cluster("other")
    other = run_gc(cluster, "other-release", Events(cluster, "other"), world.timing)
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


class FailingLine(ClientLine):
    """Requests for an object raise what nobody expects."""

    def __init__(self, server, *names):
        super().__init__(server)
        self.names = names

    async def send(self, request):
        if request.name in self.names:
            raise AttributeError(request.name)
        return await super().send(request)


async def test_an_object_that_fails_keeps_no_address_of_others_from_coming_back(world):
    """A node, a pool and a block raise something; nothing that was observed begins anew."""
    for number in (1, 2, 3):
        world.pool(f"p{number}", subnet=f"10.{number}.0.0/30")
    for name in ("node-1", "node-2"):
        join(world, name)
    line = FailingLine(world.server, "ipam.node-1", "default.10-2-0-0")
    world.server.lines.append(line)
    with recorded() as log:
        async with (
            patrolling(world, line),
            world.node("node-1") as one,
            world.node("node-2") as two,
        ):
            await one.add(ask("c1", pool="p1"))
            await two.add(ask("c2", pool="p2"))
            await two.add(ask("c3", pool="p3"))
            for name in ("node-1", "node-2"):
                world.lines[name].cut()
                world.server.remove(NODE, name)
            for _ in range(3):
                await _round(world)
                world.clock.time += TIMING.silence
            await until(lambda: held_blocks(world) == {"default.10-1-0-0", "default.10-2-0-0"})
            await until(lambda: "NotHandled" in reasons(world))
    assert {line["kind"] for line in log.of("object failed")} == {"Node", "IPBlock"}
    assert not log.of("part of the program failed")


def held_blocks(world):
    blocks = world.server.documents("ipblocks")
    return {one["metadata"]["name"] for one in blocks if one["spec"].get("holdings")}


def reasons(world):
    return {event["reason"] for event in world.server.documents("events")}


async def _round(world):
    """Wait until the controller has looked: it tells nobody, so give it some rounds' time."""
    await asyncio.sleep(10 * world.timing.gc_interval)
