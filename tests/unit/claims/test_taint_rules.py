"""DeviceTaintRules in `kube-rdma explain claim/NAME`: read as served, and applied to devices.

tests/lab/native/test_claim_verdicts asks the scheduler's own tracker of rules and its allocator.
"""

import asyncio
import json
from functools import partial

import pytest
from click.testing import CliRunner

from kube_rdma.adapters.cluster.kinds.resource_api import (
    BETA_TAINT_RULE,
    RESOURCE_CLAIM,
    TAINT_RULE,
)
from kube_rdma.claims.cluster import MOST_RULES
from kube_rdma.claims.rules.verdicts import explain_claim, objections
from kube_rdma.claims.views import claim_page
from kube_rdma.cli.explain import explain
from kube_rdma.explain.evidence import read_claim
from kube_rdma.lib.page import page_text
from kube_rdma.model.claims.claim import Reason
from kube_rdma.model.claims.devices import DRIVER
from tests.kit import claimed, explained

FIRST, SECOND = "0000-1a-00-0", "0000-3b-00-0"
BOTH = {("node-1", FIRST), ("node-1", SECOND), ("node-2", FIRST), ("node-2", SECOND)}
UNREAD = "DeviceTaintRules, if there are any, were not read"


def rule(selector=None, name="bad-card", effect="NoSchedule", value="flapping"):
    """A rule as its writer applied it; None: without a selector."""
    spec = {"taint": {"key": "rack.example/cable", "value": value, "effect": effect}}
    spec |= {} if selector is None else {"deviceSelector": selector}
    return {"metadata": {"name": name}, "spec": spec}


def world(*rules, kind=TAINT_RULE, **request):
    """The API server with a claim of one card, two nodes of two cards each, and rules."""
    nodes = ("node-1", "node-2")
    cards = (claimed.card(FIRST), claimed.card(SECOND))
    made = claimed.server(*(claimed.slice_of(node, *cards) for node in nodes), nodes=nodes)
    made.add(kind)
    for one in rules:
        made.put(kind, one)
    made.put(RESOURCE_CLAIM, claimed.claim(claimed.request(**request)))
    return made


def explanation(server):
    opened = partial(explained.opener(server), None)
    return explain_claim(asyncio.run(read_claim("train", "two-cards", None, opened)))


def kept(found):
    """The cards that rules keep from the claim, by node."""
    return {
        (node.node, one.device.name)
        for node in found.nodes
        for one in node.devices
        if one.objection and one.objection.reason is Reason.TAINT
    }


SELECTED = {
    "a driver": ({"driver": DRIVER}, BOTH),
    "another driver": ({"driver": "gpu.example"}, set()),
    "a pool": ({"pool": "node-2"}, {("node-2", FIRST), ("node-2", SECOND)}),
    "a pool of another driver": ({"driver": "gpu.example", "pool": "node-2"}, set()),
    "a device": ({"driver": DRIVER, "pool": "node-1", "device": FIRST}, {("node-1", FIRST)}),
    "a device's name": ({"device": SECOND}, {("node-1", SECOND), ("node-2", SECOND)}),
    "all": ({}, BOTH),
    "no selector": (None, set()),
}


@pytest.mark.parametrize("what", SELECTED)
def test_a_rule_is_for_the_devices_that_its_selector_names(what):
    selector, devices = SELECTED[what]
    assert kept(explanation(world(rule(selector), count=3))) == devices


@pytest.mark.parametrize(
    ("effect", "is_met"), [("NoSchedule", False), ("NoExecute", False), ("None", True), ("", True)]
)
def test_a_rule_has_the_effect_of_its_taint(effect, is_met):
    """To a consumer an effect that it does not know is None (resource/v1, DeviceTaint)."""
    assert explanation(world(rule({}, effect=effect))).is_met is is_met


