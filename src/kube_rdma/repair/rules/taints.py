"""Decides which nodes get the taint of a RepairPolicy, which keep it, and which lose it.

A node whose NodeReport is missing or old is neither tainted nor cleared. A node that is well keeps
its taint for a while, so that a flapping card causes no flapping taint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

from kube_base.frozen import Frozen
from kube_base.plain_text import plain
from kube_rdma.fabric.rules.leaves import LEAF
from kube_rdma.lib.phrases import listed
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import Taint, cut
from kube_rdma.model.reports import NodeReportStatus

_MOST_CARDS = 2  # that a sentence names
_STATES = {
    "Tainted": "tainted",
    "Clearing": "tainted and well for now",
    "WouldTaint": "to be tainted",
    "OverBudget": "over the budget",
    "BurnIn": "to be measured first",
    "BurnInFailed": "measured badly",
    "WouldBurnIn": "new",
}
_WELL = "no RepairPolicy finds it bad any more"
Since = Mapping[tuple[str, str], float]
"""When a node with the taint of a policy was first seen well again, by policy and node."""


class RepairWorld(Frozen):
    """All facts by which nodes are judged; reports are those that are new enough."""

    policies: tuple[model.RepairSpec, ...]
    nodes: Mapping[str, model.RepairNode]
    reports: Mapping[str, NodeReportStatus] = {}
    slow: Mapping[str, str] = {}  # by node: what a recent measurement says


class TaintChange(Frozen):
    """A change of a node's taint."""

    node: str
    before: Taint | None
    taint: Taint | None
    why: str


class RepairPlan(Frozen):
    """The decisions of one look."""

    changes: tuple[TaintChange, ...]
    entries: Mapping[str, tuple[model.RepairEntry, ...]]  # by policy
    well_since: Since
    due: float | None  # when a node may be cleared; None if none waits for that


def fault(policy: model.RepairSpec, node: model.RepairNode, world: RepairWorld) -> str | None:
    """Return what is wrong with a node by a policy; "" if it is well, None if that is not known."""
    report = world.reports.get(node.name)
    found = [*_cards(policy, report)] if report else []
    if policy.slow and node.name in world.slow:
        found.append(f"it {world.slow[node.name]}")
    if policy.wrong_cables and node.cables:
        found.append(node.cables)
    if found:
        return cut(plain("; ".join(found)))
    asks_report = policy.cards_below is not None or policy.errors
    return None if asks_report and report is None else ""


def _cards(policy: model.RepairSpec, report: NodeReportStatus) -> Iterator[str]:
    healthy = report.summary.healthy
    if policy.cards_below is not None and healthy < policy.cards_below:
        ill = [f"{card.name}: {(card.reasons or ('it is gone',))[0]}" for card in report.ill]
        whys = f": {listed(ill, _MOST_CARDS)}" if ill else ""
        yield f"{healthy} healthy cards, fewer than {policy.cards_below}{whys}"
    if policy.errors:
        worse = [f"{card.name}: {card.degraded}" for card in report.cards if card.degraded]
        if worse:
            yield listed(worse, _MOST_CARDS)


class _Judgement(Frozen):
    """The nodes that one policy finds bad, and those that are to have its taint."""

    policy: model.RepairSpec
    bad: Mapping[str, str]  # why, by node
    kept: Mapping[str, str]  # with the taint although they are not bad now: why
    chosen: frozenset[str]  # bad ones within the budget
    well_since: Since

    @property
    def tainted(self) -> Iterator[tuple[str, str]]:
        """Yield the nodes that are to have the taint, and why."""
        if self.policy.enforce:
            yield from ((name, self.bad[name]) for name in self.chosen)
            yield from self.kept.items()


