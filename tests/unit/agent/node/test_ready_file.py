"""When an agent says that its node is ready: by the kubelet, by the CNI side, by its disk."""

import asyncio
from typing import ClassVar

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.agent.node.ready_file import ReadyFile
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.pools.servers import ResourceServers
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.kit.beside import beside
from tests.unit.agent.conftest import Node, card, serving
from tests.unit.agent.node.test_policies import PolicyWorld
from tests.unit.agent.world import hard_card, until

HCA = "rdma/hca"


@pytest.fixture
def ready(tmp_path):
    """The termination log of a container that starts: there, and empty."""
    path = tmp_path / "termination-log"
    path.touch()
    return ReadyFile(path)


def telling(ready, *waits):
    return beside(ready.run(*waits))


class Waits:
    """Two things that somebody brings about, with a sentence each."""

    def __init__(self):
        self.first, self.second = asyncio.Event(), asyncio.Event()

    async def of_first(self):
        await self.first.wait()
        return "First."

    async def of_second(self):
        await self.second.wait()
        return "Second."


async def test_it_is_written_after_all_waits_and_emptied_at_the_end(ready):
    """In whatever order they come about; what stayed would be shown as the reason of the end."""
    waits = Waits()
    waits.second.set()
    async with telling(ready, waits.of_first, waits.of_second):
        await asyncio.sleep(0)
        assert ready.path.read_text() == ""
        waits.first.set()
        await until(lambda: ready.path.read_text() == "First.\nSecond.")
    assert ready.path.read_text() == ""


async def test_a_file_that_is_not_there_is_not_made(tmp_path):
    """It would be the host's, or outlive the container: Ready by the word of an earlier start."""
    ready = ReadyFile(tmp_path / "other")
    with pytest.raises(Unavailable, match=r"other cannot be written \(No such file or directory"):
        await ready.run()
    assert not list(tmp_path.iterdir())


async def test_what_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(Unavailable, match="has to name the container's terminationMessagePath"):
        await ReadyFile(tmp_path).run()


async def sentence():
    return "One."


async def test_an_agent_whose_file_is_missing_serves_all_the_same(settings, recording, tmp_path):
    """It says so once, and the kubelet has its resource."""
    agent = serving(settings, Node(card(0)).kernel, ready=ReadyFile(tmp_path / "missing"))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, agent:
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        await until(lambda: recording.of("part of the program failed"))
    assert {line["part"] for line in recording.of("part of the program failed")} == {"ready file"}


async def test_a_node_is_ready_once_the_kubelet_took_its_resource(settings, ready, recording):
    """The kubelet's socket is missing at first, then the kubelet refuses twice."""
    async with serving(settings, Node(card(0)).kernel, ready=ready):
        await until(lambda: recording.of("waiting for the kubelet"))
        assert ready.path.read_text() == ""
        async with FakeKubelet(settings.kubelet_dir, refusals=2) as kubelet:
            await until(ready.path.read_text)
            assert HCA in kubelet.registrations
            assert len(recording.of("registration failed, trying again")) == 2
            assert ready.path.read_text() == f"Resources: {HCA}."


@pytest.fixture
def world(tmp_path_factory):
    world = PolicyWorld(tmp_path_factory.mktemp("w"), hard_card(0))
    world.server = FakeServer([NODE_POLICY])
    return world


async def test_nothing_is_ready_before_it_is_known_what_the_node_is_to_offer(world, ready):
    """Its Node object says by labels which policies and which mode count."""
    world.policy("a", ("rdma/hca", "hca"))
    async with world.serving(replace(world.following(), ready=ready)):
        await until(lambda: world.looks > 0)
        assert ready.path.read_text() == ""
        world.label(None)
        await until(ready.path.read_text)
        assert ready.path.read_text() == "Resources: rdma/hca."


async def test_a_resource_that_is_taken_away_meanwhile_is_not_waited_for():
    """The kubelet is away and never hears of it."""
    async with asyncio.TaskGroup() as tasks:
        offers = ResourceServers(tasks, lambda one, _: Deaf(one.resource))
        offers.publish([pool("rdma/a"), pool("rdma/b")])
        waiting = tasks.create_task(offers.until_registered())
        await asyncio.sleep(0)
        offers.publish([pool("rdma/b")])
        await asyncio.sleep(0)
        assert not waiting.done()
        Deaf.made["rdma/b"].registered.set()
        assert await waiting == ("rdma/b",)
        offers.publish(())


def pool(resource):
    return Pool(PoolSpec(resource, Mode.HCA, "test"), (), ())


class Deaf:
    """A server of which the kubelet does not know yet."""

    made: ClassVar = {}

    def __init__(self, resource):
        self.registered = asyncio.Event()
        self.made[resource] = self

    async def run(self):
        await asyncio.get_running_loop().create_future()

    def publish(self, offer):
        pass
