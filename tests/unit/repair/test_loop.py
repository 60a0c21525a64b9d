"""The controller taints nodes as policies say, and undoes it; it touches nothing of others."""

import pytest

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.model import repair as model
from kube_rdma.repair import cluster
from kube_rdma.repair.cluster import REPAIR_POLICY
from tests.unit.ipam.conftest import until
from tests.unit.repair.world import OTHER, RepairWorld


@pytest.fixture
def world():
    return RepairWorld()


async def test_a_node_with_too_few_cards_is_tainted_and_cleared_with_one_write_each(world):
    world.nodes(3)
    world.policy()
    async with world.leading():
        await until(lambda: world.status().get("result") == "no bad node")
        world.report("node-1", healthy=7)
        await until(lambda: world.tainted == {"node-1": "NoSchedule"})
        await until(lambda: world.states() == {"node-1": "Tainted"})
        world.report("node-1")
        await until(lambda: world.states() == {"node-1": "Clearing"})
        world.clock += 299
        world.report("node-1")
        assert world.tainted
        world.clock += 2
        await until(lambda: not world.tainted)
        await until(lambda: len(world.status().get("history", ())) == 2)
        await until(lambda: world.told("RepairCleared"))
    assert world.writes == ["node-1", "node-1"]
    why = "7 healthy cards, fewer than 8: mlx5_0: no port is ACTIVE"
    assert world.told("RepairTainted") == [f"Tainted kube-rdma.io/repair=cards:NoSchedule: {why}"]
    assert len(world.told("RepairCleared")) == 1
    cleared, tainted = world.status()["history"]
    assert (tainted["action"], tainted["node"], tainted["why"]) == ("Tainted", "node-1", why)
    assert cleared["action"] == "Cleared"
    assert model.KEY not in world.found("nodes", "node-1")["metadata"].get("annotations", {})


async def test_taints_of_others_stay_with_all_of_their_fields(world):
    world.node("node-0", [OTHER])
    world.report("node-0", healthy=0)
    world.policy()
    async with world.leading():
        await until(lambda: world.tainted)
        assert OTHER in world.taints("node-0")
        world.server.remove(REPAIR_POLICY, "cards")
        await until(lambda: not world.tainted)
    assert world.taints("node-0") == [OTHER]


async def test_of_three_bad_nodes_a_budget_of_two_taints_two_with_one_event(world):
    world.nodes(10)
    world.policy(budget={"nodes": 2})
    for bad in (2, 5, 7):
        world.report(f"node-{bad}", healthy=4)
    async with world.leading():
        await until(lambda: world.told("RepairOverBudget"))
        await until(lambda: world.states().get("node-7") == "OverBudget")
        world.report("node-3")
        await until(lambda: len(world.told("RepairTainted")) == 2)
    assert world.tainted == {"node-2": "NoSchedule", "node-5": "NoSchedule"}
    (note,) = world.told("RepairOverBudget")
    assert "node-7 (4 healthy cards" in note


async def test_at_most_so_many_nodes_of_a_leaf_are_tainted(world):
    for number in range(4):
        leaf = {"kube-rdma.io/leaf": f"leaf-{number // 2}"}
        world.node(f"node-{number}", labels=leaf)
        world.report(f"node-{number}", healthy=0)
    world.policy(budget={"nodes": 4, "perLeaf": 1})
    async with world.leading():
        await until(lambda: len(world.tainted) == 2)
        await until(lambda: len(world.states()) == 4)
    assert world.tainted.keys() == {"node-0", "node-2"}


async def test_a_new_policy_is_a_dry_run_that_says_what_it_would_do(world):
    world.nodes(2)
    world.report("node-0", healthy=0)
    world.policy(enforce=False)
    async with world.leading():
        await until(lambda: world.states() == {"node-0": "WouldTaint"})
    assert (world.writes, world.tainted) == ([], {})


@pytest.mark.parametrize(
    "change",
    [
        {"enforce": False},
        {"nodeSelector": {"gpu": "yes"}},
        {"when": {"errors": True}, "clearAfterSeconds": 10},
    ],
)
async def test_what_a_policy_no_longer_wants_is_undone(world, change):
    world.nodes(2)
    world.report("node-0", healthy=0)
    world.policy()
    async with world.leading():
        await until(lambda: world.status().get("result") == "1 tainted")
        world.policy(**change)
        await until(lambda: world.status().get("result") != "1 tainted")
        world.clock += 11
        await until(lambda: not world.tainted)


async def test_another_effect_replaces_the_taint(world):
    world.nodes(1)
    world.report("node-0", healthy=0)
    world.policy(taint="PreferNoSchedule")
    async with world.leading():
        await until(lambda: world.tainted == {"node-0": "PreferNoSchedule"})
        world.policy(taint="NoExecute")
        await until(lambda: world.tainted == {"node-0": "NoExecute"})


async def test_of_two_policies_the_stronger_effect_counts_until_both_are_content(world):
    world.nodes(1)
    world.report("node-0", healthy=0, degraded="symbol errors rise")
    world.policy("a", taint="PreferNoSchedule", clearAfterSeconds=10)
    world.policy("b", when={"errors": True}, clearAfterSeconds=10)
    async with world.leading():
        await until(lambda: world.tainted == {"node-0": "NoSchedule"})
        world.report("node-0", healthy=0)
        await until(lambda: world.states("b") == {"node-0": "Clearing"})
        world.clock += 11
        await until(lambda: world.tainted == {"node-0": "PreferNoSchedule"})


