"""Sandboxes that lack networks, attachments that are left over, and pods that must be made anew."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.rules.repair import (
    ABSENT,
    AGAIN,
    FAILURES,
    FIRST,
    GRACE,
    LONGEST,
    OWN_STATUS,
    REFUSALS,
    STATUS,
    RepairState,
    RepairView,
    asks_for_nothing,
    decide,
    due,
    failed,
    is_hopeless,
    is_others,
    is_owed,
    is_remade,
    refused,
)
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.model.attach.attachment import Attachment, Sandbox
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import MIRROR, PodState
from kube_rdma.model.late_binding import PodName, PodSandbox

ASKS = ((ANNOTATION, "rdma"),)
STATIC = (*ASKS, (MIRROR, "abc"))


def pod(name="a", annotations=ASKS, phase="Running", **facts):
    return PodState("default", name, f"uid-{name}", annotations, phase=phase, **facts)


def sandbox(container="c1", name="a", *, ready=True, created=1, uid=None):
    return PodSandbox(container, PodName("default", name), uid or f"uid-{name}", ready, created)


def attached(container="c1", *, complete=True):
    at = Sandbox(container, PodName("default", "a"), "uid-a", f"/ns/{container}", 1)
    return Attachment(at, (), complete)


def lasting(seen, *, seconds=GRACE, state=None):
    """What is decided when all stays as it is for so long."""
    return decide(seen, decide(seen, state or RepairState(), 100.0).state, 100.0 + seconds)


def missing(*sandboxes, pods, attachments=()):
    """The containers that lack their networks, after the grace."""
    return [one.container for one in lasting(RepairView(sandboxes, pods, attachments)).missing]


def test_a_sandbox_without_its_networks_is_missing_after_the_grace():
    seen = RepairView((sandbox(),), (pod(),), ())
    assert decide(seen, RepairState(), 100.0).missing == ()
    assert lasting(seen, seconds=GRACE - 0.1).missing == ()
    assert lasting(seen).missing == (sandbox(),)


@pytest.mark.parametrize(
    "annotations", [ASKS, ((POD_NETWORKS, "[{}]"),), (*ASKS, (POD_NETWORKS, "x"))]
)
def test_every_annotation_counts(annotations):
    assert missing(sandbox(), pods=(pod(annotations=annotations),)) == ["c1"]


@pytest.mark.parametrize(
    "one",
    [
        pod(annotations=()),
        pod(annotations=((ANNOTATION, " "),)),
        pod(host_network=True),
        pod(deleting=True),
        pod(phase="Succeeded"),
        pod(phase="Failed"),
        pod("b"),
    ],
)
def test_a_pod_that_cannot_want_networks_now_lacks_none(one):
    """It asks for none, has no namespace of its own, ends, has ended, or is another one."""
    assert missing(sandbox(), pods=(one,)) == []


def test_a_sandbox_of_a_pod_of_the_same_name_lacks_nothing():
    assert missing(sandbox(uid="uid-before"), pods=(pod(),)) == []


def test_only_a_ready_sandbox_and_the_newest_one_can_lack_networks():
    old, new = sandbox("c1", created=1), sandbox("c2", created=2)
    assert missing(new, old, pods=(pod(),)) == ["c2"]
    assert missing(sandbox(ready=False), pods=(pod(),)) == []


def test_an_attachment_that_is_half_made_is_none():
    """A late attach that could not be taken back is tried again."""
    assert missing(sandbox(), pods=(pod(),), attachments=(attached(),)) == []
    half = attached(complete=False)
    assert missing(sandbox(), pods=(pod(),), attachments=(half,)) == ["c1"]


OTHER_STATUS = json.dumps([{"name": "cbr0", "default": True}, {"name": "default/rdma"}])


@pytest.mark.parametrize(
    ("annotations", "is_so"),
    [
        ((*ASKS, (STATUS, OTHER_STATUS)), True),
        ((*ASKS, (STATUS, json.dumps([{"name": "cbr0", "default": True}]))), False),
        ((*ASKS, (STATUS, OTHER_STATUS), (OWN_STATUS, "[]")), False),
        ((*ASKS, (STATUS, "{}")), False),
        ((*ASKS, (STATUS, "[1]")), False),
        ((*ASKS, (STATUS, "[" * 100_000)), False),
        (ASKS, False),
    ],
)
def test_networks_that_others_gave_are_left_alone(annotations, is_so):
    """As those of Multus, from before; our own status may be of a sandbox that has ended."""
    assert is_others(pod(annotations=annotations)) is is_so
    found = missing(sandbox(), pods=(pod(annotations=annotations),))
    assert found == ([] if is_so else ["c1"])


def test_tries_become_rarer_and_never_end():
    """A pod that waits for its network waits for ever, as with ADD."""
    seen = RepairView((sandbox(),), (pod(phase="Pending"),), ())
    state, now, pauses = lasting(seen).state, 105.0, []
    for _ in range(12):
        state = failed(state, "c1", now, refused=False)
        assert not is_hopeless(state, "c1", seen.pods[0])
        next_one = due(state, now)
        assert decide(seen, state, next_one - 0.1).missing == ()
        found = decide(seen, state, next_one)
        assert found.missing == (sandbox(),)
        pauses.append(next_one - now)
        state, now = found.state, next_one
    assert pauses[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert pauses[-1] == LONGEST


@pytest.mark.parametrize(("refused", "times"), [(True, REFUSALS), (False, FAILURES)])
def test_a_running_pod_is_given_up_after_a_number_of_tries(refused, times):
    """Refusals count sooner; a pod that ends, or does not run, is not given up."""
    state = RepairState()
    for number in range(1, times + 1):
        state = failed(state, "c1", float(number), refused=refused)
        assert is_hopeless(state, "c1", pod()) is (number == times)
    assert not is_hopeless(state, "c1", pod(phase="Pending"))
    assert not is_hopeless(state, "c1", pod(deleting=True))
    assert not is_hopeless(state, "c2", pod())


def test_refusals_count_in_a_row():
    """One, an outage, one more: it may have been two networks that were just being made."""
    state = failed(RepairState(), "c1", 1.0, refused=True)
    state = failed(state, "c1", 2.0, refused=False)
    state = failed(state, "c1", 3.0, refused=True)
    assert not is_hopeless(state, "c1", pod())


@pytest.mark.parametrize(
    ("asking", "chained", "owed"),
    [(5, 5, True), (7, 7, True), (8, 5, False), (5, 8, False), (None, 5, False), (5, None, False)],
)
def test_only_what_was_owed_networks_at_its_start_can_be_evicted(asking, chained, owed):
    """The pod asked and we were called by then; no static pod, which cannot be evicted."""
    assert is_owed(sandbox(created=7), pod(), asking, chained) is owed
    assert not is_owed(sandbox(created=7), pod(annotations=STATIC), asking, chained)


def test_a_static_pod_is_known_by_the_uid_that_its_mirror_names():
    static = pod(annotations=STATIC)
    assert missing(sandbox(uid="abc"), pods=(static,)) == ["c1"]
    assert missing(sandbox(), pods=(static,)) == []


def test_a_pod_that_turned_out_to_ask_for_nothing_is_asked_once():
    """Its annotation is an empty list; a sandbox that comes later is another one."""
    seen = RepairView((sandbox(),), (pod(),), ())
    state = asks_for_nothing(lasting(seen).state, "c1")
    assert due(state, 105.0) == float("inf")
    assert lasting(seen, state=state).missing == ()
    later = decide(RepairView((), (pod(),), ()), state, 200.0)
    assert lasting(seen, state=later.state).missing == (sandbox(),)


def test_an_attachment_whose_sandbox_is_unknown_ends_when_it_surely_is():
    """The runtime may still be making it: it lists a sandbox after its ADD."""
    seen = RepairView((sandbox("c2", "b"),), (), (attached(),))
    assert decide(seen, RepairState(), 100.0).orphans == ()
    assert lasting(seen, seconds=ABSENT - 1).orphans == ()
    assert lasting(seen, seconds=ABSENT).orphans == ("c1",)


def test_a_sandbox_that_another_version_attached_lacks_nothing():
    """Its attachment is there, though nobody can read what it is: no repair, and no eviction."""
    seen = RepairView((sandbox(),), (pod(),), ())
    assert lasting(seen).missing == (sandbox(),)
    assert lasting(replace(seen, foreign={"c1"})).missing == ()


def test_an_attachment_whose_namespace_is_gone_too_ends_at_once():
    seen = RepairView((sandbox("c2", "b"),), (), (attached(),), {"c1"})
    assert decide(seen, RepairState(), 100.0).orphans == ("c1",)
    stopped = RepairView((sandbox(ready=False),), (), (attached(),), {"c1"})
    assert decide(stopped, RepairState(), 100.0).orphans == ("c1",)


@pytest.mark.parametrize(
    "seen",
    [
        RepairView((sandbox(),), (), (attached(),), {"c1"}),
        RepairView((sandbox(ready=False),), (), (attached(),)),
        RepairView((), (), (attached(),), {"c1"}),
        RepairView((sandbox("c2", "b"),), (), (attached(complete=False),), {"c1"}),
    ],
)
def test_what_may_be_alive_is_never_ended(seen):
    """It is ready, its DEL will come, it is another runtime's, or its ADD is under way."""
    assert lasting(seen, seconds=10 * ABSENT).orphans == ()


