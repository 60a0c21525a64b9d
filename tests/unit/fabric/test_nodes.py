"""The controller's labels of leaves and Events of cables, on an API server in memory."""

import pytest

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.fabric.nodes import FabricTiming
from kube_rdma.fabric.rules.leaves import FAULTS, LEAVES, OWN
from kube_rdma_testing.recording import recorded
from tests.unit.agent.world import until
from tests.unit.fabric.world import FabricWorld

BLOCK, ACK = "kube-rdma.io/block", "alibabacloud.com/asw-id"
SLOW = FabricTiming(settle=25.0, silent=100.0, apart=0.0, again=0.01, pause=lambda _: 0.0)


@pytest.fixture
def world():
    """Four nodes with two cards each; rail 0 is on leaf-a, rail 1 on leaf-b."""
    world = FabricWorld()
    for n in range(1, 5):
        world.report(f"node-{n}", f"leaf-a swp{n}", f"leaf-b swp{n}")
    return world


async def test_nodes_of_common_leaves_have_common_labels(world):
    world.report("node-5", "leaf-c swp1", "leaf-c swp2")
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 6)))
    assert {world.label(f"node-{n}") for n in range(1, 5)} == {"leaf-a__leaf-b"}
    assert {world.label(f"node-{n}", BLOCK) for n in range(1, 5)} == {"leaf-a__leaf-b"}
    assert (world.label("node-5"), world.label("node-5", BLOCK)) == ("leaf-c", "leaf-c")


async def test_accepted_cables_decide_the_block_while_some_are_swapped():
    """Else two of four nodes with swapped cables would be alike, and all four one block."""
    small, leaves = FabricWorld(), {"node-1": "a", "node-2": "a", "node-3": "b", "node-4": "b"}
    for n, (name, leaf) in enumerate(leaves.items()):
        small.report(name, f"{leaf} swp{2 * n}", f"{leaf} swp{2 * n + 1}")
        small.expect(name, f"{leaf} swp{2 * n}", f"{leaf} swp{2 * n + 1}")
    small.report("node-2", "b swp4", "a swp3")
    small.report("node-3", "a swp2", "b swp5")
    async with small.running():
        await until(lambda: [small.label(name) for name in leaves] == ["a", "a__b", "a__b", "b"])
        assert {name: small.label(name, BLOCK) for name in leaves} == leaves


async def test_a_label_of_another_project_is_written_and_goes_again(world):
    async with world.running("write-ack"):
        await until(lambda: world.label("node-4", ACK) == "leaf-a__leaf-b")
    async with world.running():
        await until(lambda: not world.label("node-4", ACK))
    assert world.label("node-4") == "leaf-a__leaf-b"


async def test_labels_of_others_stay(world):
    world.node("node-1", {"kube-rdma.io/leaf": "mine"})
    async with world.running():
        await until(lambda: world.label("node-1", BLOCK))
        assert world.label("node-1") == "mine"
        world.node("node-1", {"kube-rdma.io/leaf": "mine"}, world.notes("node-1"))
        await until(lambda: world.label("node-1", BLOCK))
    async with world.running("remove"):
        await until(lambda: OWN not in world.notes("node-4"))
        await until(lambda: not world.label("node-1", BLOCK))
    assert world.nodes["node-1"]["labels"] == {"kube-rdma.io/leaf": "mine"}
    assert not any(world.notes(name) for name in world.nodes)


async def test_at_rest_nothing_is_written_nor_by_the_next_leader(world):
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
    assert len(world.writes) == 4
    async with world.running():
        world.report("node-5", "leaf-a swp5", "leaf-b swp5")
        await until(lambda: world.label("node-5"))
    assert len(world.writes) == 5


async def test_silence_and_an_agent_that_is_away_change_nothing(world):
    """Also for a leader that never heard the switch."""
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
    world.report("node-1", "", "leaf-b swp1")
    world.report("node-2", "", "")
    world.server.remove(NODE_REPORT, "node-3")
    async with world.running():
        world.report("node-5", "leaf-a swp5", "leaf-b swp5")
        await until(lambda: world.label("node-5"))
    assert {world.label(f"node-{n}") for n in range(1, 6)} == {"leaf-a__leaf-b"}
    assert len(world.writes) == 5


async def test_a_node_that_moves_gets_other_labels(world):
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
        world.report("node-1", "leaf-c swp1", "leaf-d swp1")
        await until(lambda: world.label("node-1") == "leaf-c__leaf-d")
    assert world.label("node-1", BLOCK) == "leaf-c__leaf-d"
    assert len(world.writes) == 5