async def test_a_person_overrules_all_policies_for_a_node(world):
    world.nodes(1)
    world.report("node-0", healthy=0)
    world.policy()
    async with world.leading():
        await until(lambda: world.tainted)
        kept = world.taints("node-0")
        world.node("node-0", kept, annotations={model.IGNORED: "being repaired by hand"})
        await until(lambda: not world.tainted)


async def test_a_paused_policy_adds_nothing_and_removes_nothing(world):
    world.nodes(2)
    world.report("node-0", healthy=0)
    world.policy(budget={"nodes": 2})
    async with world.leading():
        await until(lambda: world.tainted)
        world.policy(annotations={model.PAUSED: "night shift"}, budget={"nodes": 2})
        world.report("node-0")
        world.report("node-1", healthy=0)
        await until(lambda: world.states() == {"node-0": "Clearing", "node-1": "WouldTaint"})
        world.clock += 10_000
        world.report("node-1", healthy=1)
        await until(lambda: "1 healthy" in str(world.status()))
    assert world.tainted == {"node-0": "NoSchedule"}


async def test_a_node_without_a_new_report_is_neither_tainted_nor_cleared(world):
    world.nodes(2)
    world.report("node-0", healthy=0)
    world.policy(budget={"nodes": 2})
    async with world.leading():
        await until(lambda: world.tainted)
        world.report("node-0", age=600)
        world.report("node-1", healthy=0, age=600)
        await until(lambda: "missing or old" in str(world.status()))
        world.clock += 10_000
        world.node("node-9")
        await until(lambda: "missing or old" in str(world.status()))
    assert world.tainted == {"node-0": "NoSchedule"}


@pytest.mark.parametrize(
    ("where", "counts"),
    [({}, True), ({"namespace": "team"}, False), ({"hours": 25}, False)],
)
async def test_only_recent_measurements_of_kube_rdma_count(world, where, counts):
    """A tenant may write BandwidthChecks in a namespace of its own."""
    world.nodes(2)
    world.measured("node-1", **where)
    world.report("node-0", healthy=0)
    world.policy(when={"slow": True, "healthyCardsBelow": 1}, budget={"nodes": 2})
    async with world.leading():
        await until(lambda: "node-0" in world.tainted)
        await until(lambda: "node-0" in world.states())
    assert ("node-1" in world.tainted) is counts


async def test_wrong_cables_count_as_the_controller_noted_them(world):
    world.node("node-0", annotations={"kube-rdma.io/fabric-faults": "mlx5_0 is plugged into x"})
    world.policy(when={"wrongCables": True})
    async with world.leading():
        await until(lambda: world.told("RepairTainted"))
    assert "plugged into x" in world.told("RepairTainted")[0]


async def test_a_policy_that_is_not_understood_says_so_and_keeps_its_taints(world):
    world.nodes(1)
    world.report("node-0", healthy=0)
    world.policy()
    async with world.leading():
        await until(lambda: world.tainted)
        world.policy(when={}, budget={"nodes": "many"})
        await until(lambda: "many" in str(world.status().get("conditions")))
        await until(lambda: world.status()["conditions"][0]["status"] == "False")
    assert world.tainted


async def test_a_policy_that_a_newer_controller_wrote_keeps_its_taints(world):
    """As after a roll-back: this one does not know a state that the newer one had."""
    taint = {"key": model.KEY, "value": "cards", "effect": "NoSchedule"}
    world.node("node-0", [taint])
    world.policy()
    newer = dict(world.found("repairpolicies", "cards"))
    entry = {"node": "node-0", "state": "Drained", "why": ""}
    world.server.put(
        REPAIR_POLICY, {**newer, "status": {"observedGeneration": 1, "nodes": [entry]}}
    )
    world.policy("other")
    async with world.leading():
        await until(lambda: world.status("other"))
    assert world.tainted == {"node-0": "NoSchedule"}


async def test_a_name_that_is_no_value_of_a_taint_is_refused(world):
    world.policy("x" * 64)
    async with world.leading():
        await until(lambda: world.status("x" * 64))
    ready, _ = world.status("x" * 64)["conditions"]
    assert "has 64 characters" in ready["message"]


async def test_a_taint_of_a_policy_that_is_gone_is_removed_by_a_new_leader(world):
    """As after a restored backup, or a policy that was deleted while no controller ran."""
    taint = {"key": model.KEY, "value": "gone", "effect": "NoExecute"}
    world.node("node-0", [taint, OTHER])
    async with world.leading():
        await until(lambda: not world.tainted)
    assert world.taints("node-0") == [OTHER]


async def test_a_node_that_is_deleted_while_tainted_comes_back_without_a_taint(world):
    world.nodes(1)
    world.report("node-0", healthy=0)
    world.policy()
    async with world.leading():
        await until(lambda: world.tainted)
        world.server.remove(NODE, "node-0")
        world.report("node-0")
        world.node("node-0")
        await until(lambda: world.states() == {})
    assert world.tainted == {}


async def test_a_policy_that_cannot_be_handled_stops_no_other(world, monkeypatch):
    real = cluster.write_status

    async def write(api, seen, status):
        if seen.name == "b":
            raise RuntimeError("a bug")
        await real(api, seen, status)

    monkeypatch.setattr(cluster, "write_status", write)
    world.nodes(1)
    world.report("node-0", healthy=0)
    world.policy("b", enforce=False)
    world.policy("c")
    async with world.leading():
        await until(lambda: world.states("c") == {"node-0": "Tainted"})
        await until(
            lambda: "cannot handle this RepairPolicy" in str(world.server.documents("events"))
        )
