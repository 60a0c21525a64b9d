"""When a driver is exchanged, and when not; test_upgrade_world.py has all of it at once."""

import pytest

from kube_base.frozen import replace
from kube_rdma.model.operator import (
    Close,
    DrainPolicy,
    DriverPlace,
    DriverPod,
    EndDrivers,
    Evict,
    LabelDrivers,
    Open,
    ShareHolder,
    UpgradeNode,
    UpgradePolicy,
    UpgradeStage,
)
from kube_rdma.operator.rules.upgrade import upgrade_plan, upgrade_state

OLD = DriverPod("old", "1", current=False, ready=True)
NEW = DriverPod("new", "2", current=True, ready=True)
PEER = DriverPod("peer", "3", current=True, ready=True, unloads=False)
POD = ShareHolder("default", "training", "9")
AUTOMATIC = UpgradePolicy(automatic=True)
DRAINS = UpgradePolicy(automatic=True, drain=DrainPolicy())
CLOSED = {"closed": True, "ours": True, "changing": True}


def stages(policy, *nodes):
    return {stage.node: stage for stage in upgrade_plan(policy, nodes).stages}


def test_a_node_that_needs_its_cards_is_refused_with_the_reason():
    """Also when nothing runs there, and when the policy drains."""
    node = UpgradeNode("a", (OLD,), carries=("mlx5_0: the node's default route",))
    plan = upgrade_plan(DRAINS, [node])
    assert plan.acts == ()
    assert plan.stages[0].stage is UpgradeStage.REFUSED
    assert (
        plan.stages[0].sentence == "node a itself uses its cards: mlx5_0: the node's default route"
    )


def test_the_pods_that_are_waited_for_are_named():
    told = stages(AUTOMATIC, UpgradeNode("a", (OLD,), holders=(POD,)))
    assert told["a"].sentence == "node a waits for default/training to end"


def test_a_pod_that_would_be_back_at_once_is_waited_for_and_its_node_stays_open():
    """A DaemonSet's pods start on closed nodes too."""
    node = UpgradeNode("a", (OLD,), holders=(POD, replace(POD, name="exporter", stays=True)))
    plan = upgrade_plan(DRAINS, [node])
    assert plan.acts == ()
    assert plan.stages[0].stage is UpgradeStage.WAITING_FOR_PODS


def test_a_driver_on_top_alone_is_exchanged_although_the_node_needs_its_cards():
    """It unloads nothing that the node's traffic goes through."""
    peer = replace(PEER, current=False)
    node = UpgradeNode("a", (NEW, peer), carries=("the default route",), **CLOSED)
    assert upgrade_plan(AUTOMATIC, [node]).acts == (EndDrivers("a", (peer,)),)


def test_idle_nodes_come_first_even_where_others_are_drained():
    busy, idle = UpgradeNode("a", (OLD,), holders=(POD,)), UpgradeNode("b", (OLD,))
    assert upgrade_plan(DRAINS, [busy, idle]).acts == (Close("b"),)


def test_a_driver_that_does_not_start_stops_the_upgrade_and_is_named():
    """One bad image costs one node."""
    stuck = UpgradeNode("a", (replace(NEW, ready=False),))
    told = stages(AUTOMATIC, stuck, UpgradeNode("b", (OLD,)))
    assert told["b"].sentence == "node b waits for a"


@pytest.mark.parametrize("again", [(NEW,), (OLD,)])
def test_the_next_node_is_closed_when_the_one_before_is_open(again):
    """Else two would be closed at once; also where a pod slipped in, and it was in vain."""
    holders = (POD,) if again == (OLD,) else ()
    nodes = [UpgradeNode("a", (OLD,)), UpgradeNode("b", again, holders=holders, **CLOSED)]
    plan = upgrade_plan(AUTOMATIC, nodes)
    assert plan.acts == (Open("b"),)
    assert plan.stages[0].sentence == "node a waits for b"
    two = replace(AUTOMATIC, parallel=2)
    assert upgrade_plan(two, nodes).acts == (Close("a"), Open("b"))


@pytest.mark.parametrize("ours", [True, False])
def test_what_an_upgrade_closed_is_opened_where_nothing_is_to_be_done(ours):
    node = UpgradeNode("a", closed=True, ours=ours)
    assert upgrade_plan(UpgradePolicy(), [node]).acts == ((Open("a"),) if ours else ())


