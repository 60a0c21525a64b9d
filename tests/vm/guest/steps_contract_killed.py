"""An agent that is killed after any message to the kernel leaves nothing: on the real one, too.

A message is what changes something: a request over netlink that is no question, a write to a file
of /proc/sys or /sys. Each test kills an agent after the first, after the second, and so on until
one lives. What it began is then taken back, or ended, by an agent that knows the plans and nothing
else, as the journal has them. A world brings the kernel, and how an agent dies there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from kube_base.frozen import replace
from kube_rdma.attach.rules.undo import check, undo_by_plan
from kube_rdma.model.attach.attachment import PodView
from kube_rdma.model.attach.steps import AwaitGid, SetSysctl, TakeLink
from kube_rdma.model.pools import SetFunction
from kube_rdma_selftest.trial import SelftestScene

from .killed_plans import ONE_LINK, PLANS, planned

POD_S_OWN = ("lo", "eth0")


class World(Protocol):
    """A node with two interfaces that pods are given, and what is done to it."""

    card: str  # of a card, up, with addresses of both families and a soft RDMA device
    function: str  # of a virtual function that is up

    def scene(self) -> SelftestScene: ...  # as the agent sees it
    def on_node(self): ...  # all of it, to be compared
    def pod(self) -> AbstractContextManager: ...  # a namespace; it has ended when that is left
    def open(self, namespace) -> AbstractContextManager: ...  # None of one that is gone
    def view(self, namespace, sysctls=(), functions=()) -> PodView: ...  # maybe without GIDs
    def dies(self, after, work) -> bool: ...  # whether so many messages killed who did the work
    def until(self, condition) -> bool: ...  # wait for it, and say in the end whether it holds
    def net1_is_taken(self) -> AbstractContextManager: ...  # by the node, before Linux 6.15


class Agent:
    """Does what the journal says; each of its acts opens the namespace anew."""

    def __init__(self, world, plans):
        self._world, self.plans = world, plans

    def attach(self, namespace):
        with self._world.open(namespace) as pod:
            for plan in self.plans:
                for step in plan.steps:
                    pod.run(step)

    def undo(self, namespace):
        with self._world.open(namespace) as pod:
            for _, act in undo_by_plan(self.plans):
                pod.undo(act)

    def complaints(self, namespace):
        """What CHECK says, but for GIDs, which were waited for a moment ago."""
        kept = [replace(plan, steps=tuple(filter(shown, plan.steps))) for plan in self.plans]
        steps = [step for plan in kept for step in plan.steps]
        paths = tuple(step.path for step in steps if isinstance(step, SetSysctl))
        functions = tuple(step.place for step in steps if isinstance(step, SetFunction))
        view = self._world.view(namespace, paths, functions)
        return [line for plan in kept for line in check(plan, view)]


def shown(step):
    """Whether World.view shows that a step was done."""
    return not isinstance(step, AwaitGid)


def clean(world, namespace):
    """Nothing of ours is in the pod."""
    view = world.view(namespace)
    links = [link for link in view.links if link.name not in POD_S_OWN]
    found = [*links, *view.routes, *view.rules]
    assert found == [], found


def as_before(world, before):
    """The node is, at last: a soft RDMA device ends some time after its interface."""
    if not world.until(lambda: world.on_node() == before):
        now = world.on_node()
        assert now == before, [one for one in zip(before, now, strict=True) if one[0] != one[1]]


def each_death(world, act):
    """Do it with an agent that is killed after one message, after two, …; after how many it was.

    Each time the node is in the end as it was, and stays so.
    """
    before, after, died = world.on_node(), 0, True
    while died:
        after += 1
        try:
            died = act(after, before)
            as_before(world, before)
        except Exception as error:
            error.add_note(f"killed after message {after}")
            raise
    return after - 1


def taken_back_or_ended(world, agent):
    """Kill it everywhere; of one death come two ends, and of the second one another death."""

    def act(after, before):
        with world.pod() as pod:
            died = world.dies(after, lambda: agent.attach(pod))
            agent.undo(pod)
            clean(world, pod)
            as_before(world, before)

            world.dies(after, lambda: agent.attach(pod))
            agent.attach(pod)
            wrong = agent.complaints(pod)
            assert wrong == [], wrong
            died |= world.dies(after, lambda: agent.undo(pod))
            agent.undo(pod)
            clean(world, pod)
            as_before(world, before)
        return died

    return each_death(world, act)


class Killed:
    """The contract."""

    @pytest.fixture(params=PLANS.values(), ids=PLANS.keys())
    def agent(self, request, world):
        """One that knows the plans of a pod."""
        return Agent(world, planned(world, request.param))

    def test_what_was_begun_is_taken_back_or_ended(self, world, agent):
        """Also when whoever takes it back is killed."""
        assert taken_back_or_ended(world, agent) >= 8

    def test_the_pod_may_end_after_any_message(self, world, agent):
        """Its card comes back to the node, and undoing restores that."""

        def act(after, _):
            with world.pod() as pod:
                died = world.dies(after, lambda: agent.attach(pod))
            agent.undo(None)
            return died

        assert each_death(world, act) >= 8

    def test_restoring_the_card_of_a_pod_that_ended_may_be_killed(self, world, agent):
        """What the kernel gave back is restored from wherever that was left."""

        def act(after, _):
            with world.pod() as pod:
                agent.attach(pod)
            died = world.dies(after, lambda: agent.undo(None))
            agent.undo(None)
            return died

        moved = any(isinstance(step, TakeLink) for plan in agent.plans for step in plan.steps)
        assert each_death(world, act) >= 2 * moved

    def test_a_link_may_have_another_name_for_a_moment(self, world):
        """While the node has one of its name, an old kernel makes it under another."""
        with world.net1_is_taken():
            assert taken_back_or_ended(world, Agent(world, planned(world, ONE_LINK))) >= 4
