"""Explains a pod: what it asks for, has, gets and sees, and what is in its way.

`kube-rdma explain` calls `explain`. The agent's records of shares and Steps count first; else the
rules plan them, with what the pod's status annotation has. Each part says how it is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from kube_base.frozen import replace
from kube_rdma.admission.rules.shares import asked, offered, with_shares
from kube_rdma.attach.rules.addresses import default_routes
from kube_rdma.attach.rules.plan import leads_pod
from kube_rdma.doctor.rules.waiting import waits_for
from kube_rdma.explain.rules import inside
from kube_rdma.explain.rules.claims import claim_findings, explained_claims
from kube_rdma.explain.rules.node import WIDEST
from kube_rdma.explain.rules.nodes import no_node, unfit
from kube_rdma.explain.rules.planning import PodPlan, is_unplannable, judged, planned, unreported
from kube_rdma.lib.phrases import listed
from kube_rdma.model import explain as model
from kube_rdma.model.admission import USUAL, AdmissionFacts, PodTemplate
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import Network, NetworkKind
from kube_rdma.model.finding import Finding, Severity, Stage
from kube_rdma.model.pools import Bind, Pool, Serving
from kube_rdma.model.preflight import PLAN, VERDICT
from kube_rdma.pools.rules.modes import terms

_OWN = "kube-rdma.io/"
# Written by agent and controller, not asked by the pod.
_WRITTEN = ("kube-rdma.io/network-status", PLAN, VERDICT)
_STARTS = "KR490"  # the doctor's code of a pod that does not run
_KINDS = {
    NetworkKind.CARD: "made as the mode of its card says",
    NetworkKind.DEVICE: "the card's own interface",
}


def explain(evidence: model.PodEvidence) -> model.Explanation:
    """Return what `kube-rdma explain` says of a pod, from the evidence about it."""
    basis = evidence.basis
    plan = PodPlan()
    understood = not evidence.misread and not evidence.unread
    if basis is not None and basis.reported and understood:
        plan = planned(evidence, basis)
    elif understood:
        plan = judged(evidence)
    steps, source = _plans(evidence, plan)
    template = evidence.template
    seen = tuple(inside.interfaces(evidence, plan, steps))
    vanished = []
    if names := inside.missing(evidence, seen):
        vanished = [f"Not in the pod any more: {listed(names)}, which the agent has made"]
    return model.Explanation(
        pod=f"{template.namespace}/{template.name}",
        node=evidence.node,
        phase=evidence.phase,
        why=evidence.why,
        asks=tuple(_asks(evidence)),
        networks=tuple(_networks(evidence)),
        annotations=tuple(
            f"{key}: {value}"
            for key, value in template.annotations
            if key.startswith(_OWN) and key not in _WRITTEN
        ),
        shares=tuple(_shares(evidence, plan)),
        plans=steps,
        source=source,
        interfaces=seen,
        device_nodes=tuple(inside.device_nodes(evidence, plan)),
        settings=tuple(inside.settings(evidence, plan)),
        findings=tuple(sorted(findings(evidence, plan), key=lambda one: not one.is_error)),
        notes=(*_notes(evidence, plan, source), *vanished),
        interfaces_from=inside.interfaces_from(evidence),
        device_nodes_from=inside.device_nodes_from(evidence),
        rdma_cm=tuple(inside.connections(evidence, plan, seen)),
        claims=tuple(explained_claims(evidence)),
        pinned=tuple(inside.pinned(evidence)),
        names=evidence.names,
        preflight=evidence.preflight,
    )


def _asks(evidence: model.PodEvidence) -> Iterator[model.ExplainedAsk]:
    """Yield the shares that each container asks for, with what the node offers of the resource."""
    pools = evidence.basis.by_resource if evidence.basis else {}
    for container in evidence.template.containers:
        for ask in container.asks:
            offer = ""
            if pool := pools.get(ask.resource):
                healthy, cards = sum(one.healthy for one in pool.shares), len(pool.cards)
                offer = f"mode {pool.spec.mode}, {cards} card{'' if cards == 1 else 's'}, "
                offer += f"{healthy} of {len(pool.shares)} shares healthy"
                if pool.spec.serve is Serving.CLAIMS:
                    offer += ", served by claims"
            yield model.ExplainedAsk(container.name, ask.resource, ask.count, offer)


def _networks(evidence: model.PodEvidence) -> Iterator[model.ExplainedNetwork]:
    """Yield the networks that the pod asks for, each with a description."""
    by_name = {one.name: one for one in evidence.networks}
    for ask in evidence.asks:
        name = f"{ask.namespace}/{ask.network}"
        network = by_name.get(name)
        unknown = "not read" if evidence.unread or evidence.misread else "there is no such network"
        means = "; ".join(_meaning(network, evidence)) if network else unknown
        yield model.ExplainedNetwork(ask.interface, name, means)


def _meaning(network: Network, evidence: model.PodEvidence) -> Iterator[str]:
    """Yield the parts of a sentence that describes a network."""
    if isinstance(network, kinds.ForeignNetwork):
        yield f"made by the CNI plugin {network.plugin}"
    else:
        what = _KINDS.get(network.kind, f"{network.kind} on its card")
        yield f"{network.kind} on {network.device}" if network.device else what
    if network.resource:
        yield f"takes a share of {network.resource}"
    if network.mtu:
        yield f"MTU {network.mtu}"
    if network.ipam_plugin:
        yield f"addresses by {network.ipam_plugin}"
    for name in network.pools:
        pool = evidence.ip_pools.get(name)
        subnets = list(dict.fromkeys(str(one.subnet) for one in pool.ranges)) if pool else []
        yield f"addresses of IPPool {name}" + (f" ({listed(subnets)})" if subnets else "")
    if network.static:
        yield f"address {listed([str(one.address) for one in network.static])}"


def _shares(evidence: model.PodEvidence, plan: PodPlan) -> Iterator[model.ExplainedShare]:
    """Yield the shares of the agent's records, else of the plan, else the cards of the status."""
    names = evidence.basis.card_names if evidence.basis else {}
    if evidence.bindings:
        for binding in evidence.bindings:
            card = listed(binding.cards)
            name = names.get(card, "")
            for share in binding.shares:
                yield model.ExplainedShare(binding.resource, card, name, share=share)
        return
    attached = {one.card for one in evidence.attached if one.card}
    claimed = {(one.resource, one.share) for one in plan.claimed}
    for held in plan.granted:
        by_claim = (held.resource, held.share) in claimed
        sure = by_claim or all(card.id in attached for card in held.cards)
        cards = listed([card.id for card in held.cards])
        called = listed([card.name for card in held.cards])
        number = "" if attached else held.share
        yield model.ExplainedShare(held.resource, cards, called, held.container, number, sure)
    if not plan.granted:
        for status in evidence.attached:
            if status.card:
                yield model.ExplainedShare("", status.card, names.get(status.card, ""))


