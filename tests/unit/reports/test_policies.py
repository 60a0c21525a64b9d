"""The statuses of NodePolicies on an API server: by level, and silent when nothing changes."""

from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_client.calls import RequestTiming
from kube_client.errors import Conflict
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.lib import debounce
from kube_rdma.model.pools import PolicyOutcome, PolicyRemark, PolicyRollup
from kube_rdma.reports import cluster as policy_statuses
from kube_rdma.reports import policies
from kube_rdma.reports.cluster import NODE_POLICY_STATUS, seen_policy, write_status
from kube_rdma.reports.node_policy_status import MOST_REMARKS, NodePolicyStatus, node_policy_status
from kube_rdma.reports.policies import PolicyStatuses, PolicyStatusTiming
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside
from tests.unit.agent.world import until

EAGER = RequestTiming(pause=lambda _: 0.0)
QUICK = PolicyStatusTiming(apart=0.0, again=0.01, pause=lambda _: 0.0)
SPEC = {"pools": [{"resource": "rdma/hca", "mode": "hca"}], "nodeSelector": {"kind": "gpu"}}


class StatusWorld:
    """A cluster whose nodes and reports are in the test's hands."""

    def __init__(self):
        self.server = FakeServer([NODE_POLICY_STATUS, NODE_REPORT])
        self.line = self.server.line()

    def node(self, name, **labels):
        self.server.put(NODE, {"metadata": {"name": name, "labels": labels}, "spec": {}})

    def report(self, name, *policies):
        """An agent's word about policies: name, generation, state."""
        entries = [
            {"name": policy, "generation": generation, "state": state, "message": "why"}
            for policy, generation, state in policies
        ]
        status = {"agentVersion": "1", "summary": {"cards": 0, "healthy": 0}, "policies": entries}
        self.server.put(NODE_REPORT, {"metadata": {"name": name}, "status": status})

    def policy(self, name, spec=SPEC):
        """Somebody writes a policy; the status stays, as at its subresource."""
        old = self.documents.get(name, {})
        kept = {"status": old["status"]} if "status" in old else {}
        generation = old.get("metadata", {}).get("generation", 0) + 1
        meta = {"name": name, "generation": generation}
        self.server.put(NODE_POLICY_STATUS, {"metadata": meta, "spec": spec, **kept})

    @property
    def documents(self):
        return {one["metadata"]["name"]: one for one in self.server.documents("nodepolicies")}

    def counts(self, name):
        status = self.documents[name].get("status", {})
        return {
            state: status[state]
            for state in ("nodes", "applied", "pending", "refused", "overruled")
            if status.get(state)
        }

    @property
    def generation(self):
        return self.documents["a"]["metadata"]["generation"]

    @property
    def writes(self):
        return [str(r) for r in self.line.requests if r.verb not in ("get", "list", "watch")]

    @asynccontextmanager
    async def running(self):
        statuses = PolicyStatuses(Cluster(self.line, EAGER), QUICK)
        async with beside(statuses.run()):
            yield statuses


@pytest.fixture
def world():
    world = StatusWorld()
    for name in ("node-1", "node-2"):
        world.node(name, kind="gpu")
    world.node("node-3")
    world.policy("a")
    return world


async def test_nodes_that_are_selected_wait_until_their_reports_know_the_policy(world):
    async with world.running():
        await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})
        world.report("node-1", ("a", world.generation, "applied"))
        await until(lambda: world.counts("a") == {"nodes": 2, "applied": 1, "pending": 1})
        world.report("node-2", ("a", world.generation, "refused"))
        await until(lambda: world.counts("a") == {"nodes": 2, "applied": 1, "refused": 1})
    status = world.documents["a"]["status"]
    assert status["observedGeneration"] == world.generation
    assert status["remarks"] == [{"node": "node-2", "state": "refused", "message": "why"}]


async def test_a_change_of_the_policy_is_pending_until_agents_have_looked(world):
    old = world.generation
    for name in ("node-1", "node-2"):
        world.report(name, ("a", old, "applied"))
    async with world.running():
        await until(lambda: world.counts("a") == {"nodes": 2, "applied": 2})
        world.policy("a", {**SPEC, "priority": 1})
        assert world.generation == old + 1
        await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})
        assert world.documents["a"]["status"]["observedGeneration"] == old + 1


