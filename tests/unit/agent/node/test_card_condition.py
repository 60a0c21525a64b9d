"""The condition of a node: as its cards are, one patch for each change, gone with the agent."""

import msgspec
import pytest

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import CARDS_HEALTHY, NODE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.agent.node.marks import CardCondition
from kube_rdma.model.device import PortState
from kube_rdma.reports.node_keeper import WritePace
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import LABEL, NODE_NAME, VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


class ConditionWorld(World):
    def register(self, *conditions, mode="shared"):
        """The Node object from now on, as kubelet and others write it."""
        meta = {"name": NODE_NAME, "labels": {LABEL: mode} if mode else {}}
        status = {"conditions": [READY, *conditions]}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})

    @property
    def conditions(self):
        return {c["type"]: c for c in self.server.documents("nodes")[0]["status"]["conditions"]}

    @property
    def cards(self):
        ours = self.conditions.get(CARDS_HEALTHY)
        return ours and (ours["status"], ours["message"])

    @property
    def patches(self):
        """What was written, or was to be, to the node's status."""
        requests = [one for line in self.server.lines for one in line.requests]
        bodies = [one.body for one in requests if one.resource == "nodes/status"]
        return [msgspec.json.decode(body)["status"]["conditions"][0] for body in bodies]

    def telling(self, line=None, config=None):
        nodes = Nodes(Cluster(line or self.server.line()))
        condition = CardCondition(nodes, WritePace(after=lambda *_: 0.0))
        return replace(self.dependencies(config), keepers=(condition,))

    async def listed(self):
        """Wait until the kubelet has the list: an agent that ends before leaves a socket."""
        await self.kubelet.until(lambda: self.kubelet.healthy(VKE) == 4)


@pytest.fixture
def world(tmp_path_factory):
    world = ConditionWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.register()
    return world


async def test_a_failed_card_is_one_patch_and_its_return_another(world):
    """Other conditions stay; looks that find nothing new write nothing."""
    async with world.serving(world.telling()):
        await until(lambda: world.cards == ("True", "4 of 4 cards can be used"))
        await world.again(3)
        assert len(world.patches) == 1
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.cards[0] == "False")
        message = world.cards[1]
        assert message.startswith("3 of 4 cards can be used. mlx5_1 (0000:82:00.0): no port is")
        await world.again(3)
        world.change(*CARDS)
        await until(lambda: world.cards[0] == "True")
        assert len(world.patches) == 3
        assert world.conditions["Ready"] == READY


async def test_a_transition_has_its_time_and_other_words_keep_it(world):
    async with world.serving(world.telling()):
        await until(lambda: world.cards)
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.cards[0] == "False")
        world.change(*(hard_card(n, PortState.DOWN) for n in range(4)))
        await until(lambda: world.cards[1].startswith("0 of 4"))
    assert ["lastTransitionTime" in patch for patch in world.patches[:3]] == [True, True, False]
    assert all("lastHeartbeatTime" in patch for patch in world.patches[:3])


async def test_an_agent_that_ends_takes_its_condition_along(world):
    async with world.serving(world.telling()):
        await until(lambda: world.cards)
        await world.listed()
    assert world.conditions == {"Ready": READY}


async def test_one_whose_last_answer_was_lost_takes_it_along_too(world):
    """What was written and not answered may be there."""
    line = world.server.line()
    async with world.serving(world.telling(line)):
        line.lose = 10**6
        await until(lambda: world.cards)
        line.lose = 0
        await world.listed()
    assert world.cards is None


async def test_what_a_killed_agent_left_is_mended_without_a_gap(world):
    """The first look of the next one, before the label is read, takes nothing away."""
    world.register({"type": CARDS_HEALTHY, "status": "False", "reason": "A", "message": "old"})
    async with world.serving(world.telling()):
        await until(lambda: world.cards == ("True", "4 of 4 cards can be used"))
        assert [patch.get("$patch") for patch in world.patches] == [None]
        await world.listed()


async def test_somebody_else_s_change_is_mended(world):
    async with world.serving(world.telling()):
        await until(lambda: world.cards)
        world.register({"type": CARDS_HEALTHY, "status": "Unknown", "message": "?"})
        await until(lambda: world.cards[0] == "True")
        world.register()
        await until(lambda: world.cards)
        await world.listed()


async def test_every_pod_of_a_pool_hears_of_each_of_its_cards_once(world, tmp_path):
    """A share of seed S2's pool is all cards; a pod with two shares is one pod."""
    config = tmp_path / "config.json"
    config.write_text('{"mode": "hca"}')
    world.register(mode=None)
    async with world.serving(world.telling(config=config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        shares = sorted(world.kubelet.devices["rdma/hca"])
        await world.kubelet.allocate("rdma/hca", 2, shares[:2], place=ContainerPlace("job"))
        await world.again(1)  # a look that asked the kubelet before is over
        world.change(*CARDS[:3])
        await until(lambda: world.cards[1].startswith("3 of 4"))  # the function is there yet
        world.functions(*world.survey.functions[:3])
        world.change(*CARDS[:3])
        await until(lambda: "it is gone" in world.cards[1])
        await until(lambda: len(world.events_of("RDMACardUnhealthy")) == 2)
        events = world.server.documents("events")
        about = [e["regarding"] for e in events if e["reason"] == "RDMACardUnhealthy"]
        assert sorted((one["kind"], one["name"]) for one in about) == [
            ("Node", NODE_NAME),
            ("Pod", "job"),
        ]
        assert world.cards[1].startswith("3 of 4 cards can be used. mlx5_3 (0000:84:00.0): it is")
