"""BandwidthChecks on an API server in memory, in whose pods perftest runs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_client.wire import Answer
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.preflight import RESULT
from kube_rdma.model.verify import PROBE_SECONDS
from kube_rdma.verify.bandwidth_checks import BandwidthChecks, CheckTiming
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma.verify.pairs import GRACE, Pacing
from kube_rdma.verify.rules.copies import CHECK_LABEL
from kube_rdma.verify.rules.pairs import AGAIN
from kube_rdma_testing.perftest import Deadlines, KubeletLine, PerftestCluster
from tests.kit.beside import beside
from tests.unit.agent.world import until

EAGER = RequestTiming(pause=lambda _: 0.0)
SELECTED = {"selector": {"app": "job"}}
CONTAINER = {"name": "c", "image": "perftest", "resources": {"limits": {"rdma/hca": 1}}}
COPIED = {"template": {"spec": {"containers": [CONTAINER]}}}


class CheckWorld:
    """A cluster with two pods and two nodes, a clock, and the controller's part."""

    def __init__(self):
        self.pods = PerftestCluster()
        self.server = self.pods.server
        self.server.add(BANDWIDTH_CHECK)
        self.line = KubeletLine(self.pods)
        self.server.lines.append(self.line)
        self.deadlines, self.second = Deadlines(), 0
        self.now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
        for number in (1, 2):
            self.pods.pod(f"p{number}", number, "train")
            self.pods.node(f"node-{number}")

    def check(self, name="nightly", namespace="train", **spec):
        """Somebody writes a check; the status stays, as at its subresource."""
        old = self.document(name)
        generation = old.get("metadata", {}).get("generation", 0) + 1
        meta = {"name": name, "namespace": namespace, "generation": generation}
        kept = {"status": old["status"]} if "status" in old else {}
        self.server.put(BANDWIDTH_CHECK, {"metadata": meta, "spec": spec, **kept})

    def document(self, name="nightly"):
        checks = self.server.documents("bandwidthchecks")
        return next((each for each in checks if each["metadata"]["name"] == name), {})

    def status(self, name="nightly"):
        return self.document(name).get("status", {})

    def state(self, name="nightly"):
        return self.status(name).get("state")

    def condition(self, kind):
        return {each["type"]: each for each in self.status()["conditions"]}[kind]

    def clock(self):
        """Each look at it is a second later."""
        self.second += 1
        return self.second

    @property
    def events(self):
        return [event["reason"] for event in self.server.documents("events")]

    @property
    def copies(self):
        return [name for name in self.pods.pods if name.startswith("kube-rdma-verify")]

    def running(self):
        cluster = Cluster(self.line, EAGER)
        events = Events(cluster, "controller")
        pacing = Pacing(limit=self.deadlines, clock=self.clock)
        timing = CheckTiming(again=0.01, pause=lambda _: 0.0, now=lambda: self.now, pacing=pacing)
        checks = BandwidthChecks(cluster, events, timing)
        return beside(events.run(), checks.run())

    async def run_until(self, state="Well", name="nightly"):
        """Run the controller until a check has this state."""
        async with self.running():
            await until(lambda: self.state(name) == state)


@pytest.fixture
def world():
    return CheckWorld()


async def test_running_pods_are_measured_once(world):
    world.check(**SELECTED)
    async with world.running():
        await until(lambda: world.state() == "Well")
        await until(lambda: "BandwidthWell" in world.events)
    status = world.status()
    assert status["result"] == "All is well: 1 pair, 97.50 to 97.50 Gb/s."
    assert status["pairsMeasured"] == 1
    assert (status["lowestMeasured"], status["highestMeasured"]) == ("97.5G", "97.5G")
    assert status["pairs"][0]["rating"] == "ok"
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Complete": "True",
        "Well": "True",
    }
    async with world.running():  # another controller leads
        await until(lambda: world.line.watching)
    assert len(world.pods.measured) == 1


async def test_the_result_of_a_gang_is_left_as_it_is(world):
    """Its pods have measured; a selector beside the label changes nothing."""
    meta = {"name": "preflight-train-1", "namespace": "train", "labels": {RESULT: "1"}}
    world.server.put(BANDWIDTH_CHECK, {"metadata": meta, "spec": {"preflight": "Job/train"}})
    world.check(**SELECTED)
    await world.run_until()
    assert world.status("preflight-train-1") == {}


