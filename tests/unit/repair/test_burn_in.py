"""New nodes are measured before they take pods: who with whom, and what follows from it."""

import random
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from kube_base.errors import KubeError
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import moment
from kube_rdma.repair.cluster import REPAIR_POLICY
from kube_rdma.repair.policy import load_policy
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from tests.unit.ipam.conftest import until
from tests.unit.repair.world import OTHER, RepairWorld

NEW = {"key": model.BURN_IN, "effect": "NoSchedule"}
SPACE, CHECK = "kube-rdma", "burn-in-cards"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "perftest"}]}}
WELL = "All is well: 6 pairs, 96.00 to 98.00 Gb/s."


class BurnInWorld(RepairWorld):
    """A cluster whose BandwidthChecks the test does by hand."""

    def __init__(self, new=(), good=()):
        super().__init__()
        for name in (*new, *good):
            self.node(name, [NEW] if name in new else [])
            self.report(name)
        self.template()

    def template(self, **spec):
        spec = {"template": TEMPLATE, "nodes": ["any"], "minBandwidth": "80G", **spec}
        metadata = {"name": "rounds", "namespace": SPACE}
        self.server.put(BANDWIDTH_CHECK, {"metadata": metadata, "spec": spec})

    def burns(self, name="cards", soak=600, **spec):
        spec["burnIn"] = {"check": "rounds", "soakSeconds": soak, **spec.get("burnIn", {})}
        self.policy(name, **spec)

    @property
    def check(self):
        """The check of the round; {} without one."""
        every = self.server.documents("bandwidthchecks")
        return next((one for one in every if one["metadata"]["name"] == CHECK), {})

    @property
    def measured_nodes(self):
        return self.check.get("spec", {}).get("nodes")

    @property
    def new(self):
        """The nodes that are still new."""
        return {
            node["metadata"]["name"]
            for node in self.server.documents("nodes")
            if NEW in node["spec"].get("taints", ())
        }

    def receipt(self, name):
        return self.found("nodereports", name)["status"].get("receipt")

    def failure(self, name):
        return self.found("nodes", name)["metadata"].get("annotations", {}).get(model.BURN_IN)

    def ends(self, state="Well", result=WELL, **status):
        """The run of the check ends at this time, as BandwidthChecks writes it."""
        check, at = self.check, moment(self.now)
        before = check.get("status", {}).get("conditions", [{}])[0]
        holds = "True" if state == "Well" else "False"
        since = before["lastTransitionTime"] if before.get("status") == holds else at
        condition = {"type": "Well", "status": holds, "reason": state, "message": result}
        condition |= {"lastTransitionTime": since, "observedGeneration": self.generation}
        status |= {"observedGeneration": self.generation, "state": state, "result": result}
        status |= {"startTime": at, "completionTime": at, "conditions": [condition]}
        self.server.put(BANDWIDTH_CHECK, {**check, "status": status})

    def begins(self):
        """The next run begins, which keeps the figures of the last."""
        status = {**self.check["status"], "state": "Measuring", "result": ""}
        del status["completionTime"]
        status["startTime"] = moment(self.now)
        self.server.put(BANDWIDTH_CHECK, {**self.check, "status": status})

    @property
    def generation(self):
        return self.check["metadata"].get("generation", 0)

    def blames(self, node, **more):
        """A run that suspects a card of a node."""
        suspect = {"kind": "card", "node": node, "device": "mlx5_3", "pairs": 2, "of": 2}
        figures = {"medianMeasured": "12G", "medianDue": "80G"}
        self.ends("NotWell", "Not well", suspects=[suspect | figures | more])

    def report(self, name, healthy=8, degraded="", age=-864_000):
        """A report that is new enough for all of a test, unless that says otherwise."""
        super().report(name, healthy, degraded, age)

    async def looked(self):
        """Wait for a look of the controller at all that is now, by a change of the policy."""
        policy = self.found("repairpolicies", "cards")
        spec = dict(policy["spec"])
        spec["clearAfterSeconds"] = spec.get("clearAfterSeconds", 10_000) + 1
        self.server.put(REPAIR_POLICY, {**policy, "spec": spec})
        generation = self.found("repairpolicies", "cards")["metadata"]["generation"]
        await until(lambda: self.status().get("observedGeneration") == generation)

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)


