"""What is in the way of a pod, in the order in which it would meet it.

Part of the rules of `kube-rdma explain`. Admission and agent say it in their own words, by their
own rules. Of the scheduler's many reasons the three that concern cards are looked at: the node's
labels, what it offers, and whether it is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from kube_base.errors import Refused
from kube_rdma.model.admission.findings import Severity
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.explain import NodeBasis, Obstacle, PodEvidence, Stage
from kube_rdma.rules.admission.placement import possible
from kube_rdma.rules.admission.shares import held
from kube_rdma.rules.explain.planning import Planned


def obstacles(evidence: PodEvidence, plan: Planned) -> Iterator[Obstacle]:
    """Fatal ones mean that the pod cannot have what it asks for; one that runs has it."""
    is_attached = bool(evidence.attached or evidence.recorded)
    for finding in evidence.findings:
        fatal = finding.severity is Severity.REFUSE and not evidence.phase
        where = ".".join(map(str, finding.path))
        problem = f"{finding.problem} (rule {finding.rule})"
        yield Obstacle(Stage.ADMISSION, where, problem, finding.remedy, fatal)
    basis = evidence.basis if not evidence.phase else None
    scheduling = list(_unknown_resources(evidence))
    misspelled = _places(scheduling)
    more = _scheduler(evidence.template, basis) if basis else ()
    scheduling += [one for one in more if one.where not in misspelled]
    yield from scheduling
    if plan.short is not None and not is_attached and plan.short.where not in _places(scheduling):
        yield Obstacle(Stage.KUBELET, plan.short.where, plan.short.problem, plan.short.remedy)
    if is_attached:
        return
    yield from evidence.misread
    if plan.refused is not None:
        yield from (_by_agent(one) for one in (plan.refused, *plan.refused.more))


def _places(every: list[Obstacle]) -> set[str]:
    return {one.where for one in every}


def _scheduler(template: PodTemplate, basis: NodeBasis) -> Iterator[Obstacle]:
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
            yield Obstacle(Stage.SCHEDULER, state.name, problem, "Name a node with this label")
    if state.unschedulable:
        yield Obstacle(
            Stage.SCHEDULER, state.name, "the node is closed (cordoned)", "kubectl uncordon it"
        )
    offered, others = dict(state.allocatable), dict(basis.held)
    asked = Counter(ask.resource for one in template.containers for ask in one.asks)
    for resource in asked:
        count, offer = held(template, resource), offered.get(resource, 0)
        taken = others.get(resource, 0)
        if count > offer - taken:
            besides = f", of which other pods ask for {taken}" if taken else ""
            yield Obstacle(
                Stage.SCHEDULER,
                resource,
                f"the pod asks for {count}, and the node offers {offer}{besides}",
                "Ask for less, wait until pods end, or name another node (kube-rdma status)",
            )


def _unknown_resources(evidence: PodEvidence) -> Iterator[Obstacle]:
    """Resources that no node offers and that are nearly one that some node does: misspelled."""
    offered = evidence.offered or ()
    asked = {ask.resource for one in evidence.template.containers for ask in one.asks}
    for resource in sorted(asked.difference(offered)):
        for meant in get_close_matches(resource, offered, n=1, cutoff=0.8):
            yield Obstacle(
                Stage.SCHEDULER,
                resource,
                f"no node offers {resource}; did you mean {meant}?",
                f"Ask for {meant}, or let a pool offer {resource}",
            )


def _by_agent(error: Refused) -> Obstacle:
    return Obstacle(Stage.AGENT, error.where, error.problem, error.remedy)
