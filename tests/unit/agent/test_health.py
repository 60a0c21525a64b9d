"""A card's health as pods and people see it: in the list, in the log, as Events; both ways."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.agent.handlers import Handlers
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.survey import Fault
from kube_rdma.pools import servers
from kube_rdma.pools.rules.absence import HealthChange
from kube_rdma.pools.rules.health import judge
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.selection import cards
from kube_rdma.pools.rules.selection import cards as cards_of
from kube_rdma.pools.servers import ResourceServers
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.conftest import Node, card
from tests.unit.agent.world import VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]


@pytest.fixture
def world(tmp_path_factory, recording):
    world = World(tmp_path_factory.mktemp("w"), *CARDS)
    world.label("shared")
    return world


async def test_a_dead_port_is_one_share_and_comes_back(world, recording):
    async with world.serving(world.doors()):
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
    async with world.serving(world.doors()):
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


async def test_what_the_kubelet_lost_is_told_again_then_registered_again(world):
    """Allocatable that drops to zero and stays there is the peers' oldest defect."""
    doors = world.doors()
    spec = PoolSpec("rdma/a", Mode.HCA, "test")
    survey = world.survey
    pools, _ = resolve([spec], cards(survey, judge(survey)), survey)
    async with world.kubelet, asyncio.TaskGroup() as tasks:
        desk = Handlers(doors.kubelet, doors.late, None)
        offers = ResourceServers(tasks, lambda one, pool: doors.serve(one, desk.answers(pool)))
        offers.publish(pools)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        await doors.kubelet.check(offers)
        world.kubelet.store.devices["rdma/a"].clear()
        await doors.kubelet.check(offers)
        assert world.kubelet.states["rdma/a"] == 1, "it may be an offer under way"
        await doors.kubelet.check(offers)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        for _ in range(3):
            world.kubelet.store.devices["rdma/a"].clear()
            await doors.kubelet.check(offers)
        await world.kubelet.until(lambda: world.kubelet.registrations.count("rdma/a") == 2)
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 1000)
        offers.publish(())


SPEC = PoolSpec("rdma/hca", Mode.HCA, "c")
STATES = st.sampled_from([PortState.ACTIVE, PortState.DOWN])
NAMED_CARDS = st.dictionaries(st.integers(0, 5), STATES, max_size=4)


def pool(cards):
    survey = Node(*(card(n, state) for n, state in sorted(cards.items()))).survey
    found, _ = resolve([SPEC], cards_of(survey, judge(survey)), survey)
    return found[0]


@pytest.mark.parametrize(
    ("healthy", "known", "present", "event"),
    [
        (True, True, True, "card healthy again"),
        (True, False, True, "card appeared"),
        (False, True, True, "card unhealthy"),
        (False, True, False, "card vanished"),
    ],
)
def test_what_became_of_a_card(healthy, known, present, event):
    change = HealthChange("0000:81:00.0", healthy, () if healthy else ("its cable", "its fan"))
    line = servers.of_card(change, "mlx5_0", seen_before=known, present=present)
    assert line.event == event
    assert line.facts["card"] == "mlx5_0"
    assert line.level == ("info" if healthy else "warning")
    assert healthy or line.facts["why"] == "its cable; its fan"


@given(NAMED_CARDS)
def test_no_change_is_no_news(cards):
    assert not list(servers.of_pool(pool(cards), pool(cards)))


def test_the_first_look_tells_the_pool():
    lines = list(servers.of_pool(None, pool({0: PortState.ACTIVE, 1: PortState.DOWN})))
    assert [line.event for line in lines] == ["pool"]
    assert lines[0].facts == {
        "resource": "rdma/hca",
        "shares": 1000,
        "healthy": 1000,
        "cards": "rxe0,rxe1",
    }


def test_a_node_without_cards_is_a_warning():
    (line,) = servers.of_pool(None, pool({}))
    assert line.level == "warning"


def test_faults_are_told_when_they_are_new():
    first = replace(Node().survey, faults=(Fault("a", "x"),))
    second = replace(Node().survey, faults=(Fault("a", "x"), Fault("b", "y")))
    assert [line.facts["what"] for line in servers.of_survey(first, second)] == ["b"]
    assert [line.facts["what"] for line in servers.of_survey(None, second)] == ["a", "b"]


def test_cards_that_join_or_leave_the_pools_are_told_unless_their_health_was():
    before, after = {"a": "rxe0", "b": "rxe1"}, {"b": "rxe1", "c": "rxe2", "d": "rxe3"}
    lines = list(servers.of_cards(before, after, reported={"d"}))
    assert [(line.event, line.facts["card"]) for line in lines] == [
        ("card appeared", "rxe2"),
        ("card vanished", "rxe0"),
    ]