@pytest.mark.parametrize(
    ("toleration", "is_met"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "rack.example/cable", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "rack.example/cable", "operator": "Equal", "value": "flapping"}, True),
        ({"key": "rack.example/cable", "operator": "Equal", "value": "old"}, False),
        ({"key": "rack.example/cable", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_request_tolerates_a_rule_as_it_tolerates_a_taint(toleration, is_met):
    assert explanation(world(rule({}), tolerations=[toleration])).is_met is is_met


def test_a_taint_of_the_slice_stays_beside_those_of_rules():
    made = claimed.server(claimed.slice_of("node-1", claimed.card(FIRST, taints=[claimed.DOWN])))
    made.add(TAINT_RULE)
    made.put(TAINT_RULE, rule({}))
    tolerated = [{"key": "rack.example/cable", "operator": "Exists"}]
    made.put(RESOURCE_CLAIM, claimed.claim(claimed.request(tolerations=tolerated)))
    found = explanation(made)
    assert found.nodes[0].devices[0].objection.text.startswith(f"taint {claimed.DOWN['key']}")
    assert "bad-card" not in found.headline


def test_the_rule_is_named_with_its_taint_and_what_to_do():
    found = explanation(world(rule({"pool": "node-1"}), rule({"pool": "node-2"}, "other")))
    what = "DeviceTaintRule bad-card (rack.example/cable=flapping:NoSchedule)"
    assert f"2 are tainted by {what}" in found.headline
    shown = " ".join(page_text(claim_page(found), 80).split())
    assert (
        f"✗ {FIRST}, {SECOND} taint rack.example/cable=flapping:NoSchedule of DeviceTaintRule "
        "bad-card is not tolerated: tolerate it in the request, or have the rule deleted"
    ) in shown


def test_a_sentence_counts_a_few_of_many_rules():
    names = [f"d{number:02}" for number in range(20)]
    made = claimed.server(claimed.slice_of("node-1", *map(claimed.card, names)), nodes=("node-1",))
    made.add(TAINT_RULE)
    for name in names:
        made.put(TAINT_RULE, rule({"device": name}, name))
    made.put(RESOURCE_CLAIM, claimed.claim(claimed.request()))
    (node,) = explanation(made).nodes
    assert objections(node).count("DeviceTaintRule") == 12
    assert objections(node).endswith(" and 8 more")


def test_a_server_without_rules_is_not_spoken_of():
    made = world()
    made.uninstall(TAINT_RULE, seen=False)
    found = explanation(made)
    assert found.is_met
    assert "TaintRule" not in page_text(claim_page(found), 80)


def test_rules_of_the_beta_are_read_where_only_that_is_served():
    """Without a selector a rule is for all devices in 1.36, and for none in 1.37."""
    made = world(rule({"pool": "node-1"}), kind=BETA_TAINT_RULE, count=3)
    found = explanation(made)
    assert {node for node, _ in kept(found)} == {"node-1"}
    assert any("feature gate DRADeviceTaintRules" in note for note in found.notes)
    assert kept(explanation(world(rule(None), kind=BETA_TAINT_RULE, count=3))) == BOTH
    made.add(TAINT_RULE)
    made.put(TAINT_RULE, rule({"pool": "node-2"}))
    found = explanation(made)
    assert {node for node, _ in kept(found)} == {"node-2"}
    assert not any("DeviceTaintRule" in note for note in found.notes)


@pytest.mark.parametrize("spec", [None, {"taint": 5}])
def test_rules_that_cannot_be_read_are_a_sentence(spec):
    """The right may be missing, or a rule may be one that kube-rdma does not understand."""
    made = world(rule({}))
    if spec is None:
        made.forbidden.add(("list", "devicetaintrules"))
    else:
        made.put(TAINT_RULE, {"metadata": {"name": "odd"}, "spec": spec})
    found = explanation(made)
    assert found.is_met
    (note,) = (one for one in found.notes if one.startswith(UNREAD))
    assert ("devicetaintrules" if spec is None else "odd") in note


def test_of_more_rules_than_are_looked_at_the_rest_is_counted():
    many = [rule({"device": FIRST}, f"rule-{number:04}") for number in range(5_000)]
    found = explanation(world(*many, rule({"device": SECOND}, "a-rule"), count=4))
    assert f"{5_001 - MOST_RULES} of 5001 DeviceTaintRules were left out." in found.notes
    assert kept(found) == BOTH


def test_the_text_of_a_rule_moves_no_terminal():
    evil = "x\x1b[2J\x1b]0;owned\x07\u202e"
    made = world(rule({}, name=evil, value=evil))
    shown = page_text(claim_page(explanation(made)), 80)
    assert "x?[2J?]0;owned??" in "".join(shown.split())
    assert all(line.isprintable() for line in shown.splitlines())
    opener = explained.opener(made)
    for words in ((), ("--json",)):
        result = CliRunner().invoke(explain, ["claim/train/two-cards", *words], obj=opener)
        assert "\x1b" not in result.stdout
    assert evil in json.loads(result.stdout)["nodes"][0]["devices"][0]["text"]


def test_a_taint_in_a_slice_is_of_no_rule_whatever_it_says():
    forged = {**claimed.DOWN, "rule": "admins"}
    made = claimed.server(claimed.slice_of("node-1", claimed.card(FIRST, taints=[forged])))
    made.put(RESOURCE_CLAIM, claimed.claim(claimed.request()))
    assert "admins" not in page_text(claim_page(explanation(made)), 80)
