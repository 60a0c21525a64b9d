"""The order of an upgrade, in a small world where pods, people and drivers do what they like."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube_rdma.model.driver_upgrade import (
    Close,
    DriverPod,
    EndDrivers,
    Evict,
    Open,
    ShareHolder,
    UpgradeNode,
    UpgradePolicy,
    UpgradeStage,
)
from kube_rdma.rules.operator.upgrade import is_between, is_outdated, refusal, upgrade_plan

NAMES = ("a", "b", "c", "d")
OLD = DriverPod("old", "1", current=False, ready=True)
NEW = DriverPod("new", "2", current=True, ready=True)
PEER = DriverPod("peer", "3", current=True, ready=True, unloads=False)
POD = ShareHolder("default", "training", "9")
POLICIES = st.builds(UpgradePolicy, st.booleans(), st.integers(0, 3), st.booleans())


def is_away(node):
    """Whether a node is without its driver for now, by the test's own reckoning."""
    if any(pod.deleting for pod in node.pods):
        return True
    return all(pod.current for pod in node.pods) and (
        node.missing or not all(pod.ready for pod in node.pods)
    )


class World(RuleBasedStateMachine):
    """Nodes by name, a policy, and after each look what had to hold of it."""

    def __init__(self):
        super().__init__()
        self.policy = UpgradePolicy()
        self.nodes = {name: UpgradeNode(name, (OLD, PEER)) for name in NAMES}
        self.closed_by_people = set()
        self.serial = 0

    def change(self, name, **fields):
        self.nodes[name] = replace(self.nodes[name], **fields)

    @rule()
    def look(self):
        before = sum(map(is_away, self.nodes.values()))
        plan = upgrade_plan(self.policy, list(self.nodes.values()))
        assert [stage.node for stage in plan.stages] == list(NAMES)
        ended = [act for act in plan.acts if isinstance(act, EndDrivers)]
        if ended and self.policy.parallel:
            assert before + len(ended) <= self.policy.parallel
        for act in plan.acts:
            self.do(act)

    def do(self, act):
        node = self.nodes[act.node]
        match act:
            case EndDrivers(pods=pods):
                assert self.policy.automatic
                assert not node.holders
                assert not refusal(node)
                assert [pod.unloads for pod in pods] == sorted(pod.unloads for pod in pods)
                ending = [replace(p, deleting=True) if p in pods else p for p in node.pods]
                self.change(node.name, pods=tuple(ending))
            case Evict(pod=pod):
                assert self.policy.drain
                assert self.policy.automatic
                assert node.closed
                assert not pod.stays
                left = (replace(p, deleting=True) if p == pod else p for p in node.holders)
                self.change(node.name, holders=tuple(left))
            case Close():
                assert self.policy.drain
                assert not node.closed
                self.change(node.name, closed=True, ours=True)
            case Open():
                assert node.ours, "what people closed is theirs to open"
                self.change(node.name, closed=False, ours=False)

    @rule(name=st.sampled_from(NAMES))
    def driver_goes_on(self, name):
        """A pod that ends is gone; one that is missing is made; one that starts is ready."""
        node = self.nodes[name]
        if any(pod.deleting for pod in node.pods):
            left = tuple(pod for pod in node.pods if not pod.deleting)
            self.change(name, pods=left, missing=True)
        elif node.missing:
            fresh = [replace(pod, ready=False) for pod in (NEW, PEER)]
            kept = [pod for pod in node.pods if pod.unloads]
            made = (*kept, fresh[1]) if kept else tuple(fresh)
            self.change(name, pods=made, missing=False)
        else:
            self.change(name, pods=tuple(replace(pod, ready=True) for pod in node.pods))

    @rule(name=st.sampled_from(NAMES), stays=st.booleans())
    def pod_starts(self, name, stays):
        node = self.nodes[name]
        if (stays or not node.closed) and not is_between(node) and len(node.holders) < 3:
            self.serial += 1
            holder = replace(POD, name=f"p{self.serial}", uid=str(self.serial), stays=stays)
            self.change(name, holders=(*node.holders, holder))

    @rule(name=st.sampled_from(NAMES))
    def pod_ends(self, name):
        self.change(name, holders=self.nodes[name].holders[1:])

    @rule(name=st.sampled_from(NAMES))
    def person_closes(self, name):
        if not self.nodes[name].closed:
            self.change(name, closed=True)

    @rule(name=st.sampled_from(NAMES), carries=st.sampled_from([(), ("the default route",)]))
    def routes_change(self, name, carries):
        self.change(name, carries=carries)

    @rule(policy=POLICIES)
    def policy_changes(self, policy):
        self.policy = policy

    @rule()
    def image_changes(self):
        for name, node in self.nodes.items():
            aged = (replace(pod, current=False) if pod.unloads else pod for pod in node.pods)
            self.change(name, pods=tuple(aged))

    @invariant()
    def stages_agree_with_the_world(self):
        for stage in upgrade_plan(self.policy, list(self.nodes.values())).stages:
            node = self.nodes[stage.node]
            if stage.stage is UpgradeStage.CURRENT:
                assert not is_outdated(node)
            if stage.stage in (UpgradeStage.REFUSED, UpgradeStage.WAITING_FOR_PODS):
                assert stage.sentence

    @precondition(lambda self: self.policy.automatic)
    @rule()
    def left_alone_it_comes_to_an_end(self):
        """Pods end, drivers start: every node that may be is current then, and open."""
        for _ in range(12 * len(NAMES)):
            self.look()
            for name in NAMES:
                self.driver_goes_on(name)
                lasting = [pod.stays for pod in self.nodes[name].holders]
                if any(lasting) or not self.policy.drain:
                    self.pod_ends(name)
                alive = tuple(pod for pod in self.nodes[name].holders if not pod.deleting)
                self.change(name, holders=alive)
        for node in self.nodes.values():
            assert is_outdated(node) == bool(refusal(node))
            assert not node.ours