async def test_neighbours_that_change_every_second_write_nothing(world):
    """4,096 switches, one after the other; then one stays."""
    now = [0.0]
    async with world.running(timing=SLOW, clock=lambda: now[0]):
        await until(lambda: world.line.watching == 2)
        now[0] = 25.0
        world.node("poke")
        await until(lambda: world.label("node-4"))
        writes = len(world.writes)
        for n in range(4096):
            if n % 512 == 0:  # an Event, by which all before it was seen
                world.expect("node-4", f"leaf-{n}z swp4")
                await until(lambda n=n: len(world.events) > n // 512)
                now[0] += 20.0
            world.report("node-5", f"leaf-{n} swp1")
        world.expect("node-4", "leaf-z swp4")
        await until(lambda: len(world.events) == 9)
        assert len(world.writes) == writes + 9
        assert world.label("node-5") is None
        now[0] += 25.0
        world.expect("node-4", "leaf-a swp4")
        await until(lambda: world.label("node-5") == "leaf-4095")


async def test_a_port_that_is_silent_makes_a_node_wait_longer(world):
    """As after the start of an agent, which has heard one of two switches so far."""
    now = [0.0]
    world.report("node-1", "leaf-a swp1", "")
    async with world.running(timing=SLOW, clock=lambda: now[0]):
        await until(lambda: world.line.watching == 2)
        now[0] = 25.0
        world.node("poke")
        await until(lambda: world.label("node-4"))
        assert world.label("node-1") is None
        now[0] = 100.0
        world.node("poke", {"again": "1"})
        await until(lambda: world.label("node-1") == "leaf-a")
    assert world.label("node-1", BLOCK) == "leaf-a__leaf-b"


async def test_a_node_that_lies_has_other_labels_alone(world):
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
        lies = [f"leaf-{x} swp1" for x in "abcdefgh"]
        world.report("node-1", *lies)
        await until(lambda: world.label("node-1") != "leaf-a__leaf-b")
    assert {world.label(f"node-{n}", BLOCK) for n in range(2, 5)} == {"leaf-a__leaf-b"}
    assert len(world.writes) == 5


# Cables that are not as expected.

SWAPPED = (
    "node-1 mlx5_0 is in leaf-b swp2, and belongs in leaf-a swp1; "
    "node-2 mlx5_1 is in leaf-a swp1, and belongs in leaf-b swp2"
)


def expecting(world):
    for n in range(1, 5):
        world.expect(f"node-{n}", f"leaf-a swp{n}", f"leaf-b swp{n}")


async def test_two_swapped_cables_are_told_once_at_both_nodes_and_so_is_their_mending(world):
    expecting(world)
    world.report("node-1", "leaf-b swp2", "leaf-b swp1")
    world.report("node-2", "leaf-a swp2", "leaf-a swp1")
    told = [("node-1", "CablesWrong", SWAPPED), ("node-2", "CablesWrong", SWAPPED)]
    async with world.running():
        await until(lambda: sorted(world.events) == told)
    now = [0.0]
    async with world.running(timing=SLOW, clock=lambda: now[0]):  # the next leader
        await until(lambda: world.line.watching == 2)
        now[0] = 25.0
        world.report("node-3", "leaf-a swp3", "leaf-b swp3", "leaf-b swp40")
        for n in (1, 2):
            world.report(f"node-{n}", f"leaf-a swp{n}", f"leaf-b swp{n}")
        world.expect("node-4", "leaf-z swp4", "leaf-b swp4")
        await until(lambda: len(world.events) == 3)
        assert sorted(world.events)[:2] == told
        world.expect("node-4", "leaf-a swp4", "leaf-b swp4")
        now[0] = 50.0
        world.node("poke")
        await until(lambda: len(world.events) == 7)
    mended = "Nothing is wrong with the cables any more"
    assert {event for event in world.events if event[0] in ("node-1", "node-2")} == {
        *told,
        ("node-1", "CablesMended", mended),
        ("node-2", "CablesMended", mended),
    }
    assert FAULTS not in world.notes("node-1")


async def test_an_expectation_that_is_written_counts_at_once(world):
    now = [0.0]
    async with world.running(timing=SLOW, clock=lambda: now[0]):
        await until(lambda: world.line.watching == 2)
        now[0] = 25.0
        world.node("poke")
        await until(lambda: world.label("node-4"))
        world.expect("node-1", "leaf-z swp1", "leaf-b swp1")
        await until(lambda: world.events)
    ((node, reason, note),) = world.events
    assert (node, reason) == ("node-1", "CablesWrong")
    assert note == "node-1 mlx5_0 is in leaf-a swp1, and belongs in leaf-z swp1"


# What goes wrong.


async def test_a_missing_right_is_logged_for_the_first_nodes_and_tried_again(world):
    world.server.forbidden = {("patch", "nodes")}
    with recorded() as log:
        async with world.running():
            await until(lambda: len(world.line.requests) > 30)
            world.server.forbidden = set()
            await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
    assert len(log.of("labels of leaves not written")) == 3


async def test_a_report_that_is_garbled_hides_no_other(world):
    world.server.put(NODE_REPORT, {"metadata": {"name": "node-1"}, "status": {"cards": "x"}})
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(2, 5)))
    assert world.label("node-1") is None


async def test_a_report_without_a_node_is_no_trouble(world):
    world.report("gone", "leaf-a swp9", node=False)
    async with world.running():
        await until(lambda: all(world.label(f"node-{n}") for n in range(1, 5)))
        world.server.remove(NODE, "node-4")
        world.server.remove(NODE_REPORT, "node-4")
        world.report("node-5", "leaf-a swp5", "leaf-b swp5")
        await until(lambda: world.label("node-5"))


async def test_a_name_that_is_no_label_is_made_one(world):
    world.report("node-1", "\x1b[2J;{} swp1", "leaf-b swp1")
    async with world.running():
        await until(lambda: world.label("node-1"))
    assert LEAVES in world.notes("node-1")
