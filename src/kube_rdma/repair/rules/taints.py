"""Decides which nodes and cards get the taint of a RepairPolicy, which keep it, which lose it.

A node whose NodeReport is missing or old is neither tainted nor cleared. A node that is well keeps
its taint for a while, so that a flapping card causes no flapping taint. A card that claims use is
judged by itself, if the policy and the cluster have device taints.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from kube_base.frozen import Frozen
from kube_base.plain_text import plain
from kube_rdma.claims.rules.shape import MOST, device_label, object_name, slot_of
from kube_rdma.fabric.rules.leaves import LEAF
from kube_rdma.lib.phrases import listed
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER, DeviceSelector, DeviceTaint, TaintRuleSpec
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
Target = tuple[str, str]
"""A node and its card, which is "" where the node itself is meant."""
Since = Mapping[tuple[str, str, str], float]
"""When what has the taint of a policy was first seen well again, by policy and target."""


class RepairWorld(Frozen):
    """All facts by which nodes are judged; reports are those that are new enough."""

    policies: tuple[model.RepairSpec, ...]
    nodes: Mapping[str, model.RepairNode]
    reports: Mapping[str, NodeReportStatus] = {}
    slow: Mapping[str, str] = {}  # by node: what a recent measurement says
    slow_cards: Mapping[str, Mapping[str, str]] = {}  # by node and RDMA device
    devices: Mapping[str, Collection[str]] = {}  # by node: for claims, where rules can taint them
    rules: tuple[model.CardRule, ...] = ()  # of these policies


class TaintChange(Frozen):
    """A change of a node's taint, or of a card's: then rules to delete, and others to create."""

    node: str
    before: Taint | None
    taint: Taint | None
    why: str
    card: str = ""
    removed: tuple[model.CardRule, ...] = ()
    added: tuple[model.CardRule, ...] = ()


class RepairPlan(Frozen):
    """The decisions of one look."""

    changes: tuple[TaintChange, ...]
    entries: Mapping[str, tuple[model.RepairEntry, ...]]  # by policy
    well_since: Since
    due: float | None  # when a node may be cleared; None if none waits for that


def faults(
    policy: model.RepairSpec, node: model.RepairNode, world: RepairWorld
) -> Mapping[str, str | None]:
    """Return what is wrong with a node (key "") and with its cards that are tainted alone.

    A text is "" if all is well, None if that is not known.
    """
    report, slow = world.reports.get(node.name), world.slow.get(node.name)
    found = [*_too_few(policy, report)] if report else []
    whys, alone = list[str](), defaultdict[str, list[str]](list)
    bad = [*_bad_cards(policy, report, world.slow_cards.get(node.name, {}))]
    devices = _devices(world, node.name) if bad and policy.device_taint else {}
    for card, why in bad:
        (alone[card] if card in devices else whys).append(why)
    if whys:
        found.append(listed(whys, _MOST_CARDS))
    if policy.slow and slow and slow not in world.slow_cards.get(node.name, {}).values():
        found.append(f"it {slow}")
    if policy.wrong_cables and node.cables:
        found.append(node.cables)
    known = report or not (policy.cards_below is not None or policy.errors)
    of_node = cut(plain("; ".join(found))) if found or known else None
    return {"": of_node, **{card: cut(plain("; ".join(each))) for card, each in alone.items()}}


def _too_few(policy: model.RepairSpec, report: NodeReportStatus) -> Iterator[str]:
    healthy = report.summary.healthy
    if policy.cards_below is not None and healthy < policy.cards_below:
        ill = [f"{card.name}: {(card.reasons or ('it is gone',))[0]}" for card in report.ill]
        whys = f": {listed(ill, _MOST_CARDS)}" if ill else ""
        yield f"{healthy} healthy cards, fewer than {policy.cards_below}{whys}"


def _bad_cards(
    policy: model.RepairSpec, report: NodeReportStatus | None, slow: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield physical cards that are bad by themselves, "" where that is not known, and why."""
    cards = report.cards if report else ()
    if policy.errors:
        for card in cards:
            if card.degraded:
                yield card.part_of or card.id, f"{card.name}: {card.degraded}"
    if policy.slow and slow:
        owners = {port.device: one.part_of or one.id for one in cards for port in one.ports}
        for device, why in slow.items():
            yield owners.get(device, ""), f"it {why}"