async def test_a_node_that_comes_or_changes_its_labels_counts_at_once(world):
    async with world.running():
        await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})
        world.node("node-3", kind="gpu")
        await until(lambda: world.counts("a") == {"nodes": 3, "pending": 3})
        world.server.remove(NODE, "node-1")
        await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})


async def test_a_policy_that_is_not_understood_says_why(world):
    world.policy("a", {"pools": [{"resource": "rdma/hca", "mode": "hcas"}]})
    async with world.running():
        await until(lambda: "status" in world.documents["a"])
    (accepted,) = [
        each for each in world.documents["a"]["status"]["conditions"] if each["type"] == "Accepted"
    ]
    assert accepted["status"] == "False"
    assert "spec.pools[0].mode" in accepted["message"]


async def test_a_policy_whose_handling_raises_says_so_and_others_are_told(world, monkeypatch):
    """Whatever it raises when it is read, or when it is counted over the nodes."""
    known = {"read": policy_statuses.policy_of, "counted": policies.rollup}

    def read(stored):
        if stored.name == "read":
            raise RecursionError
        return known["read"](stored)

    def counted(policy, nodes, reports):
        if policy.name == "counted":
            raise AttributeError("x")
        return known["counted"](policy, nodes, reports)

    monkeypatch.setattr(policy_statuses, "policy_of", read)
    monkeypatch.setattr(policies, "rollup", counted)
    with recorded() as log:
        for name in known:
            world.policy(name)
        async with world.running():
            await until(lambda: all("status" in world.documents[name] for name in known))
            await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})
    for name, why in (("read", "RecursionError"), ("counted", "AttributeError: x")):
        status = world.documents[name]["status"]
        (accepted,) = [each for each in status["conditions"] if each["type"] == "Accepted"]
        assert f"kube-rdma cannot handle this NodePolicy ({why})" in accepted["message"]
    assert len(log.of("object failed")) == 2


async def test_a_node_and_a_report_that_cannot_be_read_hide_no_other(world):
    world.server.put(NODE, {"metadata": {"name": "odd"}, "spec": {"taints": 5}})
    world.server.put(NODE_REPORT, {"metadata": {"name": "node-2"}, "status": {"policies": "x"}})
    world.report("node-1", ("a", world.generation, "applied"))
    async with world.running():
        await until(lambda: world.counts("a") == {"nodes": 2, "applied": 1, "pending": 1})


async def test_nothing_is_written_while_nothing_changes(world):
    """The next copy looks at all policies, and writes what a new one lacks."""
    async with world.running():
        await until(lambda: world.counts("a") == {"nodes": 2, "pending": 2})
    for name in ("b", "c"):
        world.policy(name, {**SPEC, "nodeSelector": {}})
        before = len(world.writes)
        async with world.running():
            await until(lambda name=name: world.counts(name) == {"nodes": 3, "pending": 3})
        (write,) = world.writes[before:]
        assert write == f"patch nodepolicies/status {name}"


async def test_a_look_that_wrote_is_followed_by_a_pause_for_all_agents(world, monkeypatch):
    """Each of them receives what was written."""
    monkeypatch.setattr(debounce, "EVENTS_A_SECOND", 0.001)
    for name in ("node-1", "node-2"):
        world.report(name, ("a", world.generation, "applied"))
    async with world.running() as statuses:
        await until(lambda: statuses.apart == 2000.0)
        assert world.counts("a") == {"nodes": 2, "applied": 2}
        world.policy("b")  # which ends it: somebody waits for the status
        await until(lambda: world.counts("b") == {"nodes": 2, "pending": 2})


