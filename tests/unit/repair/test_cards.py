"""A bad card that claims use gets DeviceTaintRules of its own, and its node stays in use."""

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE, TAINT_RULE
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER, DeviceSelector, DeviceTaint, TaintRuleSpec
from kube_rdma.repair.cluster import REPAIR_POLICY, create_rule, delete_rule
from tests.unit.ipam.conftest import until
from tests.unit.repair.world import RepairWorld

BAD, DEVICE, RISES = "0000:07:00.0", "0000-07-00-0", "symbol errors rise"
WHEN = {"errors": True, "slow": True}


@pytest.fixture
def world():
    made = RepairWorld()
    made.nodes(3)
    for node in ("node-0", "node-1", "node-2"):
        made.devices(node)
    return made


def policy(world, **spec):
    world.policy(**{"when": WHEN, "deviceTaint": "NoSchedule", **spec})


async def test_a_degraded_card_gets_one_rule_and_loses_it_when_it_is_well_for_long_enough(world):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.states() == {("node-1", BAD): "Tainted"})
        (rule,) = world.server.documents("devicetaintrules")
        assert rule["spec"] == {
            "taint": {"key": model.KEY, "effect": "NoSchedule", "value": "cards"},
            "deviceSelector": {"driver": DRIVER, "pool": "node-1", "device": DEVICE},
        }
        meta = rule["metadata"]
        assert meta["name"] == f"cards.node-1.{DEVICE}"
        assert meta["labels"] == {model.KEY: "cards"}
        assert meta["annotations"] == {model.KEY: f"mlx5_7: {RISES}", model.CARD: BAD}
        (owner,) = meta["ownerReferences"]
        assert owner["uid"] == world.found("repairpolicies", "cards")["metadata"]["uid"]
        world.report("node-1")
        await until(lambda: world.states() == {("node-1", BAD): "Clearing"})
        world.clock += 299
        world.report("node-1")
        assert world.ruled
        world.clock += 2
        await until(lambda: not world.ruled)
        await until(lambda: len(world.status().get("history", ())) == 2)
        await until(lambda: world.told("RepairCleared"))
    assert world.tainted == {}
    assert world.writes == []
    said = f"Tainted {BAD} {model.KEY}=cards:NoSchedule: mlx5_7: {RISES}"
    assert world.told("RepairTainted") == [said]
    assert [(one["action"], one["card"]) for one in world.status()["history"]] == [
        ("Cleared", BAD),
        ("Tainted", BAD),
    ]


async def test_all_shares_of_a_card_are_tainted_and_no_other_device(world):
    policy(world)
    shares = [f"{DEVICE}-s0", f"{DEVICE}-s1", DEVICE]
    world.devices("node-1", *shares, "0000-06-00-0", "rdma-hca", f"{DEVICE}-x0")
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: len(world.ruled) == 3)
        await until(lambda: len(world.status().get("history", ())) == 1)
        assert {device for _, device in world.ruled} == {*shares}
        # A share that comes later gets a rule too.
        world.devices("node-1", *shares, f"{DEVICE}-s2")
        await until(lambda: ("node-1", f"{DEVICE}-s2") in world.ruled)
        world.report("node-1")
        await until(lambda: world.states() == {("node-1", BAD): "Clearing"})
        world.clock += 301
        await until(lambda: not world.ruled)
        await until(lambda: world.told("RepairCleared"))
    assert len(world.told("RepairCleared")) == 1


async def test_functions_of_a_bad_physical_card_are_tainted_with_it(world):
    """The cable is that of all of them, whichever one was measured."""
    policy(world)
    report = world.found("nodereports", "node-1")
    card = report["status"]["cards"]
    for at in (5, 6):
        card[at]["partOf"] = "0000:04:00.0"
    world.server.put(NODE_REPORT, {"metadata": {"name": "node-1"}, "status": report["status"]})
    world.measured("node-1", card="mlx5_6")
    async with world.leading():
        await until(lambda: world.states() == {("node-1", "0000:04:00.0"): "Tainted"})
    assert {device for _, device in world.ruled} == {f"0000-0{at}-00-0" for at in (4, 5, 6)}


async def test_a_suspected_card_is_tainted_and_a_suspected_node_as_before(world):
    policy(world)
    world.measured("node-1", card="mlx5_3")
    async with world.leading():
        await until(lambda: ("node-1", "0000-03-00-0") in world.ruled)
        why = "is a suspect of BandwidthCheck kube-rdma/nightly (mlx5_3)"
        await until(lambda: why in str(world.status().get("nodes")))
        world.measured("node-1")
        await until(lambda: world.tainted == {"node-1": "NoSchedule"})


