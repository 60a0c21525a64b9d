"""What is in the way of a pod, in the order in which it would meet it.

Part of the rules of `kube-rdma explain`. Admission and agent say it in their own words, by their
own rules. Of the scheduler's many reasons the three that concern cards are looked at: the node's
labels, what it offers, and whether it is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from kube_base.frozen import replace
from kube_rdma.admission.rules.placement import possible
from kube_rdma.admission.rules.shares import held
from kube_rdma.explain.rules.claims import claim_findings
from kube_rdma.explain.rules.planning import Planned
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.explain import NodeBasis, PodEvidence
from kube_rdma.model.finding import Finding, Severity, Stage
from kube_rdma.model.pools.pool import Bind, Pool, Serving
from kube_rdma.pools.rules.modes import terms


def findings(evidence: PodEvidence, plan: Planned) -> Iterator[Finding]:
    """Errors mean that the pod cannot have what it asks for; one that runs has it."""
    is_attached = bool(evidence.attached or evidence.recorded)
    for finding in evidence.findings:
        severity = Severity.WARNING if evidence.phase else finding.severity
        problem = f"{finding.problem} (rule {finding.code})"
        yield replace(finding, problem=problem, severity=severity, stage=Stage.ADMISSION)
    basis = evidence.basis if not evidence.phase else None
    scheduling = list(_unknown_resources(evidence))
    misspelled = _places(scheduling)
    more = _scheduler(evidence.template, basis) if basis else ()
    scheduling += [one for one in more if one.subject not in misspelled]
    yield from scheduling
    if plan.short is not None and not is_attached and plan.short.where not in _places(scheduling):
        yield from Finding.of_refused(plan.short, Stage.KUBELET)
    if is_attached:
        return
    yield from claim_findings(evidence)
    yield from evidence.misread
    if plan.refused is not None:
        yield from Finding.of_refused(plan.refused, Stage.AGENT)


def _places(every: list[Finding]) -> set[str]:
    return {one.subject for one in every}


def _scheduler(template: PodTemplate, basis: NodeBasis) -> Iterator[Finding]:
    state = basis.state
    if state is None:
        return
    labels = dict(state.labels)
    keys = [key for key, _ in template.selector]
    keys += [demand.label for demands in template.alternatives for demand in demands]
    for key in dict.fromkeys(keys):
        values = possible(template, key)
        if values is not None and labels.get(key) not in values:
            has = f"has {key}={labels[key]}" if key in labels else f"has no label {key}"
            wants = ", ".join(sorted(values))
            problem = f"the pod wants {key}={wants}, and the node {has}"
            yield Finding(
                state.name, problem, remedy="Name a node with this label", stage=Stage.SCHEDULER
            )
    if state.unschedulable:
        yield Finding(
            state.name,
            "the node is closed (cordoned)",
            remedy="kubectl uncordon it",
            stage=Stage.SCHEDULER,
        )
    offered, others = dict(state.allocatable), dict(basis.held)
    asked = Counter(ask.resource for one in template.containers for ask in one.asks)
    by_claims = {p.spec.resource: p for p in basis.pools if p.spec.serve is Serving.CLAIMS}
    for resource in asked:
        if pool := by_claims.get(resource):
            yield from _of_claims(template, pool)
            continue
        count, offer = held(template, resource), offered.get(resource, 0)
        taken = others.get(resource, 0)
        if count > offer - taken:
            besides = f", of which other pods ask for {taken}" if taken else ""
            yield Finding(
                resource,
                f"the pod asks for {count}, and the node offers {offer}{besides}",
                remedy="Ask for less, wait until pods end, or name another node (kube-rdma status)",
                stage=Stage.SCHEDULER,
            )


def _of_claims(template: PodTemplate, pool: Pool) -> Iterator[Finding]:
    """What claims cannot give of a resource, whose allocatable is 0; slices say what is left."""
    resource = pool.spec.resource
    asks = (ask for one in template.containers for ask in one.asks if ask.resource == resource)
    most = max((ask.count for ask in asks), default=0)
    if most > 1 and terms(pool.spec).bind is Bind.POOL:
        yield Finding(
            resource,
            f"a container asks for {most}, and claims serve {resource} on this node as one device "
            "for all of its cards, which a container has once",
            remedy="Ask for 1, which gives the container all of the cards",
            stage=Stage.SCHEDULER,
        )


def _unknown_resources(evidence: PodEvidence) -> Iterator[Finding]:
    """Resources that no node offers and that are nearly one that some node does: misspelled."""
    offered = evidence.offered or ()
    asked = {ask.resource for one in evidence.template.containers for ask in one.asks}
    for resource in sorted(asked.difference(offered)):
        for meant in get_close_matches(resource, offered, n=1, cutoff=0.8):
            yield Finding(
                resource,
                f"no node offers {resource}; did you mean {meant}?",
                remedy=f"Ask for {meant}, or let a pool offer {resource}",
                stage=Stage.SCHEDULER,
            )