async def test_copies_are_the_check_s_own_and_go(world):
    owners = []
    world.server.program, inner = watched(world, owners), world.server.program
    assert inner is not None
    world.check(**COPIED)
    await world.run_until()
    assert world.copies == []
    assert {(owner["kind"], owner["name"]) for owner in owners} == {("BandwidthCheck", "nightly")}


def watched(world, owners):
    """The pods' programs, and whose the copies are while they run."""

    async def program(command):
        for pod in world.server.documents("pods"):
            owners.extend(pod["metadata"].get("ownerReferences", ()))
        return await world.pods.run(command)

    return program


async def test_a_slow_pair_is_named_and_a_change_measures_again(world):
    world.check(**SELECTED, minBandwidth="200G")
    async with world.running():
        await until(lambda: world.state() == "NotWell")
        await until(lambda: "BandwidthNotWell" in world.events)
        assert "less than the 200.00 asked for" in world.status()["pairs"][0]["why"]
        world.check(**SELECTED, minBandwidth="20G")
        await until(lambda: world.state() == "Well")
    assert world.status()["observedGeneration"] == 2


async def test_a_pair_that_is_worse_than_the_last_time_is_slow(world):
    spec = {**SELECTED, "againstLast": True, "lineSharePercent": 0, "everySeconds": 3600}
    world.check(**spec)
    async with world.running():
        await until(lambda: world.state() == "Well")
        world.pods.figure = 50.0
        world.now += timedelta(hours=1)
        world.pods.pod("p1", 1, "train")  # nothing new for the check
        world.check("other", **SELECTED, lineSharePercent=0)  # but somebody looks
        await until(lambda: world.state() == "NotWell")
    assert "what it had before" in world.status()["pairs"][0]["why"]


async def test_a_run_without_figures_makes_those_of_before_no_figures_of_its_own(world):
    """The status then has the new generation and the old figures."""
    spec = {**SELECTED, "againstLast": True, "lineSharePercent": 0}
    world.check(**spec)
    async with world.running():
        await until(lambda: world.state() == "Well")
        world.pods.figure = 50.0
        world.server.forbidden = {("get", "pods/exec"), ("create", "pods")}
        world.check(**spec, test="read")
        await until(lambda: world.state() == "NotMeasured")
        status = world.status()
        assert (status["observedGeneration"], status["measuredGeneration"]) == (2, 1)
        assert status["pairs"][0]["measured"] == "97.5G"
        world.server.forbidden = set()
        world.now += AGAIN
        world.check("other", **SELECTED, lineSharePercent=0)
        await until(lambda: world.state() == "Well")
    assert world.status()["measuredGeneration"] == 2


async def test_a_missing_right_is_said_and_tried_again(world):
    world.server.forbidden = {("get", "pods/exec"), ("create", "pods")}
    world.check(**SELECTED)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        assert "forbids to get pods/exec" in world.condition("Well")["message"]
        world.server.forbidden = set()
        world.now += AGAIN
        world.check("other", **SELECTED)
        await until(lambda: world.state() == "Well")


async def test_what_cannot_be_is_said_once(world):
    world.check(**SELECTED, latency=True, minBandwidth="5G")
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        began = world.status()["startTime"]
        world.now += 2 * AGAIN
        world.check("other", **SELECTED)
        await until(lambda: world.state("other") == "Well")
    assert world.condition("Well")["reason"] == "Refused"
    assert world.status()["startTime"] == began
    assert "spec.minBandwidth: this is no latency" in world.status()["result"]


async def test_a_check_that_is_deleted_ends_its_run_and_its_copies(world):
    world.server.program = hanging(world)
    world.check(**COPIED)
    async with world.running():
        await until(lambda: len(world.copies) == 2)
        world.server.remove(BANDWIDTH_CHECK, "nightly", "train")
        await until(lambda: not world.copies)
        world.server.program = world.pods.run
        world.check("next", **SELECTED)
        await until(lambda: world.state("next") == "Well")


async def test_a_controller_that_ends_takes_its_copies_along_and_the_next_begins_anew(world):
    world.server.program = hanging(world)
    world.check(**COPIED)
    async with world.running():
        await until(lambda: len(world.copies) == 2)
    assert world.copies == []
    assert world.state() == "Measuring"
    world.server.program = world.pods.run
    await world.run_until()