@pytest.mark.parametrize("where", [{"namespace": "team"}, {"hours": 25}])
async def test_only_recent_measurements_of_kube_rdma_suspect_cards(world, where):
    """A tenant may write BandwidthChecks in a namespace of its own."""
    policy(world)
    world.measured("node-1", card="mlx5_3", **where)
    world.report("node-2", degraded=RISES)
    async with world.leading():
        await until(lambda: world.states() == {("node-2", BAD): "Tainted"})
    assert {node for node, _ in world.ruled} == {"node-2"}


async def test_a_card_that_claims_do_not_use_taints_its_node(world):
    policy(world, budget={"nodes": 3})
    world.server.remove(RESOURCE_SLICE, f"000-{DRIVER}-node-0")
    world.devices("node-1", "rdma-hca")
    world.devices("node-2", pool="node-0")
    for node in ("node-0", "node-1", "node-2"):
        world.report(node, degraded=RISES)
    world.devices("node-1", driver="gpu.example.com")
    async with world.leading():
        await until(lambda: len(world.tainted) == 3)
    assert world.ruled == {}


@pytest.mark.parametrize("kinds", [(), (RESOURCE_SLICE,)])
async def test_without_rules_the_policy_says_so_and_taints_the_node(kinds):
    world = RepairWorld(kinds)
    world.nodes(1)
    policy(world)
    world.policy("other", when=WHEN, enforce=False)
    world.report("node-0", degraded=RISES)
    async with world.leading():
        await until(lambda: world.tainted == {"node-0": "NoSchedule"})
        await until(lambda: "serves no DeviceTaintRules" in world.status().get("remark", ""))
        await until(lambda: world.status("other"))
        assert world.status("other")["remark"] == ""


async def test_a_role_without_the_right_to_rules_stops_no_taint_of_nodes(world):
    world.server.forbidden |= {("list", "devicetaintrules"), ("watch", "devicetaintrules")}
    policy(world)
    world.report("node-0", degraded=RISES)
    async with world.leading():
        await until(lambda: world.tainted == {"node-0": "NoSchedule"})
        await until(lambda: "may not read them" in world.status().get("remark", ""))


async def test_cards_have_a_budget_of_their_own(world):
    policy(world, budget={"nodes": 1, "cards": 2})
    for node in ("node-0", "node-1", "node-2"):
        world.report(node, degraded=RISES)
    async with world.leading():
        await until(lambda: world.states().get(("node-2", BAD)) == "OverBudget")
        await until(lambda: world.told("RepairOverBudget"))
        await until(lambda: len(world.ruled) == 2)
    assert world.status()["result"] == "2 tainted (cards), 1 over the budget (cards)"
    assert f"node-2 {BAD} (mlx5_7: {RISES})" in world.told("RepairOverBudget")[0]


async def test_an_agent_that_lies_harms_only_the_cards_of_its_node_within_the_budget(world):
    """As with a stolen token: it writes the report and the slices of its own node."""
    policy(world, budget={"nodes": 1, "cards": 2})
    lies = world.found("nodereports", "node-2")["status"]
    for card in lies["cards"]:
        card |= {"degraded": "all is lost\x1b[2J", "partOf": ""}
    lies["cards"][0]["id"] = "node-0"
    world.server.put(NODE_REPORT, {"metadata": {"name": "node-2"}, "status": lies})
    world.devices("node-2", *(f"0000-0{at}-00-0-s{n}" for at in range(8) for n in range(200)))
    async with world.leading():
        await until(lambda: len(world.ruled) == 256)
        await until(lambda: len(world.states()) > 2)
    assert {node for node, _ in world.ruled} == {"node-2"}
    assert world.tainted.keys() <= {"node-2"}
    assert "\x1b" not in str(world.status())


@pytest.mark.parametrize(
    "change",
    [
        {"enforce": False},
        {"deviceTaint": None},
        {"nodeSelector": {"gpu": "yes"}},
    ],
)
async def test_rules_of_a_policy_that_no_longer_wants_them_are_deleted(world, change):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled)
        policy(world, **change)
        await until(lambda: not world.ruled)


async def test_another_effect_replaces_the_rule(world):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled)
        policy(world, deviceTaint="NoExecute")
        await until(lambda: world.ruled == {("node-1", DEVICE): "NoExecute"})


async def test_a_dry_run_a_pause_and_a_person_keep_cards_as_they_are(world):
    policy(world, enforce=False)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.states() == {("node-1", BAD): "WouldTaint"})
        assert world.ruled == {}
        policy(world)
        await until(lambda: world.ruled)
        policy(world, annotations={model.PAUSED: ""})
        world.report("node-1")
        world.report("node-2", degraded=RISES)
        await until(lambda: world.states().get(("node-2", BAD)) == "WouldTaint")
        world.clock += 1000
        world.report("node-1", age=1)
        await until(lambda: world.states().get(("node-1", BAD)) == "Clearing")
        assert {node for node, _ in world.ruled} == {"node-1"}
        world.node("node-1", annotations={model.IGNORED: ""})
        await until(lambda: not world.ruled)


