"""Why a claim waits: for each node whether it can be met, else what is against each device.

programs/explain/claims asks, views/claims shows. The search is that of the scheduler
(rules/claims/allocation). Where it ends without success, its deepest attempt is told: which devices
it had, and the first reason against each other one for the request that it found no more for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kube_rdma.model.claims.claim import ClaimNode, HeldDevice
from kube_rdma.model.claims.verdict import (
    ClaimExplanation,
    DeviceVerdict,
    NodeVerdict,
    Outcome,
    Reason,
)
from kube_rdma.model.claims.world import ClaimWorld
from kube_rdma.rules.claims.allocation import Allocation, ClaimRefused, NotJudged
from kube_rdma.rules.claims.cel.syntax import NotEvaluated
from kube_rdma.rules.claims.device_state import Choice

WORDS = {
    Reason.POOL_INCOMPLETE: "of an incomplete pool",
    Reason.POOL_INVALID: "of an invalid pool",
    Reason.IN_USE: "in use",
    Reason.CLASS_SELECTOR: "not of the class",
    Reason.SELECTOR: "not selected",
    Reason.NODE_SELECTOR: "for other nodes",
    Reason.CAPACITY_UNKNOWN: "without the capacity",
    Reason.CAPACITY: "short of capacity",
    Reason.COUNTER: "short of a counter",
    Reason.TAINT: "tainted",
    Reason.CONSTRAINT: "against a constraint",
}
_ORDER = list(Outcome)
_ALONE = (
    "A pod's claims are allocated together, and the pod has to fit on the node too: this is about"
    " the claim alone."
)
_GATES = (
    "Judged as the scheduler of Kubernetes 1.36 decides, with its default gates. DeviceTaintRules"
    " are not read."
)


def explain_claim(world: ClaimWorld) -> ClaimExplanation:
    """The claim on every node, the worst first; of those that fail the nearest first."""
    if world.claim.held is not None:
        return ClaimExplanation(world.claim, (), _allocated(world))
    nodes = sorted(
        (judge(world, node) for node in world.nodes),
        key=lambda one: (_ORDER.index(one.outcome), one.lacking, one.node),
    )
    return ClaimExplanation(world.claim, tuple(nodes), _headline(world, nodes), (_ALONE, _GATES))


def judge(world: ClaimWorld, node: ClaimNode) -> NodeVerdict:
    """The claim on one node."""
    allocation = Allocation(world, node)
    try:
        choices = allocation.search()
    except ClaimRefused as error:
        return NodeVerdict(node.name, Outcome.REFUSED, why=str(error))
    except NotEvaluated as error:
        why = f"a selector is beyond what kube-rdma evaluates: {error}"
        return NodeVerdict(node.name, Outcome.NOT_JUDGED, why=why)
    except NotJudged as error:
        return NodeVerdict(node.name, Outcome.NOT_JUDGED, why=str(error))
    if choices is not None:
        devices = tuple(map(_chosen, choices))
        return NodeVerdict(node.name, Outcome.MET, tuple(map(_granted, choices)), devices=devices)
    best = allocation.best
    allocation.to_best(world)
    stuck = world.claim.requests[best.request]
    try:
        against = tuple(_against(allocation, best.request))
    except (NotEvaluated, ClaimRefused):  # of a device that the search did not come to
        against = ()
    return NodeVerdict(
        node.name,
        Outcome.NOT_MET,
        wanted=best.wanted,
        lacking=max(best.wanted - len(best.choices), 1),
        stuck=stuck.name,
        devices=(*against, *map(_chosen, best.choices)),
    )


def _against(allocation: Allocation, request: int) -> Iterator[DeviceVerdict]:
    """Each device that the request has not got, and what is against it."""
    for choice in allocation.claim.requests[request].choices:
        mine = {
            one.candidate.id for one in allocation.best.choices if one.request.name == choice.name
        }
        for one in allocation.candidates:
            if one.id not in mine:
                objection = allocation.objection(choice, one)
                yield DeviceVerdict(one.id, choice.name, objection)


def _chosen(choice: Choice) -> DeviceVerdict:
    return DeviceVerdict(choice.candidate.id, choice.request.name, chosen=True)


def _granted(choice: Choice) -> HeldDevice:
    request = choice.request
    return HeldDevice(choice.candidate.id, request.name, request.admin, None, choice.capacity)


def _allocated(world: ClaimWorld) -> str:
    held = world.claim.held or ()
    pools = ", ".join(dict.fromkeys(one.device.pool for one in held))
    return f"The claim has {_devices(len(held))}, of pool {pools}: it does not wait for any."


def _headline(world: ClaimWorld, nodes: Sequence[NodeVerdict]) -> str:
    """One sentence of all nodes."""
    if not nodes:
        return "There is no node."
    met = [one for one in nodes if one.outcome == Outcome.MET]
    if nodes[0].outcome == Outcome.REFUSED:
        return f"The scheduler gives the claim up on every node: {nodes[0].why}."
    if met:
        names = ", ".join(one.node for one in met[:3]) + (", …" if len(met) > 3 else "")
        waits = "" if world.claim.reserved_for else "; devices are allocated when a pod names it"
        return f"The claim can be met now, on {len(met)} of {len(nodes)} nodes ({names}){waits}."
    failed = [one for one in nodes if one.outcome == Outcome.NOT_MET]
    if not failed:
        return f"Whether the claim can be met is not known: {nodes[0].why}."
    nearest = failed[0]
    what = f"No node has the {_devices(nearest.wanted)} that the claim asks for"
    if len(failed) < len(nodes):
        what = f"No node that could be judged has the {_devices(nearest.wanted)} asked for"
    if not nearest.devices:
        return f"{what}: no driver offers a device to any node."
    return f"{what}; nearest is {nearest.node}, which lacks {nearest.lacking}{_why(nearest)}."


def _why(verdict: NodeVerdict) -> str:
    """What is against its devices, the most frequent first."""
    counts = Counter(one.objection.reason for one in verdict.devices if one.objection)
    parts = [f"{count} {_is(count)} {WORDS[reason]}" for reason, count in counts.most_common()]
    return f": {', '.join(parts)}" if parts else ""


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"
