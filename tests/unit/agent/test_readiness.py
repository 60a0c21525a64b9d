"""When an agent says that its node is ready: by what is offered, by the kubelet, by its contact."""

import asyncio

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.model.device import PortState
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.agent.conftest import Node, card, serving
from tests.unit.agent.node.test_policies import EAGER, PolicyWorld
from tests.unit.agent.world import NODE_NAME, hard_card, until

HCA = "rdma/hca"


class Probe:
    """The kubelet's, which asks when a test does."""

    health = None

    async def __call__(self, health):
        self.health = health
        await asyncio.Event().wait()

    async def failed(self):
        """The names of the checks that fail."""
        if self.health is None:
            return {"connection"}
        try:
            await self.health.readyz()
        except Unavailable as error:
            lines = str(error).splitlines()
            return {line[3:].partition(":")[0] for line in lines if line.startswith("[-]")}
        return set()

    async def until(self, *failed):
        while await self.failed() != set(failed):  # noqa: ASYNC110  the kubelet asks, too
            await asyncio.sleep(0.005)


@pytest.fixture
def probe():
    return Probe()


async def test_a_node_is_ready_while_the_kubelet_has_its_resource(settings, probe, recording):
    """The kubelet's socket is missing at first, then the kubelet refuses twice, and goes again."""
    async with serving(settings, Node(card(0)).kernel, health=probe):
        await until(lambda: recording.of("waiting for the kubelet"))
        assert await probe.failed() == {"kubelet"}
        async with FakeKubelet(settings.kubelet_dir, refusals=2) as kubelet:
            await probe.until()
            assert HCA in kubelet.registrations
            assert len(recording.of("registration failed, trying again")) == 2
        await probe.until("kubelet")


async def test_an_ill_card_is_no_reason(settings, probe):
    """It would hold up the rollout of the agents of all other nodes."""
    node = Node(card(0))
    agent = serving(settings, node.kernel, health=probe)
    async with FakeKubelet(settings.kubelet_dir) as kubelet, agent:
        await probe.until()
        node.change(card(0, PortState.DOWN))
        await kubelet.until(lambda: kubelet.healthy(HCA) == 0)
        assert await probe.failed() == set()


@pytest.fixture
def world(tmp_path_factory):
    world = PolicyWorld(tmp_path_factory.mktemp("w"), hard_card(0))
    world.server = FakeServer([NODE_POLICY])
    return world


async def test_nothing_is_ready_before_it_is_known_what_the_node_is_to_offer(world, probe):
    """Its Node object says by labels which policies and which mode count."""
    world.policy("a", ("rdma/hca", "hca"))
    async with world.serving(replace(world.following(), health=probe)):
        await until(lambda: world.looks > 0)
        assert "offer" in await probe.failed()
        world.label(None)
        await probe.until()


async def test_an_agent_out_of_contact_is_not_ready():
    """Whether it never had any, or lost it."""
    server = FakeServer([])
    line = server.line()
    cluster = Cluster(line, EAGER)
    node = NodeEvents(cluster, NODE_NAME, Events(cluster, NODE_NAME))
    assert node.unreached()
    follow = asyncio.create_task(node.follow(lambda _: None))
    await until(lambda: not node.unreached())
    line.cut()
    await until(node.unreached)
    line.mend()
    await until(lambda: not node.unreached())
    follow.cancel()