async def test_a_node_without_a_new_report_keeps_the_rules_of_its_cards(world):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled)
        world.report("node-1", age=600)
        await until(lambda: "missing or old" in str(world.status()))
        world.clock += 10_000
        world.node("node-9")
        await until(lambda: "missing or old" in str(world.status()))
        assert world.ruled
        world.server.remove(NODE, "node-1")
        await until(lambda: not world.ruled)


OTHERS = {"taint": {"key": "example.com/x", "effect": "NoSchedule"}, "deviceSelector": {}}


async def test_rules_of_others_are_neither_changed_nor_deleted(world):
    """Not even one with the name that a card's would have, or of another policy's owner."""
    mine = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "RepairPolicy", "name": "cards"}
    meta = {"name": "gone", "labels": {model.KEY: "cards"}}
    meta["ownerReferences"] = [{**mine, "uid": "of-a-former-policy"}]
    world.server.put(TAINT_RULE, {"metadata": meta, "spec": OTHERS})
    for name, labels in (("a", {model.KEY: "cards"}), (f"cards.node-1.{DEVICE}", {})):
        metadata = {"name": name, "labels": labels}
        world.server.put(TAINT_RULE, {"metadata": metadata, "spec": OTHERS})
    before = world.server.documents("devicetaintrules")
    policy(world, clearAfterSeconds=10)
    for node in ("node-1", "node-2"):
        world.report(node, degraded=RISES)
    async with world.leading():
        await until(lambda: len(world.server.documents("devicetaintrules")) == 4)
        for node in ("node-1", "node-2"):
            world.report(node)
        await until(lambda: world.states().get(("node-2", BAD)) == "Clearing")
        world.clock += 11
        await until(lambda: len(world.server.documents("devicetaintrules")) == 3)
    assert world.server.documents("devicetaintrules") == before


WIDE = {"driver": DRIVER, "pool": None, "device": None}


@pytest.mark.parametrize(
    ("part", "change"), [("spec", {"deviceSelector": WIDE}), ("metadata", {"annotations": {}})]
)
async def test_a_rule_that_somebody_changed_is_made_right(world, part, change):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled)
        (rule,) = world.server.documents("devicetaintrules")
        world.server.put(TAINT_RULE, {**rule, part: {**rule[part], **change}})
        await until(lambda: world.server.documents("devicetaintrules")[:1] != (rule,))
        await until(lambda: world.ruled == {("node-1", DEVICE): "NoSchedule"})
        await until(lambda: BAD in str(world.server.documents("devicetaintrules")))
    assert world.tainted == {}


async def test_a_policy_that_is_not_understood_keeps_the_rules_of_its_cards(world):
    policy(world)
    world.report("node-1", degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled)
        policy(world, budget={"cards": 0})
        await until(lambda: "too small" in str(world.status().get("conditions")))
        world.server.remove(REPAIR_POLICY, "cards")
        world.policy("other")
        await until(lambda: world.status("other"))
    assert world.ruled  # without a policy, Kubernetes deletes them with their owner


async def test_a_rule_that_is_another_by_now_is_not_deleted(world):
    """As where somebody wrote it after the watch showed it."""
    spec = TaintRuleSpec(
        DeviceTaint(model.KEY, "NoSchedule", "cards"), DeviceSelector(DRIVER, "node-1", DEVICE)
    )
    rule = model.CardRule("cards.node-1", "cards", "uid", BAD, spec)
    cluster = Cluster(world.server.line())
    await create_rule(cluster, rule, "why")
    (stored,) = world.server.documents("devicetaintrules")
    world.server.put(TAINT_RULE, {**stored, "spec": OTHERS})
    assert not await delete_rule(cluster, rule)
    assert world.ruled
    world.server.put(TAINT_RULE, stored)
    assert await delete_rule(cluster, rule)
    assert not world.ruled
    assert not await delete_rule(cluster, rule)


async def test_a_policy_that_is_not_understood_does_not_hide_cards_of_its_nodes(world):
    policy(world)
    world.policy("nodes")
    world.report("node-1", healthy=7, degraded=RISES)
    async with world.leading():
        await until(lambda: world.ruled and world.tainted)
        world.policy("nodes", budget={"nodes": 0})
        await until(lambda: "too small" in str(world.status("nodes").get("conditions")))
        world.report("node-2", degraded=RISES)
        await until(lambda: len(world.ruled) == 2)
        assert world.tainted == {"node-1": "NoSchedule"}