def _devices(world: RepairWorld, node: str) -> Mapping[str, list[str]]:
    """Return the devices by which claims get a node's cards, their functions and their shares.

    They are those of its physical cards, by the ids of these. A pool that is one device is none.
    """
    report, found = world.reports.get(node), defaultdict[str, list[str]](list)
    cards = report.cards if report else ()
    owners = {device_label(card.id): card.part_of or card.id for card in cards}
    for device in sorted(world.devices.get(node, ())):
        whole, _ = slot_of(device) or (device, 0)
        owner = owners.get(device) or owners.get(whole)
        if owner and len(found[owner]) < MOST:
            found[owner].append(device)
    return found


class _Judgement(Frozen):
    """The nodes and cards that one policy finds bad, and those that are to have its taint."""

    policy: model.RepairSpec
    bad: Mapping[Target, str]  # why
    kept: Mapping[Target, str]  # with the taint although they are not bad now: why
    chosen: frozenset[Target]  # bad ones within the budget
    well_since: Since

    @property
    def tainted(self) -> Iterator[tuple[Target, str]]:
        """Yield the nodes and cards that are to have the taint, and why."""
        if self.policy.enforce:
            yield from ((target, self.bad[target]) for target in self.chosen)
            yield from self.kept.items()


def plan(world: RepairWorld, since: Since, now: float) -> RepairPlan:
    """Return what is to be written; `since` is that of the look before, `now` is monotonic."""
    policies = sorted(world.policies, key=lambda policy: policy.name)
    judged = [_judge(policy, world, since, now) for policy in policies]
    wanted: dict[str, tuple[Taint, str]] = {}
    for one in judged:
        taint = Taint(model.KEY, one.policy.effect, one.policy.name)
        for (name, card), why in one.tainted:
            if not card:
                rivals = filter(None, (wanted.get(name), (taint, why)))
                wanted[name] = max(rivals, key=partial(_rank, world.nodes[name].taint))
    changes = []
    for name, node in sorted(world.nodes.items()):
        found = wanted.get(name)
        if (found and found[0]) != node.taint:
            changes.append(TaintChange(name, node.taint, *(found or (None, _WELL))))
    well_since = {key: at for one in judged for key, at in one.well_since.items()}
    after = {one.policy.name: one.policy.clear_after for one in judged}
    due = min((at + after[key[0]] for key, at in well_since.items()), default=None)
    entries = {one.policy.name: tuple(_entries(one)) for one in judged}
    changes += _card_changes(judged, world)
    return RepairPlan(tuple(changes), entries, well_since, due)


def _card_changes(judged: Iterable[_Judgement], world: RepairWorld) -> Iterator[TaintChange]:
    """Yield the cards whose rules differ from what is to be; rules that are right stay."""
    present = defaultdict[tuple[str, Target], dict[str, model.CardRule]](dict)
    for rule in world.rules:
        present[rule.policy, (rule.node, rule.card)][rule.name] = rule
    for one in judged:
        policy, wanted = one.policy, dict(one.tainted)
        targets = [target for name, target in present if name == policy.name]
        for node, card in sorted({*targets, *(target for target in wanted if target[1])}):
            old, why = present[policy.name, (node, card)], wanted.get((node, card))
            effect = policy.device_taint or next(iter(old.values())).spec.taint.effect
            taint = Taint(model.KEY, effect, policy.name)
            if why is None:
                yield TaintChange(node, taint, None, _WELL, card, tuple(old.values()))
                continue
            names = _devices(world, node).get(card, ())
            rules = (_card_rule(policy, node, card, device) for device in names)
            if added := tuple(rule for rule in rules if old.get(rule.name) != rule):
                removed = tuple(old[rule.name] for rule in added if rule.name in old)
                yield TaintChange(node, None, taint, why, card, removed, added)


