"""What is wrong with single nodes: their agents, their reports, what their Events say.

A part of reports/rules/cluster, which puts the rest beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from shlex import quote

from kube_rdma.lib.phrases import listed
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.node import NodeState
from kube_rdma.model.reports.cluster import ClusterEvent, ClusterFacts, ProgramPod, ProgramRole
from kube_rdma.model.reports.node_report import NodeReport

# Reasons of Events about a node that stand until the other one comes, what they are called here
# and what to do. A reason without another one is over when its Event is.
_STANDING = {
    "NetworkConfigurationRefused": (
        "NetworkConfiguration",
        "CniFilesRefused",
        "Do what it says of the file, or of the agent's mounts; the agent looks again by itself",
    ),
    "AddressTrouble": (
        "AddressTroubleOver",
        "AddressTrouble",
        "Do what it says; kube-rdma ip check has more",
    ),
    "JournalTrouble": (
        "",
        "JournalTrouble",
        "Run the version of kube-rdma again that wrote the file, or drain the node and remove it",
    ),
}


def node_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """What is wrong with each node, in the order of their names."""
    pods, reports = facts.agents, facts.reports or {}
    nodes = {node.name: node for node in facts.nodes or ()}
    for name in sorted({*nodes, *pods, *reports}):
        if name in nodes and (name in pods or name in reports):
            yield from _kubelet(nodes[name])
        yield from _agent(name, facts, pods.get(name, ()))
        yield from _report(name, reports.get(name))
        if name in nodes and name in reports and pods.get(name):
            yield from _shares(nodes[name], reports[name])
    yield from _empty(reports)
    yield from _versions(reports)
    yield from _standing(facts.events or ())


def _kubelet(node: NodeState) -> Iterator[Finding]:
    """Where the kubelet is away, nothing that is known of the node is current."""
    if not node.ready:
        yield Finding.of(
            "NodeNotReady",
            f"node/{node.name}",
            "The node is not ready, so its report and the state of its agent may be old",
            f"See kubectl describe node {quote(node.name)}, and the kubelet's log on it",
        )


def _agent(name: str, facts: ClusterFacts, pods: tuple[ProgramPod, ...]) -> Iterator[Finding]:
    about = f"node/{name}"
    for pod in pods:
        if not pod.ready:
            why = f": {pod.why}" if pod.why else ""
            sentence = f"The agent {pod.namespace}/{pod.name} is not ready{why}"
            describe = f"kubectl -n {quote(pod.namespace)} describe pod {quote(pod.name)}"
            remedy = f"See kubectl -n {quote(pod.namespace)} logs {quote(pod.name)}, and {describe}"
            if "Image" in pod.why.partition(":")[0]:  # then there is no log
                remedy = "Push the image, or name in image.repository and image.tag one that the "
                remedy += f"nodes can pull; {describe} has the rest"
            yield Finding.of("AgentNotReady", about, sentence, remedy)
    if facts.pods is None or not any(w.role is ProgramRole.AGENT for w in facts.workloads or ()):
        return
    reporting = {w.title for w in facts.workloads or () if w.reports}
    writes = any(pod.workload in reporting for pod in pods)
    reported = name in (facts.reports or {})
    if facts.reports is not None and not reported:
        yield from _no_report(name, [pod for pod in pods if pod.workload in reporting])
    if reported and not writes:
        yield Finding.of(
            "AgentMissing",
            about,
            "The node has a report and no agent that writes it, so what it says is old",
            "Let the DaemonSet of the agent select the node, or delete the report: "
            f"kubectl delete nodereport {quote(name)}",
        )


def _no_report(name: str, pods: Iterable[ProgramPod]) -> Iterator[Finding]:
    """Agents that should report and do not; one that is not ready is told already."""
    for pod in pods:
        if pod.ready:
            yield Finding.of(
                "ReportMissing",
                f"node/{name}",
                f"The agent {pod.namespace}/{pod.name} runs and writes no report",
                f"See kubectl -n {quote(pod.namespace)} logs {quote(pod.name)}: "
                "it says which right its role lacks",
            )


def _report(name: str, report: NodeReport | None) -> Iterator[Finding]:
    if report is None:
        return
    about = f"node/{name}"
    for refusal in report.refusals:
        remedy = "Correct the document; the former pools are served until then"
        yield Finding.of("ConfigurationRefused", about, refusal, remedy)
    for trouble in report.troubles:
        remedy = "Change the selectors of the pools"
        yield Finding.of("ConfigurationConflict", about, trouble, remedy)
    if report.rerouted:
        pods = f"The default route of pods leads through a network: {listed(report.rerouted)}"
        remedy = "Delete those that do not ask for it by default-route: they get that of eth0 again"
        yield Finding.of("PodsRerouted", about, pods, remedy, Severity.ADVICE)
    ill, pooled = report.ill, report.pooled
    if ill:
        cards = listed([f"{card.name}: {'; '.join(card.reasons)}" for card in ill])
        usable = f"{len(pooled) - len(ill)} of {len(pooled)} cards can be used"
        yield Finding.of(
            "CardsUnhealthy",
            about,
            f"{usable}. {cards}",
            "Do what the reason says, or leave the card out of its pool by a selector",
        )
    for pending in report.pending:
        remedy = "End the pods that it names, or wait for them"
        yield Finding.of("ModeChangePending", about, pending.sentence, remedy, Severity.ADVICE)


def _shares(node: NodeState, report: NodeReport) -> Iterator[Finding]:
    """Where the kubelet counts other healthy shares than the agent."""
    allocatable = dict(node.allocatable)
    for pool in report.pools:
        offered = allocatable.get(pool.resource, 0)
        listed_now = 0 if pool.by_claims else pool.healthy
        if offered != listed_now:
            yield Finding.of(
                "SharesDiffer",
                f"node/{node.name}",
                f"The kubelet offers {offered} shares of {pool.resource}, the agent {listed_now}",
                "Wait a minute; if it stays so, see the kubelet's log for the resource's name",
            )


def _empty(reports: Mapping[str, NodeReport]) -> Iterator[Finding]:
    """Resources of which no node has a card: their selectors name none, or the nodes are to come.

    A node without cards of a pool is as it should be, while another one has some.
    """
    cards: dict[str, int] = {}
    for pool in (pool for report in reports.values() for pool in report.pools):
        cards[pool.resource] = cards.get(pool.resource, 0) + pool.cards
    spare = {name: unused for name in sorted(reports) if (unused := _spare(reports[name]))}
    for resource in sorted(name for name, count in cards.items() if not count):
        sentence = f"No node has a card for {resource}"
        remedy = "kube-rdma devices, on a node, says why cards are left out"
        if spare:
            node = next(iter(spare))
            sentence += f". {node} has cards that are in no pool: {listed(spare[node])}"
            remedy = "Write such names into the selectors of the pool (docs/config.md)"
        yield Finding.of("NoCards", "", sentence, remedy, Severity.ADVICE)


def _spare(report: NodeReport) -> list[str]:
    """Cards of the node that no pool has, with their interfaces."""
    unused = (card for card in report.cards if not card.resources and not card.gone)
    return [
        " ".join((card.name, *(f"({port.netdev})" for port in card.ports if port.netdev)))
        for card in unused
    ]


def _versions(reports: Mapping[str, NodeReport]) -> Iterator[Finding]:
    """Nodes whose agent is of another version than that of most."""
    versions: dict[str, list[str]] = {}
    for name, report in sorted(reports.items()):
        versions.setdefault(report.version, []).append(name)
    most = max(versions, key=lambda version: len(versions[version]), default="")
    for version, names in versions.items():
        if version != most:
            yield Finding.of(
                "AgentVersionsDiffer",
                f"node/{names[0]}" if len(names) == 1 else "",
                f"Agents of version {version} run on {listed(names)}, others are of {most}",
                "Wait for the DaemonSet's update: kubectl rollout status",
                Severity.ADVICE,
            )


def _standing(events: tuple[ClusterEvent, ...]) -> Iterator[Finding]:
    """Troubles that agents told of, as far as they stand."""
    last: dict[tuple[str, str], ClusterEvent] = {}
    for event in events:
        key = (event.name, event.reason)
        if event.kind == "Node" and (key not in last or last[key].last <= event.last):
            last[key] = event
    for (name, reason), event in sorted(last.items()):
        if reason not in _STANDING:
            continue
        other, code, remedy = _STANDING[reason]
        over = last.get((name, other))
        if over is None or over.last < event.last:
            yield Finding.of(code, f"node/{name}", event.note, remedy)
