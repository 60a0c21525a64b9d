"""Decides which drivers may come, go or be exchanged; none is unloaded under pods with shares.

    driver pods, places, holders, reports ─► upgrade_plan ─► operator/upgrades

A driver's DaemonSet runs where a label of the node says so, with update strategy OnDelete. Acts of
this plan write that label; only for drivers of an earlier release operator/upgrades writes it. So
the first load, another image and the end of a driver go the same way. A node is closed, looked at
again, changed as a whole, and opened when its drivers run, a few nodes at a time. A node that needs
its cards itself is left as it is. Holders, pods with shares, are evicted only if the policy says
so. Each look decides all anew from nodes and pods. The only record of a change under way is an
annotation on nodes that were closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_base.frozen import Frozen
from kube_rdma.lib.phrases import listed
from kube_rdma.model import operator as model
from kube_rdma.operator.rules.placement import READY_LABEL

_REASONS = {
    model.UpgradeStage.REFUSED: "UpgradeRefused",
    model.UpgradeStage.CLOSED: "NodesClosed",
    model.UpgradeStage.WAITING_FOR_PODS: "WaitingForPods",
    model.UpgradeStage.MANUAL: "UpgradeByHand",
    model.UpgradeStage.STARTING: "Upgrading",
    model.UpgradeStage.WAITING_FOR_OTHERS: "Upgrading",
    model.UpgradeStage.AWAY: "NodesAway",
}


class _UpgradeTurn(Frozen):
    """The names of nodes whose turn it is to change, and of nodes for which others wait."""

    chosen: frozenset[str] = frozenset()
    ahead: tuple[str, ...] = ()


def upgrade_plan(
    policy: model.UpgradePolicy, nodes: Sequence[model.UpgradeNode]
) -> model.UpgradePlan:
    """Return what to do now for all nodes, and how far each node is, in the order of names."""
    by_name = sorted(nodes, key=lambda node: node.name)
    turn = _turn(policy, by_name)
    stages = tuple(_stage(policy, node, turn) for node in by_name)
    acts = [
        act
        for node, stage in zip(by_name, stages, strict=True)
        for act in _acts(policy, node, stage.stage)
    ]
    return model.UpgradePlan(tuple(acts), stages)


def upgrade_state(stages: Sequence[model.NodeStage]) -> model.UpgradeState:
    """Return how far the upgrade of all nodes is, and the gravest obstacle."""
    for stage, reason in _REASONS.items():
        concerned = [each for each in stages if each.stage is stage]
        if not concerned:
            continue
        words = next((each.sentence for each in concerned if each.sentence), "")
        words = words or f"node {concerned[0].node}: its driver stops or starts"
        more = f", and {len(concerned) - 1} more nodes" if concerned[1:] else ""
        return model.UpgradeState(current=False, reason=reason, message=words + more)
    return model.UpgradeState(current=True, reason="DriversCurrent")


def is_misplaced(node: model.UpgradeNode) -> bool:
    """Return whether a driver of the node has to be added or removed."""
    return any(place.has != place.wants for place in node.places)


def is_outdated(node: model.UpgradeNode) -> bool:
    """Return whether a driver of the node is misplaced, or outdated and not being ended yet."""
    return is_misplaced(node) or _is_aged(node)


def is_between(node: model.UpgradeNode) -> bool:
    """Return whether a driver of the node is just ending or starting."""
    if any(pod.deleting for pod in node.pods):
        return True
    if _is_aged(node) or any(_leaves(place) for place in node.places):
        return False
    return node.missing or any(not pod.ready for pod in node.pods)


def refusal(node: model.UpgradeNode) -> str:
    """Return why a node's cards may not lose their driver now; "" where they may.

    The reason is that the node itself uses the cards. The first load of a driver unloads the node's
    own, too.
    """
    unloads = any(pod.unloads and not pod.current for pod in node.pods)
    unloads |= any(place.unloads and place.has != place.wants for place in node.places)
    if not (unloads and node.carries):
        return ""
    return f"node {node.name} itself uses its cards: {listed(node.carries)}"


def _is_aged(node: model.UpgradeNode) -> bool:
    return any(not pod.current and not pod.deleting for pod in node.pods)


def _leaves(place: model.DriverPlace) -> bool:
    return place.has not in ("", place.wants)


def _is_exchanged(policy: model.UpgradePolicy, node: model.UpgradeNode) -> bool:
    """Return whether the operator itself replaces the node's drivers of an older image."""
    return policy.automatic and _is_aged(node)


def _disturbs(policy: model.UpgradePolicy, node: model.UpgradeNode) -> bool:
    """Return whether the change of a node unloads a module that pods may use.

    A driver on top (peer memory) that is loaded for the first time unloads none.
    """
    return _is_exchanged(policy, node) or any(
        _leaves(place) or (place.unloads and place.has != place.wants) for place in node.places
    )


