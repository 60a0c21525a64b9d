"""Which drivers may be exchanged now: at no time under a pod that holds shares of the node.

    driver pods, holders, reports ─► upgrade_plan ─► programs/operator/upgrades

DaemonSets of drivers are OnDelete, so an upgrade is the end of a pod. A node is exchanged as a
whole, a few at a time; one whose cards the node itself needs is not. Only a policy that says so
has nodes closed and holders evicted. All of it is decided anew from what is there: a look that
was cut off leaves nothing but an annotation on nodes that were closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kube_rdma.model.driver_upgrade import (
    Close,
    EndDrivers,
    Evict,
    NodeStage,
    Open,
    UpgradeAct,
    UpgradeNode,
    UpgradePlan,
    UpgradePolicy,
    UpgradeStage,
    UpgradeState,
)
from kube_rdma.model.frozen import Frozen
from kube_rdma.model.node_report import NodeReport
from kube_rdma.rules.phrases import listed

_REASONS = {
    UpgradeStage.REFUSED: "UpgradeRefused",
    UpgradeStage.CLOSED: "NodesClosed",
    UpgradeStage.WAITING_FOR_PODS: "WaitingForPods",
    UpgradeStage.MANUAL: "UpgradeByHand",
    UpgradeStage.STARTING: "Upgrading",
    UpgradeStage.WAITING_FOR_OTHERS: "Upgrading",
}


class _UpgradeTurn(Frozen):
    """Whose turn it is by name, and which nodes are on the way, so others wait for them."""

    chosen: frozenset[str] = frozenset()
    ahead: tuple[str, ...] = ()


def upgrade_plan(policy: UpgradePolicy | None, nodes: Sequence[UpgradeNode]) -> UpgradePlan:
    """Acts and stages; without a policy only what an upgrade closed is opened again."""
    by_name = sorted(nodes, key=lambda node: node.name)
    if policy is None:
        return UpgradePlan(tuple(Open(node.name) for node in by_name if node.ours))
    turn = _turn(policy, by_name)
    stages = tuple(_stage(policy, node, turn) for node in by_name)
    acts = [
        act
        for node, stage in zip(by_name, stages, strict=True)
        for act in _acts(policy, node, stage.stage)
    ]
    return UpgradePlan(tuple(acts), stages)


def upgrade_state(stages: Sequence[NodeStage]) -> UpgradeState:
    """How far all nodes are, and what stands against the rest, the gravest first."""
    for stage, reason in _REASONS.items():
        concerned = [each for each in stages if each.stage is stage]
        if not concerned:
            continue
        words = next((each.sentence for each in concerned if each.sentence), "")
        words = words or f"node {concerned[0].node}: its driver ends or begins"
        more = f", and {len(concerned) - 1} more nodes" if concerned[1:] else ""
        return UpgradeState(current=False, reason=reason, message=words + more)
    return UpgradeState(current=True, reason="DriversCurrent")


def needs(report: NodeReport, addresses: Collection[str]) -> tuple[str, ...]:
    """What a node needs its RDMA cards for; `addresses` are those by which it is known.

    Traffic of kubelet and pods with the API server has such an address.
    """
    return tuple(
        f"{card.name}: {what}"
        for card in (*report.cards, *report.rejected)
        for what in (
            *card.carries,
            *(f"the node's address {a} is on it" for a in card.addresses if a in addresses),
        )
    )


def is_share(resource: str, offered: Collection[str]) -> bool:
    """Whether a resource stands for RDMA cards: one that is offered, or of the usual prefix."""
    return resource in offered or resource.startswith("rdma/")


def is_outdated(node: UpgradeNode) -> bool:
    """Whether a driver of the node is of an older template and nobody has ended it yet."""
    return any(not pod.current and not pod.deleting for pod in node.pods)


def is_between(node: UpgradeNode) -> bool:
    """Whether a driver of the node ends or begins."""
    if any(pod.deleting for pod in node.pods):
        return True
    return not is_outdated(node) and (node.missing or any(not pod.ready for pod in node.pods))


def refusal(node: UpgradeNode) -> str:
    """Why the driver of a node may not be unloaded, "" where it may."""
    unloads = any(pod.unloads and not pod.current for pod in node.pods)
    if not (unloads and node.carries):
        return ""
    return f"node {node.name} needs its cards: {listed(node.carries)}"


def _turn(policy: UpgradePolicy, nodes: Sequence[UpgradeNode]) -> _UpgradeTurn:
    """The outdated nodes whose turn it is: those that were begun, then those without holders.

    Where a policy has become narrower, also of those that were begun only as many as it allows.
    """
    if not policy.automatic:
        return _UpgradeTurn()
    able = [
        node
        for node in nodes
        if is_outdated(node) and not (is_between(node) or refusal(node) or _must_wait(policy, node))
    ]
    begun = [node for node in able if node.ours and policy.drain]
    between = [*filter(is_between, nodes)]
    room = len(nodes) if policy.parallel == 0 else max(policy.parallel - len(between), 0)
    fresh = [node for node in able if node not in begun]
    fresh.sort(key=lambda node: bool(node.holders))
    chosen = [*begun, *fresh][:room]
    on_the_way = dict.fromkeys(node.name for node in (*between, *chosen))
    return _UpgradeTurn(frozenset(node.name for node in chosen), tuple(on_the_way))


def _stage(policy: UpgradePolicy, node: UpgradeNode, turn: _UpgradeTurn) -> NodeStage:
    stage, sentence = UpgradeStage.CURRENT, ""
    if is_between(node):
        stage = UpgradeStage.STARTING
    elif is_outdated(node):
        stage, sentence = _outdated(policy, node, turn)
    return NodeStage(node.name, stage, sentence)


def _outdated(
    policy: UpgradePolicy, node: UpgradeNode, turn: _UpgradeTurn
) -> tuple[UpgradeStage, str]:
    if why := refusal(node):
        return UpgradeStage.REFUSED, why
    if not policy.automatic:
        return UpgradeStage.MANUAL, f"node {node.name}: delete its driver's pod to upgrade it"
    chosen = node.name in turn.chosen
    if chosen and policy.drain and (node.holders or not node.closed):
        return UpgradeStage.CLOSED, f"node {node.name} is being emptied of {_names(node)}"
    if chosen:
        return UpgradeStage.STARTING, ""
    if _must_wait(policy, node):
        return (
            UpgradeStage.WAITING_FOR_PODS,
            f"node {node.name} waits for the end of {_names(node)}",
        )
    return UpgradeStage.WAITING_FOR_OTHERS, f"node {node.name} waits for {listed(turn.ahead)}"


def _must_wait(policy: UpgradePolicy, node: UpgradeNode) -> bool:
    """Whether only its holders themselves can end: nobody evicts them, or it would be in vain."""
    return any(holder.stays or not policy.drain for holder in node.holders)


def _names(node: UpgradeNode) -> str:
    return listed(list(map(str, node.holders))) or "pods"


def _acts(policy: UpgradePolicy, node: UpgradeNode, stage: UpgradeStage) -> Iterator[UpgradeAct]:
    """What is done at a node in a stage. A closed node is emptied in the look after its closing."""
    if stage is UpgradeStage.CLOSED:
        if not node.closed:
            yield Close(node.name)
            return
        yield from (Evict(node.name, pod) for pod in node.holders if not pod.deleting)
    elif stage is UpgradeStage.STARTING and is_outdated(node) and not is_between(node):
        unloads = any(pod.unloads and not pod.current for pod in node.pods)
        ended = [pod for pod in node.pods if unloads or not pod.current]
        yield EndDrivers(node.name, tuple(sorted(ended, key=lambda pod: pod.unloads)))
    elif node.ours and stage is not UpgradeStage.STARTING:
        yield Open(node.name)