def _plans(
    evidence: model.PodEvidence, plan: PodPlan
) -> tuple[tuple[model.ExplainedPlan, ...], model.StepsFrom | None]:
    if evidence.recorded:
        recorded = tuple(
            model.ExplainedPlan(one.interface, one.network, one.steps, done=attachment.complete)
            for attachment in evidence.recorded
            for one in attachment.plans
        )
        return recorded, model.StepsFrom.RECORD
    made = tuple(
        model.ExplainedPlan(
            one.interface,
            one.network,
            one.steps,
            tuple(word for interface, word in plan.stand_ins if interface == one.interface),
        )
        for one in plan.plans
    )
    return made, model.StepsFrom.RULES if made else None


def _notes(
    evidence: model.PodEvidence, plan: PodPlan, source: model.StepsFrom | None
) -> Iterator[str]:
    """Yield notes about what could not be seen, and on what the plan rests."""
    basis = evidence.basis
    for hidden in evidence.not_seen:
        yield f"Not seen: {hidden.part}, for {hidden.why}"
    if basis and basis.reported:
        shares = with_shares(USUAL, offered(AdmissionFacts(networks=evidence.networks))).shares
        asks = dict.fromkeys(ask.resource for _, ask in asked(evidence.template, shares))
        # Such as those of another plugin, which has no report.
        if others := [name for name in asks if name not in basis.by_resource]:
            why = f"No agent reports a pool of {listed(others)} on {basis.name}"
            if basis.recorded:
                why = f"No file of --config has a pool of {listed(others)}: give its NodePolicy too"
            yield f"{why}; its cards are unknown"
    if evidence.asks and not evidence.node and not evidence.recorded:
        yield "No node is known, so no Step is planned: name one with --node"
    if basis is not None and is_unplannable(evidence, basis) and source is None:
        there = "" if basis.recorded else f": run this in the agent's pod of {basis.name}"
        yield f"What a virtual function is set to shows on its node alone{there}"
    yield from _default_routes(evidence, plan)
    if source is model.StepsFrom.RULES:
        yield from _of_rules(evidence, plan)
    elif plan.refused and evidence.attached and source is None:
        yield (
            "The Steps are in the record of the agent: run this in the agent's pod of "
            f"{evidence.node}"
        )


def _default_routes(evidence: model.PodEvidence, plan: PodPlan) -> Iterator[str]:
    """Yield notes about networks with a default route that is not asked for.

    The interfaces that have such a route are named.
    """
    silent = [one for one in plan.entries if not (one.ask.default or one.ask.default_routes)]
    names = {name for entry in silent for name in entry.network.pools}
    pools = [pool for name, pool in evidence.ip_pools.items() if name in names]
    for finding in default_routes([entry.network for entry in silent], pools):
        yield f"{finding.subject}: {finding.problem}. {finding.remedy}"
    interfaces = [one.ask.interface for one in silent]
    for made in (plan for one in evidence.recorded or () for plan in one.plans):
        if made.interface in interfaces and leads_pod(made):
            has = f"{made.interface} has the pod's default route by an older agent"
            yield f"{has}. Delete the pod, so that services and DNS are reached by eth0 again"


