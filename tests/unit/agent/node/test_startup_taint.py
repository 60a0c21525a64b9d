"""The startup taint of a node: it goes when the resources are there, and nothing else goes."""

import asyncio

import pytest

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.agent.node.marks import StartupTaint
from kube_rdma.pools.rules.holdings import STARTING_FOR_AUTOSCALER
from kube_rdma.reports.node_keeper import WritePace
from tests.unit.agent.world import LABEL, NODE_NAME, VKE, World, hard_card, until

OURS = {"key": "kube-rdma.io/starting", "effect": "NoSchedule"}
OTHERS = [
    {"key": "example.org/a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    {"key": "kube-rdma.io/starting", "effect": "NoExecute"},
]


class Meddler:
    """A way to the server on which others write the node right before each of the first patches."""

    def __init__(self, line, meddle, times):
        self.line, self.meddle, self.times = line, meddle, times
        self.patches = 0

    async def send(self, request):
        if request.verb == "patch":
            self.patches += 1
            if self.patches <= self.times:
                self.meddle()
        return await self.line.send(request)


class StartingWorld(World):
    """A node that the kubelet registers with the taint."""

    def register(self, *taints, allocatable=None, mode="shared"):
        """The Node object from now on, as kubelet and others write it."""
        meta = {"name": NODE_NAME, "labels": {LABEL: mode}}
        status = {"allocatable": {VKE: str(allocatable)}} if allocatable is not None else {}
        self.server.put(NODE, {"metadata": meta, "spec": {"taints": taints}, "status": status})

    @property
    def taints(self):
        return list(self.server.documents("nodes")[0]["spec"].get("taints", ()))

    def starting(self, line=None):
        nodes = Nodes(Cluster(line or self.server.line()))
        taint = StartupTaint(nodes, WritePace(after=lambda *_: 0.0))
        return replace(self.dependencies(), keepers=(taint,))


@pytest.fixture
def world(tmp_path_factory):
    return StartingWorld(tmp_path_factory.mktemp("w"), *(hard_card(n) for n in range(4)))


async def test_it_goes_when_the_node_shows_every_share(world, recording):
    """Not when the list is published alone; other taints stay with all their fields."""
    world.register(OURS, *OTHERS)
    async with world.serving(world.starting()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        world.register(OURS, *OTHERS, allocatable=3)
        looks = world.looks
        world.change(*world.survey.devices)
        await until(lambda: world.looks > looks)
        assert OURS in world.taints
        world.register(OURS, *OTHERS, allocatable=4)
        await until(lambda: world.taints == OTHERS)
        await until(lambda: recording.of("startup taint removed"))


async def test_the_one_that_the_cluster_autoscaler_knows_goes_too(world, recording):
    known = {"key": STARTING_FOR_AUTOSCALER, "value": "true", "effect": "NoSchedule"}
    world.register(known, *OTHERS, allocatable=4)
    async with world.serving(world.starting()):
        await until(lambda: world.taints == OTHERS)
        world.register(OURS, known, *OTHERS, allocatable=4)
        await until(lambda: world.taints == OTHERS)
    taints = [one["taint"] for one in recording.of("startup taint removed")]
    assert taints[0] == f"{STARTING_FOR_AUTOSCALER}:NoSchedule"


async def test_a_node_that_is_registered_anew_loses_it_anew(world):
    """While the agent runs, and in its next life."""
    world.register(OURS, allocatable=4)
    async with world.serving(world.starting()):
        await until(lambda: world.taints == [])
        world.register(OURS, allocatable=4)
        await until(lambda: world.taints == [])
    world.register(OURS, allocatable=4)
    async with world.serving(world.starting()):
        await until(lambda: world.taints == [])


class Registering:
    """A way to the server; the node is registered anew while the first patch is answered."""

    def __init__(self, line, register):
        self.line, self.register = line, register

    async def send(self, request):
        answer = await self.line.send(request)
        if request.verb == "patch" and self.register:
            self.register()
            self.register = None
            for _ in range(20):  # the watch shows it before the answer is here
                await asyncio.sleep(0)
        return answer


async def test_what_the_watch_shows_while_the_answer_is_on_its_way_is_newer(world):
    """Nothing else would bring the agent to look again."""
    world.register(OURS, allocatable=4)
    line = Registering(world.server.line(), lambda: world.register(OURS, allocatable=4))
    async with world.serving(world.starting(line)):
        await until(lambda: line.register is None)
        await until(lambda: world.taints == [])


async def test_a_lost_race_takes_nothing_of_others_away(world):
    """What somebody adds between reading and writing is kept, and the removal is tried again."""
    world.register(OURS, allocatable=4)
    meddler = Meddler(
        world.server.line(), lambda: world.register(OURS, *OTHERS, allocatable=4), times=1
    )
    async with world.serving(world.starting(meddler)):
        await until(lambda: world.taints == OTHERS)
    assert meddler.patches == 2


async def test_it_waits_for_the_list_that_the_label_asks_for(world):
    """What is offered before the label was read is nothing, and not all."""
    world.register(OURS)
    async with world.serving(world.starting()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        for _ in range(3):
            looks = world.looks
            world.change(*world.survey.devices)
            await until(lambda before=looks: world.looks > before)
        await asyncio.sleep(0)
        assert world.taints == [OURS]