async def test_a_node_that_is_well_for_the_whole_soak_is_admitted_with_a_receipt():
    world = BurnInWorld(new=["new"], good=["a", "b", "c"])
    world.node("new", [OTHER, NEW])
    world.burns()
    async with world.leading():
        await until(lambda: world.measured_nodes == ["new", "a", "b"])
        world.ends()
        world.later(599)
        world.ends()
        await world.looked()
        assert (world.new, world.receipt("new")) == ({"new"}, None)
        assert world.states() == {"new": "BurnIn"}
        world.later(1)
        world.ends()
        await until(lambda: not world.new)
        await until(lambda: not world.check)
        await until(lambda: world.told("BurnInPassed"))
        await until(lambda: world.status().get("history"))
    assert world.taints("new") == [OTHER]
    assert world.receipt("new") == {
        "time": moment(world.now),
        "policy": "cards",
        "result": WELL,
        "peers": ["a", "b"],
        "firmware": ["mlx5_0 28.39.1002"],
    }
    assert world.found("nodereports", "new")["status"]["agentVersion"] == "1"
    assert world.told("BurnInPassed") == [WELL]
    (done,) = world.status()["history"]
    assert (done["node"], done["action"]) == ("new", "BurnInPassed")


async def test_the_check_of_a_round_is_the_named_one_for_other_nodes_and_goes_with_the_policy():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    async with world.leading():
        await until(lambda: world.check)
    check = world.check
    own = {"nodes": ["new", "a"], "pairs": "all", "everySeconds": 60, "againstLast": False}
    assert check["spec"] == {"template": TEMPLATE, "minBandwidth": "80G", **own}
    assert check["metadata"]["labels"] == {model.BURN_IN: "cards"}
    (owner,) = check["metadata"]["ownerReferences"]
    uid = world.found("repairpolicies", "cards")["metadata"]["uid"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RepairPolicy", "cards", uid)


async def test_the_suspected_node_keeps_its_taint_and_others_are_measured_without_it():
    world = BurnInWorld(new=["bad", "new"], good=["a", "b"])
    world.burns(soak=0)
    async with world.leading():
        await until(lambda: world.measured_nodes == ["bad", "new", "a", "b"])
        world.blames("bad")
        world.begins()  # at once, so that only the condition tells how the last run ended
        await until(lambda: world.measured_nodes == ["new", "a", "b"])
        world.ends()
        await until(lambda: world.new == {"bad"})
        await until(lambda: world.states() == {"bad": "BurnInFailed"})
        await until(lambda: world.told("BurnInFailed"))
        assert not world.check
        why = "2 of 2 pairs of mlx5_3 are bad: 12G where 80G is due"
        assert world.told("BurnInFailed") == [why]
        assert world.failure("bad") == f"{moment(world.now)} {why}"
        assert world.receipt("bad") is None
        # It is measured again after a day, or when a person removes the annotation.
        world.node("bad", [NEW])
        await until(lambda: world.measured_nodes == ["bad", "a", "b"])
        world.blames("bad")
        await until(lambda: world.failure("bad"))
        await until(lambda: not world.check)
        world.later(86_400)
        await until(lambda: world.measured_nodes == ["bad", "a", "b"])
        world.ends()
        await until(lambda: not world.new)
        assert world.failure("bad") is None


async def test_a_card_that_gets_degraded_in_the_soak_fails_its_node():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    async with world.leading():
        await until(lambda: world.check)
        world.ends()
        world.report("new", degraded="symbol errors rise")
        await until(lambda: world.told("BurnInFailed") == ["mlx5_7: symbol errors rise"])
        await until(lambda: not world.check)
    assert world.new == {"new"}


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.blames("a"),
        lambda world: world.ends("NotWell", leftOut=[{"name": "a", "why": "it is NotReady"}]),
        lambda world: world.report("a", healthy=7),
        lambda world: world.server.remove(NODE, "a"),
    ],
)
async def test_another_partner_takes_the_place_of_one_that_is_bad_or_gone(change):
    world = BurnInWorld(new=["new"], good=["a", "b", "c"])
    world.burns(soak=0)
    async with world.leading():
        await until(lambda: world.measured_nodes == ["new", "a", "b"])
        change(world)
        await until(lambda: world.measured_nodes == ["new", "b", "c"])
        world.ends()
        await until(lambda: not world.new)
    assert world.told("BurnInFailed") == []


async def test_no_partner_is_a_node_that_is_tainted_cordoned_silent_or_suspected():
    world = BurnInWorld(new=["new"], good=["a", "b", "c", "d", "e"])
    world.node("a", [{"key": model.KEY, "value": "cards", "effect": "NoSchedule"}])
    world.server.put(NODE, {"metadata": {"name": "b"}, "spec": {"unschedulable": True}})
    world.report("c", age=600)
    world.measured("d")  # the check nightly
    world.burns(when={"slow": True})
    async with world.leading():
        await until(lambda: world.measured_nodes == ["new", "e"])


async def test_the_suspects_of_a_round_are_no_evidence_for_a_taint():
    """The check is soon gone, and with it what would keep the taint."""
    world = BurnInWorld(new=["new"], good=["a", "b"])
    world.burns(when={"slow": True})
    async with world.leading():
        await until(lambda: world.check)
        world.blames("a")
        await until(lambda: world.measured_nodes == ["new", "b"])
    assert (world.tainted, world.told("RepairTainted")) == ({}, [])


