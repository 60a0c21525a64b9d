"""A model of flapping cards, edited policies and new leaders: what rules promise at each step."""

import random
from collections import Counter

import pytest

from kube_base.frozen import replace
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import Taint
from kube_rdma.model.reports import NodeReportStatus, ReportedCard, ReportSummary
from kube_rdma.repair.rules import taints as rules

RUNS, STEPS, NODES = 1000, 40, 6


def report(healthy, why="no port is ACTIVE", degraded=()):
    """A report of cards that are down, and of two that are up and may be degraded."""
    ill = [ReportedCard(f"{n}", f"mlx5_{n}", ("r",), reasons=(why,)) for n in range(healthy, 8)]
    up = [
        ReportedCard(card, card, ("r",), degraded="errors rise" if card in degraded else "")
        for card in ("x", "y")
    ]
    return NodeReportStatus("1", (*ill, *up), summary=ReportSummary(8, healthy))


class Model:
    """A cluster of few nodes, what the rules did to it, and since when each node was well."""

    def __init__(self, seed):
        self.random, self.now, self.since = random.Random(seed), 0.0, {}  # noqa: S311
        self.nodes = {f"n{n}": model.RepairNode(f"n{n}", {}) for n in range(NODES)}
        for name, node in self.nodes.items():
            self.nodes[name] = replace(node, labels={"gpu": "yes"} if name < "n5" else {})
        self.reports = dict.fromkeys(self.nodes, report(8))
        self.devices = dict.fromkeys(self.nodes, ("x", "y"))
        self.rules = {}  # the DeviceTaintRules of policies by name
        self.policies = {
            name: model.RepairSpec(name, cards_below=8, errors=True, clear_after=100, enforce=True)
            for name in ("a", "b")
        }
        self.well = {}  # by policy, node and card: since when, by the model's own book

    def step(self):
        """Change one thing of the world."""
        name, policy = self.random.choice([*self.nodes]), self.random.choice([*self.policies])
        node, spec = self.nodes[name], self.policies[policy]
        pick = self.random.choice
        match self.random.randrange(12):
            case 0 | 1:
                degraded = pick(["", "", "x", "xy"])
                self.reports[name] = report(pick([8, 8, 7, 0]), degraded=degraded)
            case 2:
                self.reports.pop(name, None)  # too old
            case 3:
                self.since = {}  # a new leader
            case 4:
                self.nodes[name] = replace(node, ignored=not node.ignored)
            case 5:
                edits = {"most_nodes": pick([1, 2, 9]), "effect": pick(model.EFFECTS)}
                edits |= {"device_taint": pick([None, "NoSchedule", "NoExecute"])}
                edits |= {
                    "most_cards": pick([1, 2, 9]),
                    "most_per_leaf": pick([None, 1]),
                    "selector": pick([(), (("gpu", "yes"),)]),
                }
                self.policies[policy] = replace(spec, **edits)
            case 6:
                self.policies[policy] = replace(spec, enforce=pick([True, True, False]))
            case 7:
                self.policies[policy] = replace(spec, paused=pick([True, False, False]))
            case 8:
                taint = pick([None, Taint(model.KEY, "NoSchedule", pick(["a", "gone"]))])
                self.nodes[name] = replace(node, taint=taint)  # by hand, or out of a backup
            case 9:
                self.devices[name] = pick([(), ("x",), ("x", "y"), ("x", "x-s0", "y")])
            case 10 if self.rules:
                del self.rules[pick([*self.rules])]  # by hand
            case 11:
                self.policies[policy] = replace(spec, device_taint="NoSchedule", paused=False)

    def look(self, looks=1):
        """Let the rules decide, carry it out, and check it."""
        world = self.world()
        for spec in self.policies.values():
            for node in self.nodes.values():
                found = rules.faults(spec, node, world)
                for card in ("", "x", "y"):
                    known = "" if node.name in self.reports else None
                    if found.get(card, known) == "" and not spec.paused:
                        self.well.setdefault((spec.name, node.name, card), self.now)
                    else:
                        self.well.pop((spec.name, node.name, card), None)
        planned = rules.plan(world, self.since, self.now)
        self.since = planned.well_since
        before = Counter(node.taint.value for node in self.nodes.values() if node.taint)
        for change in planned.changes:
            if change.card:
                continue
            self.check(change, self.nodes[change.node], world)
            self.nodes[change.node] = replace(self.nodes[change.node], taint=change.taint)
        after = Counter(node.taint.value for node in self.nodes.values() if node.taint)
        for name, count in after.items():
            assert count <= max(self.policies[name].most_nodes, before[name])
        before = self.cards()
        for change in planned.changes:
            if not change.card:
                continue
            self.check_card(change)
            for rule in change.removed:
                assert self.rules.pop(rule.name) == rule
            for rule in change.added:
                assert rule.name not in self.rules
                self.rules[rule.name] = rule
        for name, count in self.cards().items():
            assert count <= max(self.policies[name].most_cards, before[name])
        again = rules.plan(self.world(), self.since, self.now)
        assert not [change for change in again.changes if change.card]
        if again.changes:  # a taint that another policy's has replaced frees a place in a budget
            assert looks
            self.look(looks - 1)

    def world(self):
        known = (tuple(self.policies.values()), dict(self.nodes), self.reports)
        devices = {"devices": self.devices, "rules": tuple(self.rules.values())}
        return rules.RepairWorld(*known, **devices)

    def cards(self):
        """How many cards each policy taints."""
        found = {(one.policy, one.node, one.card) for one in self.rules.values()}
        return Counter(policy for policy, _, _ in found)

    def check_card(self, change):
        taint = change.taint or change.before
        spec, node = self.policies[taint.value], self.nodes[change.node]
        binds = self.binds(spec, node) and spec.device_taint
        if change.added:
            assert binds
            assert {rule.spec.taint.effect for rule in change.added} == {spec.device_taint}
            assert {rule.spec.device_selector.pool for rule in change.added} == {change.node}
        elif binds:
            well = self.well[spec.name, change.node, change.card]
            assert self.now - well >= spec.clear_after

    def check(self, change, node, world):
        assert change.before == node.taint
        if change.taint:
            spec = self.policies[change.taint.value]
            assert spec.enforce
            assert not node.ignored
            assert not spec.paused or (node.taint and node.taint.value == spec.name)
            assert dict(spec.selector).items() <= node.labels.items()
        spec = self.policies.get(node.taint.value) if node.taint else None
        if spec and self.binds(spec, node) and change.taint is None:
            assert self.now - self.well[spec.name, node.name, ""] >= spec.clear_after
        if spec and self.binds(spec, node) and change.taint:  # another one only if it is stronger
            strength = [model.EFFECTS.index(one.effect) for one in (spec, change.taint)]
            was_well = rules.faults(spec, node, world)[""] == ""
            assert strength[1] >= strength[0] or was_well

    @staticmethod
    def binds(spec, node):
        chosen = dict(spec.selector).items() <= node.labels.items()
        return spec.enforce and chosen and not node.ignored


