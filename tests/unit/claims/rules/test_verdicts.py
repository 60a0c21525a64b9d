"""What is against each device of a claim that waits; tests/lab/native asks the real allocator."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.claims.rules import search
from kube_rdma.claims.rules.verdicts import explain_claim, judge
from kube_rdma.model.claims.claim import (
    AllocationResult,
    ClaimConstraint,
    ClaimName,
    ClaimNode,
    ClaimOutcome,
    ClaimRequest,
    ClaimWorld,
    DeviceClass,
    Reason,
    RequestChoices,
    ResourceClaim,
)
from kube_rdma.model.claims.devices import (
    CapacityPolicy,
    CapacityRange,
    Counter,
    CounterSet,
    CounterUse,
    DeviceCapacity,
    DeviceTaint,
    ListedDevice,
)
from kube_rdma.model.kubernetes import Toleration
from tests.kit.claims import attributes, slice_of

DRIVER, NODE = "d.test", ClaimNode("node-1", {"zone": "a"})
ANY = DeviceClass("any")
WANTED = ClaimName("team", "wanted", "uid")


def claim_for(requests, constraints=()):
    """A claim of plain requests."""
    choices = tuple(RequestChoices(one.name, (one,)) for one in requests)
    return ResourceClaim(WANTED, choices, constraints)


def asked(**more):
    return ClaimRequest("nics", "any", **more)


def offered(*devices, **more):
    return slice_of(DRIVER, *devices, **more)


def held(name, device, **more):
    result = AllocationResult("nics", DRIVER, NODE.name, device, **more)
    return ResourceClaim(ClaimName("team", name, "uid"), allocated=(result,))


def verdict(request, *slices, others=(), constraints=(), nodes=(NODE,), classes=(ANY,)):
    world = ClaimWorld(claim_for((request,), constraints), nodes, classes, slices, others)
    return judge(world, NODE)


def reasons(found):
    return {one.device.name: one.objection.reason for one in found.devices if one.objection}


SLOTS = {"slots": DeviceCapacity(Fraction(2), CapacityPolicy(Fraction(1)))}
TAINT = DeviceTaint("down", "NoSchedule")
CASES = {
    Reason.SELECTOR: (asked(selectors=("false",)), offered(ListedDevice("a")), ()),
    Reason.TAINT: (asked(), offered(ListedDevice("a", taints=(TAINT,))), ()),
    Reason.IN_USE: (asked(), offered(ListedDevice("a")), (held("other", "a"),)),
    Reason.CAPACITY_UNKNOWN: (asked(capacity={"x": 1}), offered(ListedDevice("a")), ()),
    Reason.CAPACITY: (
        asked(),
        offered(ListedDevice("a", capacity=SLOTS, shared=True)),
        (held("other", "a", share="1", capacity={"slots": Fraction(2)}),),
    ),
    Reason.POOL_INCOMPLETE: (asked(), offered(ListedDevice("a"), slices=2), ()),
    Reason.POOL_INVALID: (asked(), offered(ListedDevice("a"), ListedDevice("a")), ()),
    Reason.NODE_SELECTOR: (
        asked(count=2),
        offered(
            ListedDevice("a", node_name="node-2"),
            ListedDevice("b", all_nodes=True),
            node_name=None,
            per_device=True,
        ),
        (),
    ),
}


@pytest.mark.parametrize("reason", CASES)
def test_each_reason_is_told_of_its_device(reason):
    request, part, others = CASES[reason]
    found = verdict(request, part, others=others)
    assert found.outcome == ClaimOutcome.NOT_MET
    assert reasons(found) == {"a": reason}


@pytest.mark.parametrize("policy", [None, CapacityPolicy(Fraction(1))])
@pytest.mark.parametrize("share", [None, "1"])
def test_a_share_in_use_is_not_given_again_when_its_device_becomes_one_for_many_or_for_one(
    policy, share
):
    """As an update or roll-back of the agent does to parts of cards (claims/rules/shape)."""
    part = ListedDevice("c-s0", shared=bool(policy))
    part = replace(part, capacity={"slots": DeviceCapacity(Fraction(1), policy)})
    other = held("other", "c-s0", share=share, capacity={"slots": Fraction(1)} if share else {})
    found = verdict(asked(), offered(part), others=(other,))
    assert reasons(found) == {"c-s0": Reason.CAPACITY if share else Reason.IN_USE}


def test_a_device_of_another_class_is_said_to_be_of_none_of_its():
    found = verdict(asked(), offered(ListedDevice("a")), classes=(DeviceClass("any", ("false",)),))
    assert reasons(found) == {"a": Reason.CLASS_SELECTOR}


def test_counters_are_used_up_by_what_others_hold():
    use = (CounterUse("set", {"memory": Counter(Fraction(2))}),)
    memory = CounterSet("set", {"memory": Counter(Fraction(3))})
    parts = (
        offered(ListedDevice("a", uses=use), ListedDevice("b", uses=use), slices=2),
        offered(name="t", slices=2, counter_sets=(memory,)),
    )
    found = verdict(asked(), *parts, others=(held("other", "a"),))
    assert reasons(found) == {"a": Reason.IN_USE, "b": Reason.COUNTER}
    texts = {one.device.name: one.objection.text for one in found.devices}
    assert texts["a"] == "claim team/other holds it"
    assert texts["b"] == "2 of counter set/memory is wanted, 1 is left"
    memory = CounterSet("set", {"memory": Counter(Fraction(4))})
    enough = offered(name="t", slices=2, counter_sets=(memory,))
    assert verdict(asked(count=2), parts[0], enough).outcome == ClaimOutcome.MET
    shared = ListedDevice("a", uses=use, shared=True, capacity=SLOTS)
    shares = offered(shared, ListedDevice("b", uses=use), slices=2)
    found = verdict(asked(), shares, parts[1], others=(held("other", "b"),))
    assert reasons(found)["a"] == Reason.COUNTER
    two = claim_for((asked(), ClaimRequest("more", "any")))
    both = judge(ClaimWorld(two, (NODE,), (ANY,), (shares, parts[1])), NODE)
    assert [one.device for one in both.granted] == ["a", "a"]
    other = held("other", "a", share="1", capacity={"slots": Fraction(1)})
    assert verdict(asked(), shares, parts[1], others=(other,)).outcome == ClaimOutcome.MET


def test_what_a_constraint_forbids_is_told_beside_the_device_that_was_chosen():
    devices = [
        ListedDevice(name, attributes=attributes({"rail": rail}))
        for name, rail in zip("abc", (1, 2, 3), strict=True)
    ]
    rule = (ClaimConstraint(f"{DRIVER}/rail"),)
    found = verdict(asked(count=2), offered(*devices), constraints=rule)
    assert (found.wanted, found.lacking) == (2, 1)
    assert [one.device.name for one in found.devices if one.chosen] == ["a"]
    assert reasons(found) == {"b": Reason.CONSTRAINT, "c": Reason.CONSTRAINT}


def test_a_toleration_takes_the_taint_and_admin_access_minds_no_holder():
    tainted = offered(ListedDevice("a", taints=(TAINT,)))
    for operator in ("", "Equal", "Exists"):
        tolerant = asked(tolerations=(Toleration("down", operator),))
        assert verdict(tolerant, tainted).outcome == ClaimOutcome.MET
    others = (held("other", "a"),)
    assert verdict(asked(admin=True), offered(ListedDevice("a")), others=others).granted[0].admin


@pytest.mark.parametrize(
    ("request_", "part", "text"),
    [
        (ClaimRequest("nics", "gone"), offered(), "there is no DeviceClass gone"),
        (asked(every=True), offered(ListedDevice("a"), slices=2), "1 of its 2 slices are there"),
        (asked(count=33), offered(), "33 devices"),
        (asked(selectors=("device.x == 1",)), offered(ListedDevice("a")), "no x"),
    ],
)
def test_what_stops_the_scheduler_everywhere_is_refused(request_, part, text):
    found = verdict(request_, part)
    assert found.outcome == ClaimOutcome.REFUSED
    assert text in found.why


def test_a_selector_that_is_not_evaluated_leaves_the_node_without_a_verdict():
    request, part = asked(selectors=("nobody()",)), offered(ListedDevice("a"))
    found = verdict(request, part)
    assert found.outcome == ClaimOutcome.NOT_JUDGED
    assert reasons(found) == {"a": Reason.NOT_EVALUATED}
    assert verdict(request, part, others=(held("o", "a"),)).outcome == ClaimOutcome.NOT_MET


def test_a_search_that_takes_too_long_ends_without_a_verdict():
    devices = [
        ListedDevice(f"d{number}", attributes=attributes({"n": number % 2})) for number in range(30)
    ]
    rules = (ClaimConstraint(f"{DRIVER}/n"),)
    found = verdict(asked(count=16), offered(*devices), constraints=rules)
    assert found.outcome == ClaimOutcome.NOT_JUDGED


def test_requests_for_all_devices_that_another_may_stand_for_end_without_a_verdict():
    """Eight ways for each of thirty requests, and one that no device meets."""
    ways = [ClaimRequest(f"r/{number}", "any", every=True) for number in range(8)]
    requests = [RequestChoices(f"r{number}", tuple(ways)) for number in range(30)]
    requests.append(RequestChoices("none", (asked(every=True, selectors=("false",)),)))
    part = offered(ListedDevice("a", shared=True))
    world = ClaimWorld(ResourceClaim(WANTED, tuple(requests)), (NODE,), (ANY,), (part,))
    assert judge(world, NODE).outcome == ClaimOutcome.NOT_JUDGED


@pytest.mark.parametrize(
    ("selector", "outcome"),
    [
        ("!" * 3_000 + "true", ClaimOutcome.MET),
        ("&&".join(["true"] * 1_000), ClaimOutcome.MET),
        ("+".join(["1"] * 1_000) + " == 1000", ClaimOutcome.MET),
        ("(" * 1_000 + "true" + ")" * 1_000, ClaimOutcome.NOT_JUDGED),
    ],
)
def test_a_selector_of_one_sign_has_a_verdict(selector, outcome):
    found = verdict(asked(selectors=(selector,)), offered(ListedDevice("a")))
    assert found.outcome == outcome


@pytest.mark.parametrize("value", ["false", "device.x == 1"])
def test_a_long_selector_is_not_repeated_for_each_device(value):
    """It may have 10 KiB, and there are thousands of devices and nodes."""
    found = verdict(asked(selectors=(f"{value} //{'x' * 9_000}",)), offered(ListedDevice("a")))
    assert len(found.why) < 600
    assert all(len(one.objection.text) < 500 for one in found.devices)


def test_all_nodes_together_have_an_end(monkeypatch):
    """Each search by itself would be let go on to its end."""
    monkeypatch.setattr(search, "MOST_STEPS", 2_000)
    monkeypatch.setattr(search, "MOST_STEPS_TOGETHER", 100_000)
    nodes = tuple(ClaimNode(f"node-{number}") for number in range(30))
    devices = [
        ListedDevice(f"d{number}", attributes=attributes({"n": number % 2})) for number in range(30)
    ]
    part = offered(*devices, node_name=None, all_nodes=True)
    claim = claim_for((asked(count=16),), (ClaimConstraint(f"{DRIVER}/n"),))
    explained = explain_claim(ClaimWorld(claim, nodes, (ANY,), (part,)))
    looks = [int(one.why.split()[1]) for one in explained.nodes]
    assert {one.outcome for one in explained.nodes} == {ClaimOutcome.NOT_JUDGED}
    assert max(looks) == 2_001
    assert sum(looks) <= 100_000 // search.STEPS_OF_A_LOOK + len(nodes)


def test_the_nearest_node_comes_first_and_the_sentence_names_it():
    nodes = tuple(ClaimNode(f"node-{number}") for number in (1, 2))
    two = offered(ListedDevice("a"), ListedDevice("b", taints=(TAINT,)), node="node-2")
    explained = explain_claim(ClaimWorld(claim_for((asked(count=2),)), nodes, (ANY,), (two,)))
    assert [(one.node, one.lacking) for one in explained.nodes] == [("node-2", 1), ("node-1", 2)]
    assert explained.headline == (
        "No node has the 2 devices that the claim asks for; nearest is node-2, which lacks 1: "
        "1 is tainted."
    )


@given(st.integers(0, 7), st.integers(1, 9), st.integers(1, 3) | st.none())
def test_a_range_rounds_up_to_its_steps_and_never_takes_more_than_there_is(asks, has, step):
    policy = CapacityPolicy(valid_range=CapacityRange(Fraction(1), None, step and Fraction(step)))
    slots = {"slots": DeviceCapacity(Fraction(has), policy)}
    taken = search.taken_capacity(slots, {"slots": Fraction(asks)})["slots"]
    assert taken >= max(asks, 1)
    assert (taken - 1) % (step or 1) == 0
    assert taken < max(asks, 1) + (step or 1)
    assert (search.objection(slots, {"slots": Fraction(asks)}) is None) == (taken <= has)


def test_an_amount_is_as_asked_without_a_policy_and_else_the_next_that_is_allowed():
    half, one = Fraction(1, 2), Fraction(1)
    steps = CapacityPolicy(valid_range=CapacityRange(half, None, one))
    values = CapacityPolicy(valid_values=(one, Fraction(2)))
    cases = (None, half, half), (steps, half, one), (values, half, one), (values, one, one)
    for policy, asks, taken in cases:
        slots = {"slots": DeviceCapacity(Fraction(2), policy)}
        assert search.taken_capacity(slots, {"slots": asks}) == {"slots": taken}


@pytest.mark.parametrize(
    ("amount", "text"),
    [(400 * 10**9, "400G"), (40 * 2**30, "40Gi"), (16, "16"), (0, "0"), (1024, "1Ki")],
)
def test_amounts_are_written_as_people_write_them(amount, text):
    assert search.shown(Fraction(amount)) == text