async def test_a_new_node_that_could_not_be_measured_does_not_hold_up_others():
    world = BurnInWorld(new=["new", "other"], good=["a"])
    world.burns(soak=0)
    async with world.leading():
        await until(lambda: world.measured_nodes == ["new", "other", "a"])
        world.ends("NotWell", leftOut=[{"name": "new", "why": "no image"}])
        await until(lambda: world.measured_nodes == ["other", "a"])
        await until(lambda: "left out until" in str(world.status()))
        world.ends()
        await until(lambda: world.new == {"new"})
        assert world.told("BurnInLeftOut") == ["no image"]
        world.later(601)
        await until(lambda: world.measured_nodes == ["new", "a", "other"])


async def test_the_first_nodes_of_a_cluster_measure_each_other():
    world = BurnInWorld(new=["a", "b", "c"])
    world.burns(soak=0, burnIn={"atOnce": 1})
    async with world.leading():
        await until(lambda: world.measured_nodes == ["a", "b"])
        world.ends()
        await until(lambda: world.new == {"c"})
        await until(lambda: world.measured_nodes == ["c", "a", "b"])
        world.ends()
        await until(lambda: not world.new)
    assert "new nodes measured each other" in world.receipt("a")["remark"]
    assert world.receipt("a")["peers"] == ["b"]
    assert "remark" not in world.receipt("c")


async def test_the_only_node_of_a_cluster_waits_for_another_and_is_admitted_with_a_remark():
    world = BurnInWorld(new=["only"])
    world.node("only", [NEW], creationTimestamp=moment(world.now))
    world.node("cpu")  # without cards
    world.burns()
    async with world.leading():
        await until(lambda: world.states() == {"only": "BurnIn"})
        world.later(599)
        await world.looked()
        assert world.new
        world.later(2)
        await until(lambda: not world.new)
    assert world.check == {}
    assert world.receipt("only")["result"] == "Nothing was measured."
    assert "No other node" in world.receipt("only")["remark"]


async def test_a_node_beside_others_that_cannot_measure_with_it_waits():
    world = BurnInWorld(new=["new"], good=["busy"])
    world.report("busy", age=600)
    world.burns(soak=0)
    async with world.leading():
        await world.looked()
        assert world.states() == {"new": "BurnIn"}
        world.report("busy")
        await until(lambda: world.measured_nodes == ["new", "busy"])
    assert world.new == {"new"}


@pytest.mark.parametrize("state", ["NotMeasured", "NotWell"])
async def test_where_nothing_is_learnt_an_event_says_so_once_and_other_partners_follow(state):
    world = BurnInWorld(new=["new"], good=["a", "b", "c"])
    world.burns()
    async with world.leading():
        await until(lambda: world.measured_nodes == ["new", "a", "b"])
        world.ends(state, "pods is forbidden")
        await until(lambda: world.told("BurnInNotMeasured"))
        world.later(200)
        world.ends(state, "pods is forbidden")
        with capture_logs() as lines:
            await world.looked()
        assert (lines, world.measured_nodes) == ([], ["new", "a", "b"])
        world.later(60)
        await until(lambda: world.measured_nodes == ["new", "c"])
        world.ends(state, "pods is forbidden")
        world.later(1)
        world.ends()
        await until(lambda: world.states() == {"new": "BurnIn"})
    assert world.told("BurnInNotMeasured") == ["pods is forbidden"]


async def test_a_bad_run_within_the_soak_begins_it_anew():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    async with world.leading():
        await until(lambda: world.check)
        world.ends()
        world.later(599)
        world.ends("NotMeasured", "no image")
        await until(lambda: world.told("BurnInNotMeasured"))
        world.later(60)
        world.ends()
        await world.looked()
        world.later(599)
        world.ends()
        await world.looked()
        assert world.new == {"new"}
        world.later(1)
        world.begins()  # the run before it was good until now
        await until(lambda: not world.new)


@pytest.mark.parametrize("how", [{"enforce": False}, {"annotations": {model.PAUSED: "night"}}])
async def test_a_dry_run_and_a_paused_policy_only_say_what_is_new(how):
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    async with world.leading():
        await until(lambda: world.check)
        world.burns(**how)
        await until(lambda: world.states() == {"new": "WouldBurnIn"})
        await until(lambda: not world.check)
    assert (world.new, world.writes) == ({"new"}, [])