def _card_rule(policy: model.RepairSpec, node: str, card: str, device: str) -> model.CardRule:
    taint = DeviceTaint(model.KEY, policy.device_taint or "", policy.name)
    spec = TaintRuleSpec(taint, DeviceSelector(DRIVER, node, device))
    name = object_name(f"{policy.name}.{node}.{device}")
    return model.CardRule(name, policy.name, policy.uid, card, spec)


def _rank(present: Taint | None, wanted: tuple[Taint, str]) -> tuple[int, bool]:
    """Return what orders the taints that policies want for a node: strongest, then its own."""
    return model.EFFECTS.index(wanted[0].effect), wanted[0] == present


def _judge(policy: model.RepairSpec, world: RepairWorld, since: Since, now: float) -> _Judgement:
    """Judge the nodes of a policy; those that have its taint go before others in the budget."""
    nodes = {name: node for name, node in sorted(world.nodes.items()) if policy.selects(node)}
    found = {name: faults(policy, node, world) for name, node in nodes.items()}
    bad = {(name, card): why for name, of in found.items() for card, why in of.items() if why}
    holding = {(name, "") for name, node in nodes.items() if _has(node, policy)}
    if policy.enforce and policy.device_taint:
        own = (rule for rule in world.rules if rule.policy == policy.name)
        holding |= {(rule.node, rule.card) for rule in own if rule.node in nodes}
    kept, well_since = dict[Target, str](), dict[tuple[str, str, str], float]()
    for name, card in sorted(holding - bad.keys()):
        began = since.get((policy.name, name, card), now)
        if policy.paused:
            kept[name, card] = "the policy is paused"
        elif found[name].get(card, "" if name in world.reports else None) is None:
            kept[name, card] = "its NodeReport is missing or old"
        elif now < began + policy.clear_after:
            kept[name, card] = f"it is well, and has to be for {policy.clear_after} s"
            well_since[policy.name, name, card] = began

    def limits(target: Target) -> Mapping[str, int]:
        leaf = nodes[target[0]].labels.get(LEAF)
        per_leaf = {f"leaf {leaf}": policy.most_per_leaf} if leaf and policy.most_per_leaf else {}
        return {"cards": policy.most_cards} if target[1] else {"": policy.most_nodes, **per_leaf}

    chosen = [target for target in bad if target in holding]
    used = Counter(limit for target in (*chosen, *kept) for limit in limits(target))
    for target in () if policy.paused else sorted(bad.keys() - holding):
        if all(used[limit] < most for limit, most in limits(target).items()):
            chosen.append(target)
            used.update(limits(target).keys())
    return _Judgement(policy, bad, kept, frozenset(chosen), well_since)


def _has(node: model.RepairNode, policy: model.RepairSpec) -> bool:
    """Decide whether a node has the taint of a policy that may keep it."""
    return bool(policy.enforce and node.taint and node.taint.value == policy.name)


def _entries(judged: _Judgement) -> Iterator[model.RepairEntry]:
    """Yield the nodes of a policy for its status, tainted ones first."""
    would: model.EntryState = "Tainted" if judged.policy.enforce else "WouldTaint"
    rest: model.EntryState = "WouldTaint" if judged.policy.paused else "OverBudget"
    for target in sorted(judged.chosen):
        yield model.RepairEntry(target[0], would, judged.bad[target], target[1])
    for (name, card), why in judged.kept.items():
        yield model.RepairEntry(name, "Clearing", why, card)
    for target, why in judged.bad.items():
        if target not in judged.chosen:
            yield model.RepairEntry(target[0], rest, why, target[1])


def result(entries: tuple[model.RepairEntry, ...]) -> str:
    """Return how many nodes, and how many cards, are in which state, as one sentence."""
    counts = Counter(_STATES[one.state] + " (cards)" * bool(one.card) for one in entries)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no bad node"
