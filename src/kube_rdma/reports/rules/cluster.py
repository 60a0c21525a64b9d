"""Judges a cluster: what is wrong, how bad it is, what to do next.

reports/gather hands in what the API server tells, reports/views/pages shows what comes out.
Each Finding has a code that stays, one sentence and the next step; docs/reports.md lists the codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from kube_rdma.attach.rules.addresses import default_routes
from kube_rdma.lib.phrases import listed
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.reports.cluster import (
    AddressPool,
    ClusterFacts,
    ClusterHealth,
    NodePolicyState,
    PolicyState,
    ProgramRole,
    Workload,
)
from kube_rdma.reports.rules.nodes import node_findings
from kube_rdma.reports.rules.pods import pod_findings

_KINDS = "Install it: kubectl apply -f config/crds"
_PLAIN = (
    "Agents of this preset write no reports, so look at the shares themselves: kubectl get nodes "
    "-o custom-columns=NODE:.metadata.name,ALLOCATABLE:.status.allocatable"
)


def findings(facts: ClusterFacts) -> tuple[Finding, ...]:
    """All that is wrong, what holds up most first: programs, policies, nodes, addresses, pods."""
    every = (
        *_programs(facts),
        *_policies(facts.policies or ()),
        *_node_policies(facts.node_policies or ()),
        *node_findings(facts),
        *_pools(facts.pools or ()),
        *default_routes(facts.networks or (), facts.pools or ()),
        *pod_findings(facts),
        *_advice(facts),
    )
    return tuple(sorted(every, key=lambda one: not one.is_error))


def health(facts: ClusterFacts, wrong: Sequence[Finding]) -> ClusterHealth:
    """How the cluster is; a part that could not be read hides problems, never finds some."""
    if any(one.is_error for one in wrong):
        return ClusterHealth.PROBLEMS
    if facts.is_blind or facts.is_unreported:
        return ClusterHealth.UNKNOWN
    return ClusterHealth.HEALTHY


def _programs(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.workloads is None:
        return
    agents = [w for w in facts.workloads if w.role is ProgramRole.AGENT]
    if not agents:
        yield Finding.of(
            "NoAgent",
            "",
            "No DaemonSet of kube-rdma agents is here",
            "Install an example (examples/README.md), or a NicClusterPolicy with the controller",
        )
    for workload in facts.workloads:
        yield from _workload(workload)
    if not any(w.role is ProgramRole.CONTROLLER for w in facts.workloads):
        names = [f"IPPool {each.name}" for each in facts.pools or ()]
        names += [f"NicClusterPolicy {each.title}" for each in facts.policies or ()]
        names += [f"NodePolicy {each.name}" for each in facts.node_policies or ()]
        if names:
            yield Finding.of(
                "ControllerMissing",
                "",
                f"No controller runs to look after {listed(names)}",
                "Install the controller of your example, as examples/s3-network/controller.yaml",
            )


def _workload(workload: Workload) -> Iterator[Finding]:
    """A DaemonSet on no node, a controller without a pod, an update under way."""
    is_agent = workload.role is ProgramRole.AGENT
    kind = "daemonset" if is_agent else "deployment"
    about = f"{kind}/{workload.title}"
    space, name = quote(workload.namespace), quote(workload.name)
    describe = f"kubectl -n {space} describe {kind} {name}"
    if is_agent and not workload.desired:
        yield Finding.of(
            "NoNodeMatches",
            about,
            "Its selector and tolerations match no node, so no agent runs",
            f"Label the nodes as it asks, see {describe}",
        )
    elif not is_agent and workload.ready < workload.desired:
        code = "ControllerNotReady"
        sentence = f"{workload.ready} of {workload.desired} replicas of the controller are ready"
        remedy = f"See {describe}, and kubectl -n {space} logs deploy/{name}"
        yield Finding.of(
            code, about, sentence, remedy, Severity.ADVICE if workload.ready > 0 else Severity.ERROR
        )
    if workload.desired and workload.updated < workload.desired:
        yield Finding.of(
            "UpdateUnderWay",
            about,
            f"{workload.updated} of {workload.desired} pods are of its present template",
            f"Wait: kubectl -n {space} rollout status {kind}/{name}. "
            "With OnDelete, delete the old pods",
            Severity.ADVICE,
        )


def _policies(policies: Sequence[PolicyState]) -> Iterator[Finding]:
    for policy in policies:
        about = f"nicclusterpolicy/{policy.title}"
        if "/" not in policy.title and not policy.ours:
            sentence = "It is of the whole cluster, and kube-rdma's operator has not looked at it"
            remedy = (
                "Beside NVIDIA's operator take preset nvidia, else set "
                "controller.policyScope=Cluster (docs/drivers.md)"
            )
            yield Finding.of("PolicyOfAnotherOperator", about, sentence, remedy, Severity.ADVICE)
        elif not policy.state:
            sentence = "No controller has written its status"
            remedy = "Run the controller with --policies in the namespace of the policy"
            yield Finding.of("PolicyNotSeen", about, sentence, remedy)
        elif policy.state != "ready":
            why = "; ".join(policy.notes) or policy.reason or "it gives no reason"
            remedy = "Do what the reason says; the controller looks again by itself"
            sentence = f"It is {policy.state}: {why}"
            weight = Severity.ADVICE if policy.state == "ignore" else Severity.ERROR
            yield Finding.of("PolicyNotReady", about, sentence, remedy, weight)
        elif policy.notes:  # all runs, and some of it is not what is asked for by now
            remedy = "Wait, or do what the reason says (docs/drivers.md)"
            yield Finding.of(
                "DriversNotCurrent", about, "; ".join(policy.notes), remedy, Severity.ADVICE
            )


def _node_policies(policies: Sequence[NodePolicyState]) -> Iterator[Finding]:
    """Refused by somebody is a problem; what waits, or selects nobody, may be meant so."""
    for policy in policies:
        about = f"nodepolicy/{policy.name}"
        if not policy.seen:
            sentence = "No controller has looked at its present version"
            remedy = "Wait a moment; if it stays so, run the controller"
            yield Finding.of("PolicyNotSeen", about, sentence, remedy, Severity.ADVICE)
        elif policy.reason in ("Refused", "NotUnderstood"):
            remedy = "Fix the field; nodes keep its previous version"
            yield Finding.of("PolicyRefused", about, policy.message, remedy)
        elif policy.refused:
            remedy = f"See kubectl describe {quote(about)}, and fix what the nodes report"
            yield Finding.of("PolicyRefused", about, policy.message, remedy)
        elif policy.reason:
            remedy = f"Wait, or see kubectl describe {quote(about)}"
            if policy.reason == "NoNodeMatches":
                remedy = "Label nodes as its nodeSelector asks, or change that"
            yield Finding.of("PolicyPending", about, policy.message, remedy, Severity.ADVICE)


def _pools(pools: Sequence[AddressPool]) -> Iterator[Finding]:
    for pool in pools:
        about = f"ippool/{pool.name}"
        if pool.broken:
            remedy = f"See kube-rdma ip show {quote(pool.name)}, and kube-rdma ip check"
            yield Finding.of("AddressPoolBroken", about, pool.broken, remedy)
        if pool.short:
            yield Finding.of(
                "AddressPoolEmpty",
                about,
                f"Nodes ask for addresses and get none: {listed(pool.short)}",
                "Add a range to the pool, or end pods that hold addresses",
            )
        elif pool.scarce:
            remedy = "Add a range to the pool before it is full"
            yield Finding.of("AddressPoolNearlyFull", about, pool.scarce, remedy)


def _writes_none(facts: ClusterFacts) -> bool:
    """Whether agents run, and none of them has the rights to report."""
    agents = [w for w in facts.workloads or () if w.role is ProgramRole.AGENT]
    return bool(agents) and not any(w.reports for w in agents)


def _advice(facts: ClusterFacts) -> Iterator[Finding]:
    """What is missing and not needed now."""
    if "NodeReport" in facts.missing:
        yield Finding.of(
            "ReportsNotInstalled",
            "",
            "The kind NodeReport is not installed, so nothing is known of cards and pools",
            _PLAIN if _writes_none(facts) else _KINDS,
            Severity.ADVICE,
        )
    if facts.guarded is False and facts.workloads and any(w.reports for w in facts.workloads):
        yield Finding.of(
            "AdmissionPolicyMissing",
            "",
            "No policy limits agents to their own nodes: a stolen token may change pods of others",
            "On Kubernetes 1.30 or newer: kubectl apply -f config/admission",
            Severity.ADVICE,
        )