async def test_a_policy_or_check_that_is_edited_begins_a_new_round():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    async with world.leading():
        await until(lambda: world.check)
        uid = world.check["metadata"]["uid"]
        world.ends()
        world.template(minBandwidth="90G")
        await until(lambda: world.check.get("spec", {}).get("minBandwidth") == "90G")
        assert world.check["metadata"]["uid"] != uid
        assert "status" not in world.check
        world.server.remove(BANDWIDTH_CHECK, CHECK, SPACE)
        await until(lambda: world.check)
        world.policy()
        await until(lambda: not world.check)
    assert world.new == {"new"}


async def test_figures_of_other_nodes_admit_nobody():
    world = BurnInWorld(new=["n1", "n2"], good=["a"])
    world.burns(burnIn={"atOnce": 1})
    async with world.leading():
        await until(lambda: world.measured_nodes == ["n1", "a"])
        world.ends()
        spec = {**world.check["spec"], "nodes": ["n1", "n2", "a"]}  # by a person
        world.server.put(BANDWIDTH_CHECK, {**world.check, "spec": spec})
        world.later(600)
        world.begins()
        await world.looked()
        assert world.new == {"n1", "n2"}
        world.ends()
        world.later(600)
        world.ends()
        await until(lambda: not world.new)


async def test_of_two_policies_for_a_node_the_first_by_name_measures_it():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns()
    world.burns("later")
    async with world.leading():
        await until(lambda: world.states() == {"new": "BurnIn"})
        await until(lambda: world.status("later"))
    assert world.states("later") == {}
    names = {one["metadata"]["name"] for one in world.server.documents("bandwidthchecks")}
    assert names == {"rounds", CHECK}


@pytest.mark.parametrize("wrong", ["missing", "selector", "taken"])
async def test_a_check_that_cannot_be_copied_is_named_once(wrong):
    world = BurnInWorld(new=["new"], good=["a"])
    if wrong == "missing":
        world.server.remove(BANDWIDTH_CHECK, "rounds", SPACE)
    if wrong == "selector":
        world.template(template=None, selector={"app": "x"})
    if wrong == "taken":
        place = {"name": CHECK, "namespace": SPACE}
        world.server.put(BANDWIDTH_CHECK, {"metadata": place, "spec": {"template": TEMPLATE}})
    world.burns()
    async with world.leading():
        await until(lambda: world.told("BurnInNotMeasured"))
        await until(world.states)
    (note,) = world.told("BurnInNotMeasured")
    names = {"taken": f"{CHECK} is not of this policy"}
    assert names.get(wrong, f"no BandwidthCheck {SPACE}/rounds with a template") in note
    assert bool(world.check) is (wrong == "taken")


async def test_a_missing_right_is_told_and_the_repair_of_others_goes_on():
    world = BurnInWorld(new=["new"], good=["a"])
    world.server.forbidden.add(("create", "bandwidthchecks"))
    world.burns()
    async with world.leading():
        await until(lambda: "cannot create" in str(world.told("BurnInNotMeasured")))
        world.report("a", healthy=1)
        await until(lambda: world.tainted)


async def test_a_node_that_is_made_anew_in_its_round_begins_another():
    world = BurnInWorld(new=["new"], good=["a"])
    world.burns(soak=0)
    async with world.leading():
        await until(lambda: world.check)
        uid = world.check["metadata"]["uid"]
        world.server.remove(NODE, "new")
        world.node("new", [NEW], creationTimestamp=moment(world.now))
        await until(lambda: world.check and world.check["metadata"]["uid"] != uid)
    assert world.new == {"new"}


@pytest.mark.parametrize("seed", range(20))
async def test_a_controller_killed_at_any_step_loses_nothing(seed):
    """Each controller lives for a few requests; the measurements are done by the test."""
    pick = random.Random(seed)  # noqa: S311
    world = BurnInWorld(new=["bad", "n1", "n2"], good=["a", "b"])
    world.burns(soak=0, burnIn={"atOnce": 2})

    def done():
        if world.check and "status" not in world.check:
            world.blames("bad") if "bad" in world.measured_nodes else world.ends()
        return world.new == {"bad"} and not world.check

    for _ in range(100):
        async with world.leading():
            line, most = world.line, pick.randrange(1, 30)  # ten are reads
            await until(lambda: len(line.requests) >= most or done())  # noqa: B023
        if done():
            break
    assert done()
    assert world.failure("bad")
    assert all(world.receipt(name) for name in ("n1", "n2"))
    assert world.receipt("bad") is None


def test_a_policy_that_asks_for_nothing_is_refused():
    with pytest.raises(KubeError, match="it asks for nothing"):
        load_policy(b"{}", "cards", paused=False)
    spec = load_policy(b'{"burnIn": {"check": "rounds"}}', "cards", paused=False)
    assert (spec.burn_in, spec.cards_below) == (model.BurnInSpec("rounds", 4, 600), None)