@pytest.mark.parametrize("part", range(4))
def test_in_a_thousand_runs_no_taint_is_early_late_or_left(part):
    for seed in range(part * RUNS // 4, (part + 1) * RUNS // 4):
        made = Model(seed)
        for _ in range(STEPS):
            made.step()
            made.look()
            made.now += made.random.choice([0, 10, 101])
        made.reports = dict.fromkeys(made.nodes, report(8))
        made.policies = {n: replace(one, paused=False) for n, one in made.policies.items()}
        for _ in range(3):
            made.look()
            made.now += 101
        assert not [node for node in made.nodes.values() if node.taint]
        assert not made.rules
        assert made.since == {}


def test_a_policy_for_a_node_that_flaps_taints_it_once_in_the_time_of_its_hysteresis():
    made = Model(0)
    made.policies = {"a": made.policies["a"]}
    writes = []
    for second in range(1000):
        made.reports["n0"] = report(7 if second % 20 < 5 else 8)
        before = made.nodes["n0"].taint
        made.look()
        writes += [second] if made.nodes["n0"].taint != before else []
        made.now += 1
    assert len(writes) == 1


def test_the_status_of_a_policy_has_a_bound_and_its_text_none_for_terminals():
    nodes = {f"n{n}": model.RepairNode(f"n{n}", {}) for n in range(200)}
    reports = dict.fromkeys(nodes, report(0, "\x1b[2J" * 500))
    spec = model.RepairSpec("a", cards_below=8, enforce=True, most_nodes=100)
    planned = rules.plan(rules.RepairWorld((spec,), nodes, reports), {}, 0.0)
    assert len(planned.changes) == 100
    assert len(planned.entries["a"]) == 200
    assert rules.result(planned.entries["a"]) == "100 tainted, 100 over the budget"
    assert all(len(one.why) <= 512 and "\x1b" not in one.why for one in planned.entries["a"])