CONTAINERS = ("c1", "c2", "c3")
names = st.sampled_from(("a", "b"))
containers = st.sampled_from(CONTAINERS)
pods = st.builds(
    pod,
    names,
    st.sampled_from([(), ASKS, (*ASKS, (STATUS, OTHER_STATUS))]),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    host_network=st.booleans(),
    deleting=st.booleans(),
)
looks = st.builds(
    RepairView,
    st.lists(
        st.builds(sandbox, containers, names, ready=st.booleans(), created=st.integers(0, 3)),
        unique_by=lambda one: one.container,
    ).map(tuple),
    st.lists(pods, unique_by=lambda one: one.uid).map(tuple),
    st.lists(
        st.builds(attached, containers, complete=st.booleans()),
        unique_by=lambda one: one.sandbox.container,
    ).map(tuple),
    st.sets(containers).map(frozenset),
)
steps = st.lists(st.tuples(looks, st.floats(0.1, 400.0)), min_size=1, max_size=8)


@given(steps, st.data())
def test_whatever_is_seen_only_the_guilty_are_touched(steps, data):
    """Missing ones lived without networks for the grace, orphans had no living sandbox."""
    state, now, lacked, unseen = RepairState(), 1000.0, {}, {}
    for seen, passed in steps:
        now += passed
        found = decide(seen, state, now)
        listed = {one.container: one for one in seen.sandboxes}
        complete = {one.sandbox.container for one in seen.attachments if one.complete}
        ready = {key for key, one in listed.items() if one.ready}
        lacked = {key: lacked.get(key, now) for key in ready - complete}
        unseen = {key: unseen.get(key, now) for key in complete - ready}
        for one in found.missing:
            (its,) = [each for each in seen.pods if each.uid == one.uid]
            assert ANNOTATION in dict(its.annotations)
            assert its.phase not in ("Succeeded", "Failed")
            assert not its.host_network
            assert not its.deleting
            assert lacked[one.container] + GRACE <= now
        for container in found.orphans:
            assert listed
            assert container in seen.gone or unseen[container] + ABSENT <= now
            assert container in unseen
        assert not {one.container for one in found.missing} & set(found.orphans)
        assert decide(seen, found.state, now).state == found.state
        state = found.state
        for one in found.missing:
            if data.draw(st.booleans()):
                state = failed(state, one.container, now, refused=data.draw(st.booleans()))
                assert due(state, now) > now
                assert one not in decide(seen, state, now).missing