def plan(world: RepairWorld, since: Since, now: float) -> RepairPlan:
    """Return what is to be written; `since` is that of the look before, `now` is monotonic."""
    policies = sorted(world.policies, key=lambda policy: policy.name)
    judged = [_judge(policy, world, since, now) for policy in policies]
    wanted: dict[str, tuple[Taint, str]] = {}
    for one in judged:
        taint = Taint(model.KEY, one.policy.effect, one.policy.name)
        for name, why in one.tainted:
            rivals = (wanted.get(name), (taint, why))
            wanted[name] = max(filter(None, rivals), key=partial(_rank, world.nodes[name].taint))
    changes = []
    for name, node in sorted(world.nodes.items()):
        found = wanted.get(name)
        if (found and found[0]) != node.taint:
            changes.append(TaintChange(name, node.taint, *(found or (None, _WELL))))
    well_since = {key: at for one in judged for key, at in one.well_since.items()}
    after = {one.policy.name: one.policy.clear_after for one in judged}
    due = min((at + after[name] for (name, _), at in well_since.items()), default=None)
    entries = {one.policy.name: tuple(_entries(one)) for one in judged}
    return RepairPlan(tuple(changes), entries, well_since, due)


def _rank(present: Taint | None, wanted: tuple[Taint, str]) -> tuple[int, bool]:
    """Return what orders the taints that policies want for a node: strongest, then its own."""
    return model.EFFECTS.index(wanted[0].effect), wanted[0] == present


def _judge(policy: model.RepairSpec, world: RepairWorld, since: Since, now: float) -> _Judgement:
    """Judge the nodes of a policy; those that have its taint go before others in the budget."""
    nodes = {name: node for name, node in sorted(world.nodes.items()) if policy.selects(node)}
    faults = {name: fault(policy, node, world) for name, node in nodes.items()}
    bad = {name: why for name, why in faults.items() if why}
    holding = {name for name, node in nodes.items() if _has(node, policy)}
    kept, well_since = dict[str, str](), dict[tuple[str, str], float]()
    for name in sorted(holding - bad.keys()):
        began = since.get((policy.name, name), now)
        if policy.paused:
            kept[name] = "the policy is paused"
        elif faults[name] is None:
            kept[name] = "its NodeReport is missing or old"
        elif now < began + policy.clear_after:
            kept[name] = f"it is well, and has to be for {policy.clear_after} s"
            well_since[policy.name, name] = began
    chosen = [name for name in bad if name in holding]
    leaves = Counter(nodes[name].labels.get(LEAF) for name in (*chosen, *kept))
    for name in () if policy.paused else sorted(bad.keys() - holding):
        leaf = nodes[name].labels.get(LEAF)
        most = policy.most_per_leaf if leaf else None
        if len(chosen) + len(kept) < policy.most_nodes and (most is None or leaves[leaf] < most):
            chosen.append(name)
            leaves[leaf] += 1
    return _Judgement(policy, bad, kept, frozenset(chosen), well_since)


def _has(node: model.RepairNode, policy: model.RepairSpec) -> bool:
    """Decide whether a node has the taint of a policy that may keep it."""
    return bool(policy.enforce and node.taint and node.taint.value == policy.name)


def _entries(judged: _Judgement) -> Iterator[model.RepairEntry]:
    """Yield the nodes of a policy for its status, tainted ones first."""
    would: model.EntryState = "Tainted" if judged.policy.enforce else "WouldTaint"
    rest: model.EntryState = "WouldTaint" if judged.policy.paused else "OverBudget"
    for name in sorted(judged.chosen):
        yield model.RepairEntry(name, would, judged.bad[name])
    for name, why in judged.kept.items():
        yield model.RepairEntry(name, "Clearing", why)
    for name in judged.bad:
        if name not in judged.chosen:
            yield model.RepairEntry(name, rest, judged.bad[name])


def result(entries: tuple[model.RepairEntry, ...]) -> str:
    """Return how many nodes are in which state, as one sentence."""
    counts = Counter(_STATES[one.state] for one in entries)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no bad node"
