"""Whatever stops an attachment, it can be taken back, and be repaired from where it stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.undo import check, lacks, undo, undo_by_plan
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRule,
    Announce,
    AwaitGid,
    AwaitPartition,
    MakeLink,
    MakeRdma,
    Probe,
    RemoveLink,
    RemoveLinks,
    SetLink,
    SetSysctl,
    TakeLink,
)
from kube_rdma.model.pools import Mode, RebindFunction
from tests.kit.pod_networks import card, network, node, planned, pods, share, wish
from tests.kit.pod_networks import given as leased
from tests.unit.attach.rules.pod_world import World


@st.composite
def stopped(draw):
    """A world in which each plan of a pod was run up to some Step, with the plans."""
    wishes, shares, cards, on, leases = draw(pods())
    plans = planned(wishes, shares, on, leases)
    return World(on, cards), [(plan, draw(st.integers(0, len(plan.steps)))) for plan in plans]


@given(stopped(), st.booleans())
def test_undo_restores_the_world_after_any_prefix(case, twice):
    """Node and pod are as before, however far each plan came, also when undone again."""
    world, plans = case
    before = world.state()
    for plan, count in plans:
        for step in plan.steps[:count]:
            world.run(step)
    for _ in range(1 + twice):
        for plan, _ in reversed(plans):
            for act in undo(plan):
                world.undo(act)
    assert world.state() == before


@given(stopped())
def test_all_plans_are_undone_at_once(case):
    """As one by one, with all links that were made in one act."""
    world, plans = case
    before = world.state()
    for plan, count in plans:
        for step in plan.steps[:count]:
            world.run(step)
    acts = [act for _, act in undo_by_plan([plan for plan, _ in plans])]
    several = [act for act in acts if isinstance(act, RemoveLinks)]
    single = [act for act in acts if isinstance(act, RemoveLink)]
    assert len(several) + len(single) <= 1
    for act in acts:
        world.undo(act)
    assert world.state() == before


@given(stopped())
def test_what_was_not_run_is_lacking(case):
    """After any prefix just the Steps behind it, and run again to the end nothing is.

    Announcements and probes leave no trace, and GIDs that are waited for come by themselves. A
    driver is bound again, which does nothing, while the node alone sees its RDMA device.
    """
    world, plans = case
    for plan, count in plans:
        for step in plan.steps[:count]:
            world.run(step)
    for plan, count in plans:
        assert traced(lacking(plan, world.view(plan))) == traced(plan.steps[count:])
    world.run_all(*(plan for plan, _ in plans))
    for plan, _ in plans:
        assert check(plan, world.view(plan)) == ()


def lacking(plan, seen):
    """The Steps that are not done."""
    return [step for step in plan.steps if lacks(step, seen)]


def traced(steps):
    traceless = Announce | AwaitGid | AwaitPartition | Probe | RebindFunction
    return [step for step in steps if not isinstance(step, traceless)]


def attached(**facts):
    """A plan with all kinds of Steps that a soft card needs, and the world where it was run."""
    of = card(1, soft=True)
    on = node(of)
    wishes = [wish(of=network(sysctls=(("ipv4/conf", "arp_notify", "1"),), mtu=9000))]
    (plan,) = planned(wishes, [share(of)], on, [leased(1, "10.0.0.7/24", **facts)])
    world = World(on, [of])
    world.run_all(plan)
    return plan, world


def taken():
    """The plan of a card that moves into its pod, and the world where it was run."""
    of = card(1)
    on = node(of)
    (plan,) = planned([wish()], [share(of, mode=Mode.EXCLUSIVE)], on, [])
    world = World(on, [of])
    world.run_all(plan)
    return plan, world


def drop(world, **facts):
    for name, value in facts.items():
        setattr(world.link("net1"), name, value)


FAULTS = {
    "link removed": (lambda w: w.remove(w.link("net1")), MakeLink, "macvlan link on ens1f0"),
    "another link": (lambda w: drop(w, alias=""), MakeLink, "the macvlan link on ens1f0"),
    "set down": (lambda w: drop(w, up=False), SetLink, "the interface is down"),
    "other MTU": (lambda w: drop(w, mtu=1500), SetLink, "its MTU is 1500, not 9000"),
    "no address": (lambda w: drop(w, addresses=()), AddAddress, "the address 10.0.0.7/24"),
    "no rule": (lambda w: w.pod.rules.clear(), AddRule, "the rule for what comes from 10.0.0.7"),
    "no sysctl": (
        lambda w: w.pod.sysctls.clear(),
        SetSysctl,
        "net.ipv4.conf.net1.arp_notify is not 1",
    ),
    "no RDMA": (lambda w: w.rdma.clear(), MakeRdma, "the RDMA device rxe-"),
    "other RDMA": (lambda w: setattr(w.rdma[-1], "name", "rxe9"), MakeRdma, "the RDMA device rxe-"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_check_names_what_is_wrong(name):
    """One sentence with interface and network, of just that Step."""
    spoil, kind, sentence = FAULTS[name]
    plan, world = attached()
    spoil(world)
    assert any(isinstance(step, kind) for step in lacking(plan, world.view(plan)))
    said = [one for one in check(plan, world.view(plan)) if sentence in one]
    assert said
    assert said[0].startswith("net1 (default/rdma-net): ")


def test_a_probe_is_neither_undone_nor_lacking():
    """It leaves no trace, and the pod's own address needs no question."""
    plan, world = attached(probe=True)
    unasked, _ = attached()
    assert Probe("net1", plan.addresses[0].address) in plan.steps
    assert undo(plan) == undo(unasked)
    drop(world, addresses=())
    assert not any(isinstance(step, Probe) for step in lacking(plan, world.view(plan)))


def test_a_link_of_the_same_name_is_not_the_card():
    """A virtual link that took the name of a taken card's does not count as that."""
    plan, world = taken()
    assert check(plan, world.view(plan)) == ()
    drop(world, kind="dummy")
    assert any(isinstance(step, TakeLink) for step in lacking(plan, world.view(plan)))


def test_a_card_of_which_the_kernel_tells_no_function_is_the_card():
    """As of virtio; a virtual link of which it tells none is not."""
    plan, world = taken()
    drop(world, pci=None)
    assert check(plan, world.view(plan)) == ()
    drop(world, kind="veth")
    assert any(isinstance(step, TakeLink) for step in lacking(plan, world.view(plan)))
