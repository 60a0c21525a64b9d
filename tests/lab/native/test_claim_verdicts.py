"""`kube-rdma explain claim/NAME` says what the allocator of Kubernetes itself says.

The same small worlds are given to both (tests/kit/claim_worlds). No test here needs a lab: they are
here because the allocator is compiled, and `tests/kit/parts.py` does that before labs boot.
"""

import pytest

from kube_rdma.claims.rules.verdicts import judge
from kube_rdma.model.claims.claim import ClaimOutcome, Reason
from tests.kit import allocator
from tests.kit.claim_worlds import world
from tests.unit.claims.rules.test_cel import DRIVER, TRUE, WITHOUT_VALUE

SOME, MORE, MANY = range(400), range(3_000), range(400, 10_400)
# What the allocator logs of a device that it does not take, where it logs the very reason.
LOGGED = {
    "Device in use": {Reason.IN_USE},
    "Device not selectable": {Reason.CLASS_SELECTOR, Reason.SELECTOR, Reason.NODE_SELECTOR},
    "Skip comparing device capacity request": {Reason.CAPACITY_UNKNOWN},
    "Device capacity not enough": {Reason.CAPACITY},
    "Insufficient counters": {Reason.COUNTER},
    "Device not usable": {Reason.COUNTER, Reason.TAINT, Reason.CONSTRAINT},
}


DEVICE = {  # that of the selectors' own tests
    "name": "a",
    "attributes": {
        "rail": {"int": 1},
        "model": {"string": "ConnectX-7"},
        "fast": {"bool": True},
        "firmware": {"version": "28.39.1002-rc.1+build"},
        "std.test/root": {"string": "pci0000:15"},
    },
    "capacity": {"memory": {"value": "40Gi"}},
    "allowMultipleAllocations": True,
}
NOT_STORED = "CEL compile error"  # the API server refuses such a selector


@pytest.fixture(scope="module")
def program():
    with allocator.built() as path:
        yield path


def differences(program, numbers):
    """The worlds and nodes on which both do not say the same, with what each says."""
    worlds = [world(number) for number in numbers]
    for number, made, answer in zip(numbers, worlds, allocator.asked(program, worlds), strict=True):
        read = allocator.read(made)
        for node in read.nodes:
            theirs, ours = allocator.told(answer[node.name]), allocator.ours(judge(read, node))
            if theirs != ours:
                yield number, node.name, theirs, ours


def test_the_verdicts_are_the_allocators(program):
    assert list(differences(program, SOME)) == []


@pytest.mark.slow
def test_ten_thousand_verdicts_are_the_allocators(program):
    assert list(differences(program, MANY)) == []


def test_the_values_of_selectors_are_the_allocators(program):
    """Those of the unit tests, and what is written around them there."""
    texts = [*TRUE, *(f"!({text})" for text in TRUE if "//" not in text), *WITHOUT_VALUE]
    worlds = [of_one_device(text) for text in texts]
    compared = 0
    for made, answer in zip(worlds, allocator.asked(program, worlds), strict=True):
        (node,) = allocator.read(made).nodes
        theirs = answer[node.name]
        if NOT_STORED not in theirs.get("error", ""):
            assert allocator.ours(judge(allocator.read(made), node)) == allocator.told(theirs), made
            compared += 1
    assert compared > 0.8 * len(texts)


def of_one_device(selector):
    """A world whose claim asks with a selector for the only device."""
    made = next(one for one in map(world, MORE) if wants_one_device(one) and one["slices"])
    node = made["nodes"][0]["metadata"]["name"]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [DEVICE]}
    asked = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": selector}}],
    }
    wanted = {"devices": {"requests": [{"name": "r0", "exactly": asked}]}}
    return {
        "nodes": made["nodes"][:1],
        "classes": made["classes"],
        "slices": [{**made["slices"][0], "spec": spec}],
        "claims": [],
        "claim": {**made["claim"], "spec": wanted},
    }


def test_the_reasons_are_those_that_the_allocator_logs(program):
    """Of claims of one device, for which the allocator looks at each device once."""
    worlds = [made for made in map(world, MORE) if wants_one_device(made)]
    seen = set()
    for made, answer in zip(worlds, allocator.asked(program, worlds), strict=True):
        read = allocator.read(made)
        for node in read.nodes:
            verdict = judge(read, node)
            if verdict.outcome == ClaimOutcome.NOT_MET:
                logged = last_words(answer[node.name].get("log", ()))
                for one in verdict.devices:
                    name = f"{one.device.driver}/{one.device.pool}/{one.device.name}"
                    if name in logged:
                        assert one.objection.reason in LOGGED[logged[name]], (made, name)
                        seen.add(one.objection.reason)
    assert seen >= set(Reason) - {Reason.POOL_INCOMPLETE, Reason.POOL_INVALID, Reason.NOT_EVALUATED}


def wants_one_device(made):
    """Whether the claim has one request, of one device, and nothing else to choose from."""
    requests = made["claim"]["spec"]["devices"]["requests"]
    return len(requests) == 1 and requests[0].get("exactly", {}).get("count") == 1


def last_words(log):
    """The first reason that is logged of each device, by driver/pool/name."""
    words = {}
    for text, device in log:
        if text in LOGGED and device:
            words.setdefault(device, text)
    return words