def test_a_node_is_closed_before_it_is_changed_and_opened_where_a_pod_slipped_in():
    node = UpgradeNode("a", (OLD,))
    assert upgrade_plan(AUTOMATIC, [node]).acts == (Close("a"),)
    closed = replace(node, **CLOSED)
    assert upgrade_plan(AUTOMATIC, [closed]).acts == (EndDrivers("a", (OLD,)),)
    assert upgrade_plan(AUTOMATIC, [replace(closed, holders=(POD,))]).acts == (Open("a"),)


def test_closed_nodes_that_are_too_many_are_opened_again():
    """A policy became narrower: one whose driver is ended already counts, and stays closed."""
    a, b, c = (UpgradeNode(name, (OLD,), **CLOSED) for name in "abc")
    assert upgrade_plan(AUTOMATIC, [a, b]).acts == (EndDrivers("a", (OLD,)), Open("b"))
    ended = replace(b, pods=(replace(OLD, deleting=True),))
    assert upgrade_plan(AUTOMATIC, [a, ended, c]).acts == (Open("a"), Open("c"))


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_two_closed_nodes_the_one_that_was_closed_for_its_change_has_the_turn(order):
    """As where a policy became narrower: its pods are gone already. The other opens meanwhile.

    That was closed because its driver did not run; closed for a change too, it would be one more.
    """
    ended, drained = order
    idle = UpgradeNode(ended, (OLD,), closed=True, ours=True)
    begun = UpgradeNode(drained, (OLD,), holders=(POD,), **CLOSED)
    acts = upgrade_plan(DRAINS, [idle, begun]).acts
    assert set(acts) == {Open(ended), Evict(drained, POD)}
    ready = replace(begun, holders=())
    acts = upgrade_plan(AUTOMATIC, [idle, ready]).acts
    assert set(acts) == {Open(ended), EndDrivers(drained, (OLD,))}
    two = upgrade_plan(replace(AUTOMATIC, parallel=2), [idle, ready]).acts
    assert set(two) == {Close(ended), EndDrivers(drained, (OLD,))}


def test_a_first_load_waits_for_the_pods_that_have_the_driver_of_before():
    """Also where the policy upgrades nothing by itself."""
    node = UpgradeNode("a", places=(DriverPlace("driver", "", "x"),))
    told = stages(UpgradePolicy(), replace(node, holders=(POD,)))
    assert told["a"].stage is UpgradeStage.WAITING_FOR_PODS
    loads = upgrade_plan(UpgradePolicy(), [replace(node, **CLOSED)])
    assert loads.acts == (LabelDrivers("a", (("driver", "x"),)),)


def test_a_node_that_is_away_holds_up_nobody_and_one_that_went_in_its_change_does():
    """Its new driver may be why it went."""
    told = stages(AUTOMATIC, UpgradeNode("a", (OLD,), away=True), UpgradeNode("b", (OLD,)))
    assert told["a"].stage is UpgradeStage.AWAY
    assert told["b"].stage is UpgradeStage.CLOSED
    gone = UpgradeNode("a", (replace(NEW, ready=False),), away=True, **CLOSED)
    told = stages(AUTOMATIC, gone, UpgradeNode("b", (OLD,)))
    assert told["a"].sentence == "node a is not ready since its driver was changed"
    assert told["b"].sentence == "node b waits for a"
    assert upgrade_state(list(told.values())).reason == "Upgrading"


def test_a_node_whose_driver_does_not_run_takes_no_pods():
    """As after a reboot, until the driver is loaded; a change of its own closes it for good."""
    booted = UpgradeNode("a", (replace(NEW, ready=False),))
    assert upgrade_plan(UpgradePolicy(), [booted]).acts == (Close("a", change=False),)
    waits = replace(booted, closed=True, ours=True)
    assert upgrade_plan(UpgradePolicy(), [waits]).acts == ()
    runs = replace(waits, pods=(NEW,))
    assert upgrade_plan(UpgradePolicy(), [runs]).acts == (Open("a"),)
    assert upgrade_plan(AUTOMATIC, [replace(waits, pods=(OLD,))]).acts == (Close("a"),)


@pytest.mark.parametrize(("seconds", "evicts"), [(299.0, True), (301.0, False)])
def test_evictions_end_with_the_drain_s_time_and_the_node_stays_closed(seconds, evicts):
    node = UpgradeNode("a", (OLD,), holders=(POD,), closed_seconds=seconds, **CLOSED)
    plan = upgrade_plan(DRAINS, [node])
    assert plan.acts == ((Evict("a", POD),) if evicts else ())
    assert ("was not drained in time" in plan.stages[0].sentence) is not evicts