def _turn(policy: model.UpgradePolicy, nodes: Sequence[model.UpgradeNode]) -> _UpgradeTurn:
    """Return the outdated nodes whose turn it is to change.

    First come nodes closed for their change, then others that the operator closed, then nodes
    without holders. If the policy now allows fewer nodes at a time, some nodes whose change has
    begun wait. A node that is not ready takes a turn only if its change has begun. A changed node
    keeps its turn until it is open, so that no more nodes are closed than the policy allows.
    """
    able = [
        node
        for node in nodes
        if is_outdated(node)
        and not (node.away or is_between(node) or refusal(node) or _must_wait(policy, node))
        and not _by_hand(policy, node)
    ]
    begun = [
        node
        for node in nodes
        if (is_between(node) and (node.changing or not node.away))
        or (node.ours and not node.away and node not in able)  # it is to be opened
    ]
    room = len(nodes) if policy.parallel == 0 else max(policy.parallel - len(begun), 0)
    able.sort(key=lambda node: (not node.changing, not node.ours, bool(node.holders)))
    chosen = able[:room]
    on_the_way = dict.fromkeys(node.name for node in (*begun, *chosen))
    return _UpgradeTurn(frozenset(node.name for node in chosen), tuple(on_the_way))


def _by_hand(policy: model.UpgradePolicy, node: model.UpgradeNode) -> bool:
    """Return whether only people may end a node's drivers: autoUpgrade is off, all are in place."""
    return not policy.automatic and not is_misplaced(node)


def _stage(
    policy: model.UpgradePolicy, node: model.UpgradeNode, turn: _UpgradeTurn
) -> model.NodeStage:
    stage, sentence = model.UpgradeStage.CURRENT, ""
    if node.away and not (node.changing and is_between(node)):
        if is_outdated(node):
            stage = model.UpgradeStage.AWAY
            sentence = f"node {node.name} is not ready, so its driver stays as it is"
    elif is_between(node):
        stage = model.UpgradeStage.STARTING
        if node.away:
            sentence = f"node {node.name} is not ready since its driver was changed"
    elif is_outdated(node):
        stage, sentence = _outdated(policy, node, turn)
    return model.NodeStage(node.name, stage, sentence)


def _outdated(
    policy: model.UpgradePolicy, node: model.UpgradeNode, turn: _UpgradeTurn
) -> tuple[model.UpgradeStage, str]:
    if why := refusal(node):
        return model.UpgradeStage.REFUSED, why
    if _by_hand(policy, node):
        return model.UpgradeStage.MANUAL, f"node {node.name}: delete its driver's pod to upgrade it"
    if node.name in turn.chosen:
        if _disturbs(policy, node) and (node.holders or _is_open(node)):
            if not node.holders:
                sentence = f"node {node.name} is closed while its driver is changed"
            elif _is_over(policy, node):
                sentence = f"node {node.name} was not drained in time: delete {_names(node)}"
            else:
                sentence = f"node {node.name} is being drained of {_names(node)}"
            return model.UpgradeStage.CLOSED, sentence
        return model.UpgradeStage.STARTING, ""
    if _must_wait(policy, node):
        return (
            model.UpgradeStage.WAITING_FOR_PODS,
            f"node {node.name} waits for {_names(node)} to end",
        )
    return model.UpgradeStage.WAITING_FOR_OTHERS, f"node {node.name} waits for {listed(turn.ahead)}"


def _is_open(node: model.UpgradeNode) -> bool:
    """Return whether a node still has to be closed for its change.

    A node that the operator closed only while a driver starts counts as open.
    """
    return not node.closed or (node.ours and not node.changing)


def _must_wait(policy: model.UpgradePolicy, node: model.UpgradeNode) -> bool:
    """Return whether the node waits for holders to end by themselves, for some are not evicted."""
    evicts = policy.drains is not None
    return _disturbs(policy, node) and any(holder.stays or not evicts for holder in node.holders)


def _is_over(policy: model.UpgradePolicy, node: model.UpgradeNode) -> bool:
    """Return whether the time in which holders are evicted is over."""
    seconds = policy.drains.seconds if policy.drains else 0
    return 0 < seconds < node.closed_seconds


def _names(node: model.UpgradeNode) -> str:
    return listed(list(map(str, node.holders)))


def _acts(
    policy: model.UpgradePolicy, node: model.UpgradeNode, stage: model.UpgradeStage
) -> Iterator[model.UpgradeAct]:
    """Yield the acts at a node that is in this stage.

    A closed node is read again before it is changed.
    """
    if stage is model.UpgradeStage.CLOSED:
        if _is_open(node):
            yield model.Close(node.name)
        elif not _is_over(policy, node):
            yield from (model.Evict(node.name, pod) for pod in node.holders if not pod.deleting)
    elif stage is model.UpgradeStage.STARTING and is_between(node):
        if not (node.closed or node.away):  # a reboot, or somebody ended its driver
            yield model.Close(node.name, change=False)
    elif stage is model.UpgradeStage.STARTING:
        yield _change(policy, node)
    elif node.ours and stage is not model.UpgradeStage.AWAY:
        yield model.Open(node.name)


def _change(policy: model.UpgradePolicy, node: model.UpgradeNode) -> model.UpgradeAct:
    """Return the next act of changing a node's drivers; old ones go before new ones come."""
    below = any(place.unloads and place.has != place.wants for place in node.places)
    leaving = [place for place in node.places if place.has and (below or _leaves(place))]
    if leaving:
        gone = (*(place.key for place in leaving), *((READY_LABEL,) if below else ()))
        return model.LabelDrivers(node.name, tuple((key, None) for key in gone))
    if _is_exchanged(policy, node):
        unloads = any(pod.unloads and not pod.current for pod in node.pods)
        ended = [pod for pod in node.pods if unloads or not pod.current]
        return model.EndDrivers(node.name, tuple(sorted(ended, key=lambda pod: pod.unloads)))
    place = next(place for place in node.places if place.has != place.wants)
    return model.LabelDrivers(node.name, ((place.key, place.wants),))