async def test_copies_of_a_controller_that_was_killed_go_first(world):
    meta = {
        "name": "kube-rdma-verify-old",
        "namespace": "train",
        "labels": {CHECK_LABEL: "nightly"},
    }
    world.server.put(POD, {"metadata": meta, "spec": {}, "status": {}})
    world.check(**COPIED)
    await world.run_until()
    assert world.copies == []


def hanging(world):
    """Servers and probes are as ever, a client never ends."""

    async def program(command):
        if "timeout" in command.argv[-1] and "listening" not in command.argv[-1]:
            await asyncio.Event().wait()
        return await world.pods.run(command)

    return program


async def test_checks_of_one_name_in_two_namespaces_are_two(world):
    meta = {"name": "nightly", "namespace": "other", "generation": 1}
    world.server.put(BANDWIDTH_CHECK, {"metadata": meta, "spec": SELECTED})
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        world.server.remove(BANDWIDTH_CHECK, "nightly", "other")
        world.check(**SELECTED)
        await until(lambda: world.state() == "Well")
    assert "no pod took part" not in world.status()["result"]


async def test_an_api_server_that_takes_no_status_is_tried_again(world):
    world.server.forbidden = {("patch", "bandwidthchecks/status")}
    world.check(**SELECTED)
    async with world.running():
        await until(lambda: any("status" in str(each) for each in world.line.requests))
        world.server.forbidden = set()
        world.now += timedelta(seconds=1)
        await until(lambda: world.state() == "Well")


class RefusingLine(KubeletLine):
    """The server takes no status of the check `a`, as when its schema is an older one."""

    async def send(self, request):
        if (request.resource, request.name) == ("bandwidthchecks/status", "a"):
            self.requests.append(request)
            return Answer(422, b'{"message": "too old", "reason": "Invalid"}')
        return await super().send(request)


async def test_a_check_whose_status_is_refused_leaves_the_others_their_turn(world):
    world.line = RefusingLine(world.pods)
    world.server.lines.append(world.line)
    world.check("a", **SELECTED)
    async with world.running():
        await until(lambda: any(request.name == "a" for request in world.line.requests))
        world.check("b", **SELECTED)
        await until(lambda: world.state("b") == "Well")
    assert not world.status("a")


def silent_shell(world, *pods):
    """In these pods nothing ends: no shell, no perftest."""

    async def program(command):
        if command.pod in pods:
            await asyncio.Event().wait()
        return await world.pods.run(command)

    return program


async def test_a_shell_that_never_ends_is_told_and_the_next_check_is_begun(world):
    world.server.program = silent_shell(world, "p1")
    world.check("first", **SELECTED)
    async with world.running():
        await until(lambda: world.state("first") == "Measuring" and world.deadlines.seconds)
        world.check("second", **SELECTED)
        assert set(world.deadlines.seconds) == {PROBE_SECONDS + GRACE}
        world.server.program = world.pods.run
        world.deadlines.pass_all()
        await until(lambda: world.state("first") == "NotMeasured")
        await until(lambda: world.state("second") == "Well")
    assert "p1: sh in pod p1 has not ended after 150 s" in world.status("first")["result"]


async def test_a_card_that_hangs_costs_three_measurements_and_no_more(world):
    for number in range(3, 8):
        world.pods.pod(f"p{number}", number, "train")
    hanging_ones = []

    async def program(command):
        """perftest in p1 is never done, as in D state; its shell answers."""
        if command.pod == "p1" and "ib_" in command.argv[-1]:
            hanging_ones.append(command)
            await asyncio.Event().wait()
        return await world.pods.run(command)

    world.server.program = program
    world.check(**SELECTED, pairSeconds=5)
    async with world.running():
        for count in (1, 2, 3):
            await until(lambda n=count: len(hanging_ones) == n)
            await until(lambda: world.deadlines.seconds == [35])  # the others of the round ended
            world.deadlines.pass_all()
        await until(lambda: world.state() == "NotWell")
    status = world.status()
    assert len(hanging_ones) == 3
    assert (status["pairsMeasured"], status["pairsFailed"]) == (21, 6)
    reasons = {pair["why"] for pair in status["pairs"] if pair["rating"] == "failed"}
    assert "3 measurements over mlx5_0 of train/p1 did not end" in reasons
    assert any("in pod p1 has not ended after 35 s" in why for why in reasons)