TestWorld = World.TestCase


def stages(policy, *nodes):
    return {stage.node: stage for stage in upgrade_plan(policy, nodes).stages}


def test_a_node_that_needs_its_cards_is_refused_with_the_reason():
    """Also when nothing runs there, and when the policy drains."""
    node = UpgradeNode("a", (OLD,), carries=("mlx5_0: the node's default route",))
    plan = upgrade_plan(UpgradePolicy(drain=True), [node])
    assert plan.acts == ()
    assert plan.stages[0].stage is UpgradeStage.REFUSED
    assert plan.stages[0].sentence == "node a needs its cards: mlx5_0: the node's default route"


def test_the_pods_that_are_waited_for_are_named():
    told = stages(UpgradePolicy(), UpgradeNode("a", (OLD,), holders=(POD,)))
    assert told["a"].sentence == "node a waits for the end of default/training"


def test_a_pod_that_would_be_back_at_once_is_waited_for_and_its_node_stays_open():
    """A DaemonSet's pods start on closed nodes too."""
    node = UpgradeNode("a", (OLD,), holders=(POD, replace(POD, name="exporter", stays=True)))
    plan = upgrade_plan(UpgradePolicy(drain=True), [node])
    assert plan.acts == ()
    assert plan.stages[0].stage is UpgradeStage.WAITING_FOR_PODS


def test_a_driver_on_top_alone_is_exchanged_although_the_node_needs_its_cards():
    """It unloads nothing that the node's traffic goes through."""
    peer = replace(PEER, current=False)
    node = UpgradeNode("a", (NEW, peer), carries=("the default route",))
    assert upgrade_plan(UpgradePolicy(), [node]).acts == (EndDrivers("a", (peer,)),)


def test_idle_nodes_come_first_even_where_others_are_drained():
    busy, idle = UpgradeNode("a", (OLD,), holders=(POD,)), UpgradeNode("b", (OLD,))
    assert upgrade_plan(UpgradePolicy(drain=True), [busy, idle]).acts == (Close("b"),)


def test_a_driver_that_does_not_start_stops_the_upgrade_and_is_named():
    """One bad image costs one node."""
    stuck = UpgradeNode("a", (replace(NEW, ready=False),))
    told = stages(UpgradePolicy(), stuck, UpgradeNode("b", (OLD,)))
    assert told["b"].sentence == "node b waits for a"


@pytest.mark.parametrize("ours", [True, False])
def test_without_a_policy_what_an_upgrade_closed_is_opened(ours):
    node = UpgradeNode("a", closed=True, ours=ours)
    assert upgrade_plan(None, [node]).acts == ((Open("a"),) if ours else ())
