"""Slices of an agent's node: as its pools are, one write for a change, back when deleted."""

import asyncio

import pytest

from kube_base.frozen import replace
from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE, WITHOUT, resource_slice
from kube_rdma.claims import publisher
from kube_rdma.claims.publisher import SlicePublisher
from kube_rdma.model.device import PortState
from kube_rdma.reports.node_keeper import WritePace
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside
from tests.unit.agent.world import NODE_NAME, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]
NAMES = [f"0000-{0x81 + n:02x}-00-0" for n in range(4)]
AT_ONCE = WritePace(after=lambda *_: 0.0)
EAGER = RequestTiming(pause=lambda _: 0.0)
SHARED, MULTI = "shared", "shared-multi"


class ClaimWorld(World):
    """A node whose API server knows slices, or (without a kind) does not."""

    def serve(self, *kinds, mode=MULTI, gates_off=()):
        """Another API server from now on, with the Node object."""
        self.server = FakeServer(kinds)
        self.server.gates_off |= set(gates_off)
        self.label(mode)

    @property
    def stored(self):
        return self.server.documents("resourceslices")

    @property
    def devices(self):
        """By name."""
        return {one["name"]: one for part in self.stored for one in part["spec"]["devices"]}

    @property
    def cards(self):
        """The names of cards that are offered, whatever else of their shares is."""
        return sorted(name for name in self.devices if "-s" not in name)

    def taints(self, name):
        return [taint["effect"] for taint in self.devices[name].get("taints", ())]

    @property
    def writes(self):
        """The verbs of all writes of slices."""
        requests = [request for line in self.server.lines for request in line.requests]
        verbs = {"create", "update", "delete", "patch"}
        return [r.verb for r in requests if r.plural == "resourceslices" and r.verb in verbs]

    def publishing(self, line=None, *, dranet=False):
        """The agent's dependencies of role node, with the option."""
        cluster = Cluster(line or self.server.line(), EAGER)
        dependencies = self.dependencies()
        keeper = SlicePublisher(
            cluster, NODE_NAME, dependencies.rails.number, AT_ONCE, dranet=dranet
        )
        return replace(dependencies, keepers=(keeper,))


@pytest.fixture
def world(tmp_path_factory):
    world = ClaimWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.serve(RESOURCE_SLICE)
    return world


async def test_a_node_offers_its_cards_in_one_write_and_a_rest_writes_nothing(world):
    """Nor does the agent's next life. The Node owns the slice, so that it goes with it."""
    async with world.serving(world.publishing()):
        await until(lambda: world.cards == NAMES)
        (part,) = world.stored
        (node,) = world.server.documents("nodes")
        (owner,) = part["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
        assert part["spec"]["pool"] == {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1}
        device = world.devices[NAMES[1]]
        assert device["allowMultipleAllocations"] is True
        assert device["attributes"]["rdmaDevice"] == {"string": "mlx5_1"}
        assert device["attributes"]["rail"] == {"int": 1}
        assert device["capacity"]["slots"]["requestPolicy"]["default"] == "1"
        await world.again(3)
        assert world.writes == ["create"]
    spec = {**part["spec"], "driver": "gpu.nvidia.com"}  # another's, which is left alone
    world.server.put(RESOURCE_SLICE, {"metadata": {"name": "gpus"}, "spec": spec})
    async with world.serving(world.publishing()):
        await world.again(3)
    assert world.writes == ["create"]


async def test_devices_have_dranet_s_names_by_choice_and_lose_them_again(world):
    """What a link that is down does not show is kept under both names."""
    async with world.serving(world.publishing(dranet=True)):
        await until(lambda: world.cards == NAMES)
        attributes = world.devices[NAMES[1]]["attributes"]
        assert attributes["dra.net/rdma"] == {"bool": True}
        assert attributes["dra.net/isSriovVf"] == {"bool": False}
        assert attributes["dra.net/rdmaDevice"] == attributes["rdmaDevice"]
        assert attributes["dra.net/ifName"] == attributes["interface"]
        assert attributes["dra.net/encapsulation"] == {"string": "ether"}
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.taints(NAMES[1]) == ["NoSchedule"])
        assert world.devices[NAMES[1]]["attributes"] == attributes
        await world.again(2)
        assert world.writes == ["create", "update"]
    async with world.serving(world.publishing()):
        await until(lambda: "dra.net/rdma" not in world.devices[NAMES[0]]["attributes"])
        assert world.devices[NAMES[0]]["attributes"]["rdmaDevice"] == {"string": "mlx5_0"}


