"""Decides why a claim waits: whether each node can meet it, and what is against each device.

explain/cluster reads the world, claims/views shows the verdicts. The search is that of the
scheduler (claims/rules/search). Where it ends without success, its deepest attempt is shown, with
its devices. For the request that it ended at, each other device has the first reason against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kube_base.frozen import replace
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.claims.rules.cel.syntax import NotEvaluated
from kube_rdma.claims.rules.pools import ruled
from kube_rdma.claims.rules.search import ClaimRefused, ClaimSearch, DeviceChoice, NotJudged
from kube_rdma.lib.phrases import listed
from kube_rdma.model.claims import claim

WORDS = {
    claim.Reason.POOL_INCOMPLETE: "of an incomplete pool",
    claim.Reason.POOL_INVALID: "of an invalid pool",
    claim.Reason.IN_USE: "in use",
    claim.Reason.CLASS_SELECTOR: "not of the class",
    claim.Reason.SELECTOR: "not selected",
    claim.Reason.NODE_SELECTOR: "for other nodes",
    claim.Reason.CAPACITY_UNKNOWN: "without the capacity",
    claim.Reason.CAPACITY: "short of capacity",
    claim.Reason.COUNTER: "short of a counter",
    claim.Reason.TAINT: "tainted",
    claim.Reason.CONSTRAINT: "against a constraint",
    claim.Reason.NOT_EVALUATED: "with a selector that is not evaluated",
}
_ORDER = list(claim.ClaimOutcome)
_ALONE = (
    "A pod's claims are allocated together, and the pod has to fit on the node too: this is about"
    " the claim alone."
)
_GATES = "Judged as the scheduler of Kubernetes 1.36 decides, with its default gates."
_MOST_COUNTED = 12  # reasons in a sentence, of which rules may be many


def explain_claim(world: claim.ClaimWorld) -> claim.ClaimExplanation:
    """Return the verdicts on a claim for all nodes, the worst first.

    Of nodes that fail, the nearest to success come first. An allocated claim gets no verdicts.
    """
    if world.claim.allocated is not None:
        held = world.claim.devices
        pools = ", ".join(dict.fromkeys(one.pool for one in held))
        has = f"The claim has {_devices(len(held))}, of pool {pools}"
        return claim.ClaimExplanation(world.claim, (), f"{has}: it does not wait for any.")
    world = replace(world, slices=ruled(world.slices, world.taints.rules))
    selectors = Selectors()
    nodes = sorted(
        (judge(world, node, selectors) for node in world.nodes),
        key=lambda one: (_ORDER.index(one.outcome), one.lacking, one.node),
    )
    headline = _headline(nodes)
    notes = tuple(filter(None, (_ALONE, _GATES, world.taints.remark)))
    return claim.ClaimExplanation(world.claim, tuple(nodes), headline, notes)


def judge(
    world: claim.ClaimWorld, node: claim.ClaimNode, selectors: Selectors | None = None
) -> claim.ClaimVerdict:
    """Return the verdict on a claim for one node; several nodes may share `selectors`."""
    search = ClaimSearch(world, node, selectors or Selectors())
    try:
        choices = search.search()
    except ClaimRefused as error:
        return claim.ClaimVerdict(node.name, claim.ClaimOutcome.REFUSED, why=str(error))
    except NotEvaluated as error:
        why = f"a selector is beyond what kube-rdma evaluates: {error}"
        devices = tuple(_against(search, 0))
        outcome = claim.ClaimOutcome.NOT_JUDGED
        return claim.ClaimVerdict(node.name, outcome, why=why, devices=devices)
    except NotJudged as error:
        return claim.ClaimVerdict(node.name, claim.ClaimOutcome.NOT_JUDGED, why=str(error))
    if choices is not None:
        devices = tuple(map(_chosen, choices))
        granted, outcome = tuple(map(_granted, choices)), claim.ClaimOutcome.MET
        return claim.ClaimVerdict(node.name, outcome, granted, devices=devices)
    best = search.best
    search.to_best(world)
    return claim.ClaimVerdict(
        node.name,
        claim.ClaimOutcome.NOT_MET,
        wanted=best.wanted,
        lacking=max(best.wanted - len(best.choices), 1),
        stuck=world.claim.requests[best.request].name,
        devices=(*_against(search, best.request), *map(_chosen, best.choices)),
    )


def _against(search: ClaimSearch, request: int) -> Iterator[claim.DeviceVerdict]:
    """Yield for each choice of a request a verdict on each device that the choice did not get."""
    for choice in search.claim.requests[request].choices:
        mine = {one.candidate.id for one in search.best.choices if one.request.name == choice.name}
        for candidate in search.candidates:
            if candidate.id in mine:
                continue
            try:
                objection = search.objection(choice, candidate)
            except (NotEvaluated, ClaimRefused) as error:  # the search did not come to it
                objection = claim.Objection(claim.Reason.NOT_EVALUATED, str(error))
            yield claim.DeviceVerdict(candidate.id, choice.name, objection)


def _chosen(choice: DeviceChoice) -> claim.DeviceVerdict:
    return claim.DeviceVerdict(choice.candidate.id, choice.request.name, chosen=True)


def _granted(choice: DeviceChoice) -> claim.AllocationResult:
    request, id_ = choice.request, choice.candidate.id
    return claim.AllocationResult(
        request.name, id_.driver, id_.pool, id_.name, admin=request.admin, capacity=choice.capacity
    )


def _headline(nodes: Sequence[claim.ClaimVerdict]) -> str:
    """Return one sentence on whether and where the claim can be met."""
    if not nodes:
        return "There is no node."
    met = [one for one in nodes if one.outcome == claim.ClaimOutcome.MET]
    if nodes[0].outcome == claim.ClaimOutcome.REFUSED:
        return f"The scheduler gives the claim up on every node: {nodes[0].why}."
    if met:
        names = ", ".join(one.node for one in met[:3]) + (", …" if len(met) > 3 else "")
        where = f"on {len(met)} of {len(nodes)} nodes ({names})"
        return f"The claim can be met now, {where}: a pod that names it waits for something else."
    hidden = next((one for one in nodes if one.outcome == claim.ClaimOutcome.NOT_JUDGED), None)
    if hidden:
        return f"Whether the claim can be met is not known: {hidden.why}."
    nearest = nodes[0]
    what = f"No node has the {_devices(nearest.wanted)} that the claim asks for"
    if not nearest.devices:
        return f"{what}: no driver offers a device to any node."
    return f"{what}; nearest is {nearest.node}, which lacks {nearest.lacking}{objections(nearest)}."


def objections(verdict: claim.ClaimVerdict) -> str:
    """Return how often each objection is made, frequent ones first, behind a colon; "" for none."""
    against = (one.objection for one in verdict.devices if one.objection)
    counts = Counter(f"{WORDS[one.reason]}{one.rule and f' by {one.rule}'}" for one in against)
    common = counts.most_common()
    parts = [f"{count} {'is' if count == 1 else 'are'} {words}" for words, count in common]
    return f": {listed(parts, _MOST_COUNTED)}" if parts else ""


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"
