"""A card's health as pods and people see it: in the list, in the log, as Events; both ways."""

import asyncio

import pytest

from kube_base.frozen import replace
from kube_rdma.agent.handlers import Handlers
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.pools.rails import NodeRails
from kube_rdma.pools.rules.discovery import judge
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.selection import cards
from kube_rdma.pools.servers import ResourceServers
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]


@pytest.fixture
def world(tmp_path_factory, recording):
    world = World(tmp_path_factory.mktemp("w"), *CARDS)
    world.label("shared")
    return world


async def test_a_dead_port_is_one_share_and_comes_back(world, recording):
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        await world.kubelet.allocate(VKE, 1, ("0000:82:00.0-0",), place=ContainerPlace("job"))
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await world.kubelet.until(lambda: world.kubelet.devices[VKE]["0000:82:00.0-0"] is False)
        assert world.kubelet.healthy(VKE) == 3
        await until(lambda: len(world.events_of("RDMACardUnhealthy")) == 2)
        about = [e["regarding"] for e in world.server.documents("events")]
        assert {(one["kind"], one["name"]) for one in about} == {("Node", "node-1"), ("Pod", "job")}
        assert "port 1 is DOWN" in world.events_of("RDMACardUnhealthy")[0]
        world.change(*CARDS)
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        await until(lambda: world.events_of("RDMACardHealthy"))


async def test_a_card_inside_a_pod_is_not_gone(world):
    """Its interface and devices are out of sight, its function and its holder are not."""
    world.label("exclusive")
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        await world.kubelet.allocate(VKE, 1, ("0000:82:00.0-0",), place=ContainerPlace("job"))
        functions = world.survey.functions
        world.functions(functions[0], replace(functions[1], netdevs=()), *functions[2:])
        world.change(CARDS[0], *CARDS[2:])
        world.change(CARDS[0], *CARDS[2:], announcements=0)
        looks = world.looks
        await until(lambda: world.looks > looks)
        assert world.kubelet.healthy(VKE) == 4
        # Pulled out for real: the function itself is gone.
        world.functions(functions[0], *functions[2:])
        world.change(CARDS[0], *CARDS[2:])
        await world.kubelet.until(lambda: len(world.kubelet.devices[VKE]) == 3)


async def test_a_node_is_idle_until_a_pod_holds_a_card(world):
    told = []

    class SpiedRails(NodeRails):
        async def see(self, *_, idle):
            told.append(idle)

    async with world.serving(replace(world.dependencies(), rails=SpiedRails())):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) > 0)
        await world.again(1)
        assert told[-1]
        await world.kubelet.allocate(VKE, 1)
        await world.again(2)
        assert not told[-1]


async def test_what_the_kubelet_lost_is_told_again_then_registered_again(world):
    """Allocatable that drops to zero and stays there is the peers' oldest defect."""
    dependencies = world.dependencies()
    spec = PoolSpec("rdma/a", Mode.HCA, "test")
    survey = world.survey
    pools, _ = resolve([spec], cards(survey, judge(survey)), survey)
    async with world.kubelet, asyncio.TaskGroup() as tasks:
        desk = Handlers(dependencies.kubelet, dependencies.late, None)
        offers = ResourceServers(
            tasks, lambda one, pool: dependencies.serve(one, desk.answers(pool))
        )
        offers.publish(pools)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        await dependencies.kubelet.check(offers)
        world.kubelet.store.devices["rdma/a"].clear()
        await dependencies.kubelet.check(offers)
        assert world.kubelet.states["rdma/a"] == 1, "it may be an offer under way"
        await dependencies.kubelet.check(offers)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        for _ in range(3):
            world.kubelet.store.devices["rdma/a"].clear()
            await dependencies.kubelet.check(offers)
        await world.kubelet.until(lambda: world.kubelet.registrations.count("rdma/a") == 2)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        offers.publish(())