async def test_slices_that_the_kubelet_deletes_or_others_edit_come_again(world):
    async with world.serving(world.publishing()):
        await until(lambda: world.cards == NAMES)
        (part,) = world.stored
        world.server.remove(RESOURCE_SLICE, part["metadata"]["name"])
        await until(lambda: world.cards == NAMES)
        (part,) = world.stored
        world.server.put(RESOURCE_SLICE, part | {"spec": part["spec"] | {"devices": []}})
        await until(lambda: world.cards == NAMES)
    assert world.writes == ["create", "create", "update"]


async def test_a_slice_whose_reader_raises_something_harms_no_other(world, monkeypatch):
    """Somebody wrote it; those of the node are kept as ever."""

    def read(stored):
        if stored.name == "odd":
            raise AttributeError("x")
        return resource_slice(stored)

    monkeypatch.setattr(publisher, "resource_slice", read)
    async with world.serving(world.publishing()):
        await until(lambda: world.cards == NAMES)
        (part,) = world.stored
        spec = part["spec"] | {"devices": []}
        world.server.put(RESOURCE_SLICE, {"metadata": {"name": "odd"}, "spec": spec})
        world.server.remove(RESOURCE_SLICE, part["metadata"]["name"])
        await until(lambda: world.cards == NAMES)


async def test_without_consumable_capacity_shares_are_devices(world, recording):
    """What the server dropped is told once, remembered by the slices, and asked again if wiped."""
    world.serve(RESOURCE_SLICE, gates_off=["DRAConsumableCapacity"])
    async with world.serving(world.publishing()):
        await until(lambda: f"{NAMES[0]}-s15" in world.devices)
        assert len(world.devices) == 64
        assert world.writes == ["create", "update"]
        (part,) = world.stored
        assert part["metadata"]["annotations"] == {WITHOUT: "DRAConsumableCapacity"}
    async with world.serving(world.publishing()):
        await world.again(2)
        assert world.writes == ["create", "update"]
        world.server.gates_off.clear()
        world.server.remove(RESOURCE_SLICE, part["metadata"]["name"])
        await until(lambda: world.cards == NAMES)
    (warning,) = recording.of("feature gate off")
    assert warning["gate"] == "DRAConsumableCapacity"


async def test_an_answer_that_got_lost_makes_no_second_slice(world):
    line = world.server.line()
    async with world.serving(world.publishing(line)):
        await until(lambda: world.cards == NAMES)
        line.lose = 1
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.taints(NAMES[1]) == ["NoSchedule"])
        world.change(*CARDS)
        await until(lambda: not world.taints(NAMES[1]))
        assert len(world.stored) == 1


async def test_without_the_kind_one_line_says_so_and_all_else_goes_on(world, recording):
    """When it is installed the slices appear."""
    world.serve()
    async with world.serving(world.publishing()):
        await until(lambda: recording.of("resource slices not written"))
        await world.again(3)
        (warning,) = recording.of("resource slices not written")
        assert "resourceslices.resource.k8s.io" in warning["why"]
        world.server.add(RESOURCE_SLICE)
        await until(lambda: world.cards == NAMES)


async def test_without_the_kind_the_api_server_is_asked_at_the_pace_of_failures(world):
    world.serve()
    line = world.server.line()
    pace = WritePace(after=lambda *_: 3600.0)
    keeper = SlicePublisher(Cluster(line, EAGER), NODE_NAME, None, pace)
    assert keeper.offered() is None
    async with beside(keeper.run()):
        await until(lambda: line.requests)
        await asyncio.sleep(0.01)
    assert (len(line.requests), keeper.offered()) == (1, frozenset())


async def test_a_missing_right_is_in_the_log_once(world, recording):
    world.server.forbidden.add(("create", "resourceslices"))
    async with world.serving(world.publishing()):
        await until(lambda: world.writes.count("create") > 2)
        (warning,) = recording.of("resource slices not written")
        assert 'resources: ["resourceslices"], verbs: ["create"]' in warning["why"]
        world.server.forbidden.clear()
        await until(lambda: world.cards == NAMES)