@given(looks)
def test_what_stays_wrong_is_acted_upon_in_bounded_time(seen):
    """By looking again whenever `due` says so, without any news."""
    state, now = RepairState(), 0.0
    first = decide(seen, state, now)
    wrong = {*first.state.lacking, *first.state.absent}
    done = set()
    state = first.state
    for _ in range(4):
        done |= {one.container for one in decide(seen, state, now).missing}
        done |= set(decide(seen, state, now).orphans)
        if (at := due(state, now)) < float("inf"):
            now = at
        state = decide(seen, state, now).state
    assert done == wrong
    assert now <= ABSENT


KEYS = [("uid-1", None), ("uid-1", InterfaceName("net1")), ("uid-2", None)]
TRIES = st.lists(st.tuples(st.floats(0.0, 2 * LONGEST), st.sampled_from(KEYS)), max_size=30)


@given(TRIES)
def test_it_is_asked_at_the_second_refusal_in_a_row_and_once_in_a_while(tries):
    """What was refused long ago is forgotten, so the state has an end."""
    state, now, history = {}, 0.0, {}
    for seconds, key in tries:
        now += seconds
        state, asks = refused(state, key, now)
        times, at, asked = history.get(key, (0, now, None))
        if now - at > LONGEST:
            times, asked = 0, None
        due = times + 1 >= REFUSALS and (asked is None or now - asked >= AGAIN)
        assert asks is due
        history[key] = (times + 1, now, now if due else asked)
        assert all(now - one.at <= LONGEST for one in state.values())


@pytest.mark.parametrize(
    ("facts", "remade"),
    [
        ({"owner": "Job/j"}, True),
        ({}, False),
        ({"owner": "Job/j", "annotations": ((MIRROR, "x"),)}, False),
    ],
)
def test_only_what_an_owner_makes_anew_is_ended(facts, remade):
    """The Node owns a static pod's mirror, and makes nothing."""
    assert is_remade(PodState("default", "a", "u", **facts)) is remade