def _of_rules(evidence: model.PodEvidence, plan: PodPlan) -> Iterator[str]:
    """Yield notes about Steps that were planned just now instead of read from a record."""
    if evidence.attached:
        yield (
            "The Steps are planned again from the network status of the pod; the record of the "
            f"agent has them word by word: run this in the agent's pod of {evidence.node}"
        )
    elif plan.short:
        yield "The Steps are those of a node on which no other pod holds shares"
    elif any(one.cards for one in plan.granted):
        yield "The kubelet chooses shares when the pod starts; these would be preferred now"
    if not evidence.attached and any(nic.roce for nic in plan.nics):
        yield "The index of a GID is known when its address is; the settings then have it too"
    basis = evidence.basis
    if basis is None or basis.exact:
        return
    if names := unreported(basis.host, plan.entries):
        yield f"Whether the node has {listed(names)} is not judged: a NodeReport has RDMA cards"
    if any(one.mtu for one in evidence.networks) and any(
        nic.link.mtu == WIDEST for nic in plan.nics
    ):
        source = "recording" if basis.recorded else "NodeReport"
        yield f"Whether the MTU fits is not judged: the {source} of {basis.name} has none"


# Findings: what is in the way of the pod, in the order in which it would meet it.


def findings(evidence: model.PodEvidence, plan: PodPlan) -> Iterator[Finding]:
    """Yield why a pod does not run, then other obstacles in the order in which it meets them.

    Errors mean that the pod cannot have what it asks for. Errors of the admission rules are
    warnings for a pod that exists already.
    """
    is_attached = bool(evidence.attached or evidence.recorded)
    scheduling = list(_scheduling(evidence))
    known = {one.subject for one in scheduling}
    if evidence.why:
        said = replace(
            waits_for(evidence.why, evidence.template.namespace), subject="", code=_STARTS
        )
        if said.stage is Stage.SCHEDULER:  # whose Event counts nodes, and names no label
            yield from scheduling
            scheduling = []
        yield said
    for finding in evidence.findings:
        is_over = finding.is_error and evidence.phase
        severity = Severity.WARNING if is_over else finding.severity
        problem = f"{finding.problem} (rule {finding.code})"
        yield replace(finding, problem=problem, severity=severity, stage=Stage.ADMISSION)
    yield from scheduling
    if plan.short is not None and not is_attached and plan.short.where not in known:
        yield from Finding.of_refused(plan.short, Stage.KUBELET)
    if is_attached:
        return
    yield from claim_findings(evidence)
    yield from evidence.misread
    if plan.refused is not None:
        yield from Finding.of_refused(plan.refused, Stage.AGENT)


def _scheduling(evidence: model.PodEvidence) -> Iterator[Finding]:
    """Yield Findings on why the scheduler finds no node, or not the node that is asked about."""
    misspelled = list(_unknown_resources(evidence))
    yield from misspelled
    more: Iterable[Finding] = ()
    if not evidence.node:
        more = no_node(evidence.template, evidence.nodes)
    elif (basis := evidence.basis) and basis.state and not evidence.phase:
        served = {p.spec.resource: p for p in basis.pools if p.spec.serve is Serving.CLAIMS}
        yield from _of_claims(evidence.template, served)
        more = unfit(evidence.template, basis.state, dict(basis.held), served)
    names = {one.subject for one in misspelled}
    yield from (one for one in more if one.subject not in names)


def _of_claims(template: PodTemplate, served: Mapping[str, Pool]) -> Iterator[Finding]:
    """Yield Findings about requests for more than one of a resource that is a single device.

    A claim serves such a resource as one device for all cards of its pool.
    """
    most: Counter[str] = Counter()
    for container in template.containers:
        for ask in container.asks:
            most[ask.resource] = max(most[ask.resource], ask.count)
    for resource, count in most.items():
        if count > 1 and resource in served and terms(served[resource].spec).bind is Bind.POOL:
            yield Finding(
                resource,
                f"a container asks for {count}, and claims serve {resource} on this node as one "
                "device for all of its cards, which a container has once",
                remedy="Ask for 1, which gives the container all of the cards",
                stage=Stage.SCHEDULER,
            )


def _unknown_resources(evidence: model.PodEvidence) -> Iterator[Finding]:
    """Yield Findings about misspelled resources.

    No node offers such a resource, and one offers nearly the same name.
    """
    offered = {name for one in evidence.nodes for name, _ in one.allocatable if "/" in name}
    asked = {ask.resource for one in evidence.template.containers for ask in one.asks}
    for resource in sorted(asked.difference(offered)):
        for meant in get_close_matches(resource, offered, n=1, cutoff=0.8):
            problem = f"no node offers {resource}; did you mean {meant}?"
            remedy = f"Ask for {meant}, or let a pool offer {resource}"
            yield Finding(resource, problem, remedy=remedy, stage=Stage.SCHEDULER)