async def test_a_big_check_of_one_namespace_leaves_each_other_one_its_turn(world):
    """Ten pods are 45 pairs; the two of another namespace are measured among the first."""
    for number in range(3, 11):
        world.pods.pod(f"p{number}", number, "train")
    for number in (11, 12):
        world.pods.pod(f"o{number}", number, "other")
    world.check("big", **SELECTED)
    world.check("small", "other", **SELECTED)
    async with world.running():
        await until(lambda: world.state("small") == world.state("big") == "Well")
    (place,) = [at for at, (client, _) in enumerate(world.pods.measured) if client[0] == "o"]
    assert len(world.pods.measured) == 46
    assert place <= 10  # two turns of the big one


async def test_a_run_ends_with_what_it_has_when_its_time_is_over(world):
    for number in range(3, 7):
        world.pods.pod(f"p{number}", number, "train")
    world.check(**SELECTED, runSeconds=2)  # a second each turn
    await world.run_until("NotWell")
    assert world.status()["pairsMeasured"] == 6
    assert "9 pairs not measured, as the time of the run was over" in world.status()["result"]


async def test_pods_that_are_too_many_are_tried_again_for_there_may_be_fewer(world):
    world.pods.pod("p3", 3, "train")
    world.check(**SELECTED, maxPairs=2)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        assert world.condition("Well")["reason"] == "NotMeasured"
        result = world.status()["result"]
        assert "its 3 pods need 3 measurements, and maxPairs allows 2" in result
        assert not world.pods.measured
        world.server.remove(POD, "p3", "train")
        world.now += AGAIN
        world.check("other", **SELECTED)
        await until(lambda: world.state() == "Well")


def creations(world):
    """How many copies the API server was asked to create."""
    return sum((each.verb, each.resource) == ("create", "pods") for each in world.line.requests)


async def test_copies_that_are_too_many_are_not_made_again_until_there_are_fewer_nodes(world):
    """Which nodes start one, and with how many rails, only a run can tell; the next remembers."""
    world.pods.node("node-3")
    world.check(**COPIED, maxPairs=2)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        assert "its 3 pods need 3 measurements" in world.status()["result"]
        assert creations(world) == 3
        for count in (1, 2):
            world.now += AGAIN
            world.check(f"other-{count}", **SELECTED)  # somebody looks
            await until(lambda: world.status()["startTime"] == moment(world.now))
            await until(lambda: world.state() == "NotMeasured")
            assert "its 3 pods need 3 measurements" in world.status()["result"]
        assert (creations(world), world.condition("Well")["reason"]) == (3, "NotMeasured")
        world.server.remove(NODE, "node-3")
        world.now += AGAIN
        world.check("other-3", **SELECTED)
        await until(lambda: world.state() == "Well")
    assert creations(world) == 5


async def test_nodes_that_start_no_copy_do_not_count_as_too_many(world):
    world.pods.node("node-3")
    world.pods.full.add("node-3")
    world.check(**COPIED, maxPairs=1, startSeconds=1)
    await world.run_until("NotWell")
    assert world.status()["pairsMeasured"] == 1


async def test_named_nodes_that_are_too_many_are_refused_until_the_spec_changes(world):
    world.pods.node("node-3")
    names = {"nodes": ["node-1", "node-2", "node-3"], "everySeconds": 3600}
    world.check(**COPIED, **names, maxPairs=2)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        assert world.condition("Well")["reason"] == "Refused"
        began = world.status()["startTime"]
        world.now += timedelta(hours=2)
        world.check("other", **SELECTED)
        await until(lambda: world.state("other") == "Well")
        assert world.status()["startTime"] == began
        world.check(**COPIED, **names, maxPairs=3)
        await until(lambda: world.state() == "Well")
    assert creations(world) == 6


async def test_a_period_that_no_clock_can_add_is_refused(world):
    """A check of before its definition had an end."""
    world.check(**SELECTED, everySeconds=10**12)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        world.check("other", **SELECTED)
        await until(lambda: world.state("other") == "Well")
    assert "everySeconds" in world.status()["result"]


async def test_the_first_of_the_nodes_is_the_centre_of_a_star(world):
    world.pods.node("node-3")
    world.check(**COPIED, nodes=["node-2", "node-1", "node-3"], pairs="star")
    await world.run_until()
    measured = [(each["client"], each["server"]) for each in world.status()["pairs"]]
    assert sorted(measured) == [("node-2", "node-1"), ("node-2", "node-3")]