async def test_a_controller_that_looked_earlier_does_not_lower_what_was_observed(world):
    """As one that is stopped for a while, and goes on beside the one that took over."""
    cluster = Cluster(world.line, EAGER)
    earlier = seen_policy(await cluster.get(NODE_POLICY_STATUS, "a"))
    world.policy("a", {**SPEC, "priority": 1})
    async with world.running():
        await until(lambda: world.documents["a"].get("status"))
    late = node_policy_status(None, earlier.generation, "why", "2026-01-01T00:00:00Z")
    with pytest.raises(Conflict):
        await write_status(cluster, earlier, late)
    assert world.documents["a"]["status"]["observedGeneration"] == world.generation


# The status of a NodePolicy: it has an end, and its conditions keep their times.

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
APPLIED = PolicyRollup(((PolicyOutcome.APPLIED, 2), (PolicyOutcome.OVERRULED, 1)))
REMARK = PolicyRemark("node-1", PolicyOutcome.PENDING, "these pods have ended: default/a")
PENDING = PolicyRollup(((PolicyOutcome.APPLIED, 2), (PolicyOutcome.PENDING, 1)), (REMARK,))

remarks = st.builds(
    PolicyRemark,
    st.just("node-1"),
    st.sampled_from([o for o in PolicyOutcome if o is not PolicyOutcome.APPLIED]),
    st.text(st.characters(codec="utf-8"), max_size=1000),
)


def counted(some):
    counts = [(what, sum(r.outcome is what for r in some)) for what in PolicyOutcome]
    return PolicyRollup(tuple(counts), tuple(some))


def conditions(status):
    return {each.type: (each.status, each.reason) for each in status.conditions}


@given(st.lists(remarks, max_size=40).map(counted) | st.text(min_size=1, max_size=1000))
def test_a_status_survives_its_way_and_has_an_end(rolled):
    status = node_policy_status(None, 7, rolled, NOW)
    assert decoded(msgspec.json.encode(status), NodePolicyStatus) == status
    assert len(status.remarks) <= MOST_REMARKS
    assert status.applied + status.pending + status.refused + status.overruled == status.nodes
    assert node_policy_status(status, 7, rolled, LATER) == status


def test_a_policy_that_is_applied_wherever_it_counts_is_ready():
    status = node_policy_status(None, 1, APPLIED, NOW)
    assert conditions(status) == {
        "Ready": ("True", "Applied"),
        "Accepted": ("True", "Accepted"),
        "Applied": ("True", "Applied"),
    }
    assert status.conditions[0].message == "applied on 2 of 3 nodes, overruled on 1"


def test_a_policy_that_waits_says_for_what_and_where():
    status = node_policy_status(None, 1, PENDING, NOW)
    assert conditions(status)["Ready"] == ("False", "WaitsForNodes")
    assert status.conditions[0].message == f"pending on 1 of 3 nodes. node-1: {REMARK.sentence}"


def test_a_refusal_by_a_node_counts_more_than_others_that_wait():
    refused = PolicyRemark("node-2", PolicyOutcome.REFUSED, "no")
    both = PolicyRollup((*PENDING.counts, (PolicyOutcome.REFUSED, 1)), (refused, REMARK))
    assert conditions(node_policy_status(None, 1, both, NOW))["Applied"] == (
        "False",
        "RefusedByNodes",
    )


def test_a_policy_for_no_node_and_one_that_is_not_understood_are_told_apart():
    nowhere = conditions(node_policy_status(None, 1, PolicyRollup(), NOW))
    assert nowhere["Ready"] == ("False", "NoNodeMatches")
    assert nowhere["Accepted"] == ("True", "Accepted")
    garbled = node_policy_status(None, 1, "spec.pools: bad", NOW)
    assert conditions(garbled)["Accepted"] == ("False", "Refused")
    assert garbled.conditions[0].message == "spec.pools: bad"


def test_a_condition_has_its_time_until_it_turns():
    first = node_policy_status(None, 1, APPLIED, NOW)
    grown = replace(APPLIED, counts=((PolicyOutcome.APPLIED, 9),))
    same = node_policy_status(first, 1, grown, LATER)
    assert {each.last_transition_time for each in same.conditions} == {NOW}
    turned = node_policy_status(same, 2, PENDING, LATER)
    times = {each.type: each.last_transition_time for each in turned.conditions}
    assert times == {"Ready": LATER, "Accepted": NOW, "Applied": LATER}
