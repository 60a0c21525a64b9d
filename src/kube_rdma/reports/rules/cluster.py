"""Judges a cluster: what is wrong, how bad it is, what to do next.

reports/gather hands in what the API server says, reports/views shows what comes out. Each Finding
has a code that stays, one sentence and the next step; docs/status.md lists the codes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from shlex import quote

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_base.plain_text import plain
from kube_rdma.attach.rules.addresses import default_routes
from kube_rdma.fabric.rules.cabling import cable_faults, cable_finding
from kube_rdma.install.rules.plan import objection
from kube_rdma.lib.phrases import listed
from kube_rdma.model import reports as model
from kube_rdma.model.fabric import CableFault, NodeCables
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.repair import BURN_IN, KEY, RepairEntry, place

# Findings of single nodes: their agents, their reports, their Events.

_OVERRULE = "See kube-rdma repair show; docs/repair.md says how to overrule it"
_OPT_OUT = "kube-rdma.io/agent"  # a node's label; with "off" presets leave the node out

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


def cluster_cables(facts: model.ClusterFacts) -> tuple[CableFault, ...]:
    """Return the faults of the cables of all nodes; none if no NodeReport expects cables."""
    return cable_faults(node_cables(facts)) if any((facts.cabling or {}).values()) else ()


def node_cables(facts: model.ClusterFacts) -> tuple[NodeCables, ...]:
    """Return the cables of all nodes that have a report, in the order of names."""
    cabling, reports = facts.cabling or {}, facts.reports or {}
    names = sorted(reports, key=natural)
    return tuple(NodeCables.of(name, reports[name], cabling.get(name, ())) for name in names)


def node_findings(facts: model.ClusterFacts) -> Iterator[Finding]:
    """Yield findings of each node in the order of names, then of several nodes, then of Events."""
    pods, reports = facts.agents, facts.reports or {}
    nodes = {node.name: node for node in facts.nodes or ()}
    for name in sorted({*nodes, *pods, *reports}):
        if name in nodes and (name in pods or name in reports):
            yield from _kubelet(nodes[name])
        yield from _repaired(nodes.get(name, NodeState(name)))
        yield from _agent(name, facts, pods.get(name, ()))
        old = list(_old(name, facts)) if name in reports else []
        yield from old
        yield from _report(name, reports.get(name))
        if name in reports and (receipt := (facts.receipts or {}).get(name)):
            yield from _firmware(name, reports[name], receipt)
        if name in nodes and name in reports and pods.get(name) and not old:
            yield from _shares(nodes[name], reports[name])
    yield from _empty(reports)
    yield from _versions(reports)
    yield from _standing(facts.events or ())


def _kubelet(node: NodeState) -> Iterator[Finding]:
    """Yield a finding if the node is not ready, for what is known of it may be outdated."""
    if not node.ready:
        problem = "The node is not ready, so its report and the state of its agent may be old"
        remedy = f"See kubectl describe node {quote(node.name)}, and the kubelet's log on it"
        yield Finding.of("NodeNotReady", f"node/{node.name}", problem, remedy)


def _repaired(node: NodeState) -> Iterator[Finding]:
    """Yield advice on a node that a RepairPolicy has tainted, with the evidence for that."""
    for taint in node.taints:
        if taint.key == KEY:
            why = plain(dict(node.annotations).get(KEY, "")) or "nobody wrote why"
            sentence = f"RepairPolicy {taint.value} has given it the taint {KEY}: {why}"
            about = f"node/{node.name}"
            yield Finding.of("NodeTainted", about, sentence, _OVERRULE, Severity.ADVICE)


def _repairs(policies: Mapping[str, Sequence[RepairEntry]]) -> Iterator[Finding]:
    """Yield advice on cards that RepairPolicies have tainted, and on what they would taint."""
    for name, entries in policies.items():
        for state, code, words in (
            ("Tainted", "CardTainted", "It has tainted single cards"),
            ("WouldTaint", "NodeNotTainted", "It is a dry run, or paused, and would taint"),
            ("OverBudget", "NodeNotTainted", "Its budget is used up, and it does not taint"),
        ):
            found = [
                one for one in entries if one.state == state and (one.card or state != "Tainted")
            ]
            places = [plain(f"{place(one)} ({one.why})") for one in found]
            if places:
                sentence, about = f"{words}: {listed(places)}", f"repairpolicy/{name}"
                yield Finding.of(code, about, sentence, _OVERRULE, Severity.ADVICE)


def _agent(
    name: str, facts: model.ClusterFacts, pods: tuple[model.ProgramPod, ...]
) -> Iterator[Finding]:
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
    roles = {workload.role for workload in facts.workloads or ()}
    if facts.pods is None or model.ProgramRole.AGENT not in roles:
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
            f"The node has a report and no agent that writes it{_why_none(name, facts)}",
            "Let the DaemonSet of the agent select the node (values agent.nodeSelector and "
            f"agent.tolerations), or delete the report: kubectl delete nodereport {quote(name)}",
        )


def _why_none(name: str, facts: model.ClusterFacts) -> str:
    """Return the end of a sentence that says why agents' DaemonSets leave a node out.

    Without a known reason it says that the report is old.
    """
    node = next((each for each in facts.nodes or () if each.name == name), NodeState(name))
    agents = [w for w in facts.workloads or () if w.reports]
    whys = [(each.title, objection(each.nodes, node)) for each in agents]
    reasons = [f"DaemonSet {title} leaves it out: the node {why}" for title, why in whys if why]
    if not reasons and dict(node.labels).get(_OPT_OUT) == "off":
        reasons = [f"the node has the label {_OPT_OUT}=off"]
    return f": {listed(reasons)}" if reasons else ", so what it says is old"


def _old(name: str, facts: model.ClusterFacts) -> Iterator[Finding]:
    """Yield a finding if a running agent has not renewed its node's report for too long."""
    age = facts.age((facts.reports or {})[name].renew_time)
    agent = next((pod for pod in facts.agents.get(name, ()) if pod.ready), None)
    ready = {node.name: node.ready for node in facts.nodes or ()}.get(name)
    if agent and ready and age is not None and model.is_old(age):
        yield Finding.of(
            "ReportOld",
            f"node/{name}",
            f"Its report is {age / 60:.0f} min old and its agent runs, which may not write it; "
            "what follows about the node may be over",
            f"See kubectl -n {quote(agent.namespace)} logs {quote(agent.name)}, and whether its "
            "role is bound: kubectl get clusterrolebindings -o wide | grep kube-rdma",
        )


def _no_report(name: str, pods: Iterable[model.ProgramPod]) -> Iterator[Finding]:
    """Yield a finding for each ready agent pod of a node that has no report."""
    for pod in pods:
        if pod.ready:
            yield Finding.of(
                "ReportMissing",
                f"node/{name}",
                f"The agent {pod.namespace}/{pod.name} runs and writes no report",
                f"See kubectl -n {quote(pod.namespace)} logs {quote(pod.name)}: "
                "it says which right its role lacks",
            )


def _report(name: str, report: model.NodeReport | None) -> Iterator[Finding]:
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
        remedy = "Do what the reason says, or leave the card out of its pool by a selector"
        yield Finding.of("CardsUnhealthy", about, f"{usable}. {cards}", remedy)
    if degraded := [f"{card.name}: {card.degraded}" for card in pooled if card.degraded]:
        remedy = f"See kube-rdma doctor {quote(about)} (KR127, KR129)"
        yield Finding.of("CardsDegraded", about, listed(degraded), remedy, Severity.ADVICE)
    if report.metrics:
        remedy = "End the program that has the port (ss -ltnp on the node), or set metrics.port"
        sentence = f"Prometheus gets no metrics of its agent: {report.metrics}"
        yield Finding.of("MetricsNotServed", about, sentence, remedy, Severity.ADVICE)
    for card in report.left_out:
        sentence = f"{card.name} is in no pool: {'; '.join(card.reasons)}"
        remedy = "Write the name that the node has into the selector (docs/config.md)"
        yield Finding.of("CardInNoPool", about, sentence, remedy, Severity.ADVICE)
    for pending in report.pending:
        remedy = "End the pods that it names, or wait for them"
        yield Finding.of("ModeChangePending", about, pending.sentence, remedy, Severity.ADVICE)


def _firmware(
    name: str, report: model.NodeReport, receipt: model.BurnInReceipt
) -> Iterator[Finding]:
    """Yield advice if cards were measured before use with another firmware than they have now."""
    then = dict(each.rpartition(" ")[::2] for each in receipt.firmware)
    now = {card.name: card.firmware for card in report.pooled if card.firmware}
    changed = [
        plain(card) for card, firmware in now.items() if then.get(card, firmware) != firmware
    ]
    if changed:
        problem = f"The firmware of {listed(changed)} is another than when the node was measured"
        remedy = f"Have it measured again: kubectl taint nodes {quote(name)} {BURN_IN}:NoSchedule"
        about = f"node/{name}"
        yield Finding.of("FirmwareChanged", about, problem, remedy, Severity.ADVICE)


def _shares(node: NodeState, report: model.NodeReport) -> Iterator[Finding]:
    """Yield a finding for each resource whose healthy shares differ between kubelet and agent."""
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


def _empty(reports: Mapping[str, model.NodeReport]) -> Iterator[Finding]:
    """Yield a finding for each resource for which no node has a card.

    A pool may lack cards on one node as long as another node has some.
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


def _spare(report: model.NodeReport) -> list[str]:
    """Return the names of the node's cards that are in no pool, with their interfaces."""
    unused = (card for card in report.cards if not card.resources and not card.gone)
    return [
        " ".join((card.name, *(f"({port.netdev})" for port in card.ports if port.netdev)))
        for card in unused
    ]


def _versions(reports: Mapping[str, model.NodeReport]) -> Iterator[Finding]:
    """Yield a finding for each version of agents that is not the most frequent one."""
    versions: dict[str, list[str]] = {}
    for name, report in sorted(reports.items()):
        versions.setdefault(report.version, []).append(name)
    most = max(versions, key=lambda version: len(versions[version]), default="")
    for version, names in versions.items():
        if version != most:
            subject = f"node/{names[0]}" if len(names) == 1 else ""
            problem = f"Agents of version {version} run on {listed(names)}, others are of {most}"
            remedy = "Wait for the DaemonSet's update: kubectl rollout status"
            yield Finding.of("AgentVersionsDiffer", subject, problem, remedy, Severity.ADVICE)


def _standing(events: tuple[model.ClusterEvent, ...]) -> Iterator[Finding]:
    """Yield findings from the agents' Events about nodes whose trouble is not over yet."""
    last: dict[tuple[str, str], model.ClusterEvent] = {}
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


# Findings of pods that wait: for shares that no node has left, or for networks.

_OURS = ("kube-rdma", "rdma")  # words of an error of a sandbox that tell whose it is


def resources(facts: model.ClusterFacts) -> Mapping[str, int]:
    """Return by resource how many healthy shares all reports have together."""
    healthy: dict[str, int] = {}
    for report in (facts.reports or {}).values():
        for pool in report.pools:
            healthy[pool.resource] = healthy.get(pool.resource, 0) + pool.healthy
    return healthy


def pod_findings(facts: model.ClusterFacts) -> Iterator[Finding]:
    """Yield findings about the pods that wait for shares, for a node or for networks."""
    words = _last_words(facts.events or ())
    ours = resources(facts)
    offered = {name for node in facts.nodes or () for name, count in node.allocatable if count}
    others = offered.difference(ours)
    for pod in facts.waiting or ():
        kept_away = list(_kept_away(pod, facts, ours))
        yield from kept_away or _short_of_shares(pod, words, ours, others)
        yield from _networks(pod, words)


def _kept_away(
    pod: model.WaitingPod, facts: model.ClusterFacts, ours: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield a finding if labels or taints keep a pod off all nodes with what it asks for."""
    wanted = [name for name in pod.resources if ours.get(name)]
    offering = [
        node
        for node in facts.nodes or ()
        if wanted and all(dict(node.allocatable).get(name) for name in wanted)
    ]
    reasons = [objection(pod.nodes, node) for node in offering]
    if pod.node or not reasons or not all(reasons):
        return
    remedy = "Add a toleration for the taint to the pod, or take the taint off nodes"
    if any("nodeSelector" in why for why in reasons):
        remedy = f"Take the label out of its nodeSelector, for {listed(wanted)} chooses the nodes; "
        remedy += "or label nodes, as NFD or preset nvidia's labeller does (docs/config.md)"
    why = " or ".join([*dict.fromkeys(reasons)][:3])
    sentence = f"Each node that offers {listed(wanted)} {why}"
    yield Finding.of("PodWaitsForNode", f"pod/{pod.title}", sentence, remedy)


def _last_words(events: Collection[model.ClusterEvent]) -> Mapping[tuple[str, str, str], str]:
    """Return the latest note of the Events about each pod, by namespace, name and reason."""
    notes: dict[tuple[str, str, str], str] = {}
    for event in sorted(events, key=lambda each: each.last):
        if event.kind == "Pod":
            notes[event.namespace, event.name, event.reason] = event.note
    return notes


def _short_of_shares(
    pod: model.WaitingPod,
    words: Mapping[tuple[str, str, str], str],
    ours: Mapping[str, int],
    others: Collection[str],
) -> Iterator[Finding]:
    """Yield a finding if the scheduler finds too few shares for a pod.

    Resources of other device plugins, in `others`, are left out.
    """
    note = words.get((pod.namespace, pod.name, "FailedScheduling"), "")
    short = [name for name in pod.resources if f"Insufficient {name}" in note]
    name = next((each for each in short if each in ours), short[0] if short else "")
    if pod.node or not name or name in others:
        return
    if ours.get(name):
        remedy = "End pods that hold shares, add nodes or cards, or raise the pool's shares"
        sentence = f"It waits for shares of {name}: {note}"
    elif name in ours:
        remedy = "Make a card of the pool healthy, or let its selectors choose cards"
        sentence = f"It waits for {name}, of which no node has a healthy share: {note}"
    else:
        sentence = f"It waits for {name}, which no node reports: {note}"
        remedy = "Compare the name with the pools of kubectl get nodereports, or install the "
        remedy += "program that offers it"
    yield Finding.of("PodWaitsForShares", f"pod/{pod.title}", sentence, remedy)


def _networks(
    pod: model.WaitingPod, words: Mapping[tuple[str, str, str], str]
) -> Iterator[Finding]:
    """Yield a finding if a pod does not start because of its networks."""
    note = words.get((pod.namespace, pod.name, "NetworksRefused"), "")
    if not note:
        sandbox = words.get((pod.namespace, pod.name, "FailedCreatePodSandBox"), "")
        note = sandbox if pod.networks and any(word in sandbox for word in _OURS) else ""
    if note:
        yield Finding.of(
            "PodWaitsForNetworks",
            f"pod/{pod.title}",
            f"Its networks cannot be made: {note}",
            f"Do what the sentence says; kubectl -n {quote(pod.namespace)} describe pod "
            f"{quote(pod.name)} has the rest",
        )


_KINDS = "Install it: kubectl apply -f config/crds"
_PLAIN = (
    "Agents of this preset write no reports, so look at the shares themselves: kubectl get nodes "
    "-o custom-columns=NODE:.metadata.name,ALLOCATABLE:.status.allocatable"
)


def findings(facts: model.ClusterFacts) -> tuple[Finding, ...]:
    """Return all findings, errors first."""
    every = (
        *_programs(facts),
        *_policies(facts.policies or ()),
        *_node_policies(facts.node_policies or ()),
        *_repairs(facts.repairs or {}),
        *node_findings(facts),
        *map(cable_finding, cluster_cables(facts)),
        *_pools(facts.pools or ()),
        *default_routes(facts.networks or (), facts.pools or ()),
        *pod_findings(facts),
        *_advice(facts),
    )
    return tuple(sorted(every, key=lambda one: not one.is_error))


# By the words of `status --wait-for`: the beginnings of the codes of findings that have to be over.
_AGENTS = ("NoAgent", "NoNodeMatches", "NodeNotReady", "Agent", "Report", "Controller")
AWAITED = {"agents": _AGENTS, "cards": (*_AGENTS, "Cards", "Shares", "Configuration"), "all": ("",)}


def awaited(wrong: Iterable[Finding], what: str) -> tuple[Finding, ...]:
    """Return the errors that keep `status --wait-for` waiting; `what` is its argument."""
    return tuple(one for one in wrong if one.is_error and one.code.startswith(AWAITED[what]))


def health(facts: model.ClusterFacts, wrong: Sequence[Finding]) -> model.ClusterHealth:
    """Return the cluster's health by its errors.

    Without errors it is UNKNOWN where a needed part is unread, or where agents write NodeReports
    and their kind is not installed.
    """
    if any(one.is_error for one in wrong):
        return model.ClusterHealth.PROBLEMS
    if facts.is_blind or facts.is_unreported:
        return model.ClusterHealth.UNKNOWN
    return model.ClusterHealth.HEALTHY


def _programs(facts: model.ClusterFacts) -> Iterator[Finding]:
    if facts.workloads is None:
        return
    agents = [w for w in facts.workloads if w.role is model.ProgramRole.AGENT]
    if not agents:
        yield Finding.of(
            "NoAgent",
            "",
            "No DaemonSet of kube-rdma agents is here",
            "helm install …, or kube-rdma render | kubectl apply -f - (docs/install.md)",
        )
    for workload in facts.workloads:
        yield from _workload(workload)
    if not any(w.role is model.ProgramRole.CONTROLLER for w in facts.workloads):
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


def _workload(workload: model.Workload) -> Iterator[Finding]:
    """Yield findings for agents on no node, controllers not ready, and an unfinished update."""
    is_agent = workload.role is model.ProgramRole.AGENT
    kind = "daemonset" if is_agent else "deployment"
    about = f"{kind}/{workload.title}"
    space, name = quote(workload.namespace), quote(workload.name)
    describe = f"kubectl -n {space} describe {kind} {name}"
    if is_agent and not workload.desired:
        problem = "Its selector and tolerations match no node, so no agent runs"
        remedy = f"Label the nodes as it asks, see {describe}"
        yield Finding.of("NoNodeMatches", about, problem, remedy)
    elif not is_agent and workload.ready < workload.desired:
        code = "ControllerNotReady"
        sentence = f"{workload.ready} of {workload.desired} replicas of the controller are ready"
        remedy = f"See {describe}, and kubectl -n {space} logs deploy/{name}"
        severity = Severity.ADVICE if workload.ready > 0 else Severity.ERROR
        yield Finding.of(code, about, sentence, remedy, severity)
    if workload.desired and workload.updated < workload.desired:
        yield Finding.of(
            "UpdateUnderWay",
            about,
            f"{workload.updated} of {workload.desired} pods are of its present template",
            f"Wait: kubectl -n {space} rollout status {kind}/{name}. "
            "With OnDelete, delete the old pods",
            Severity.ADVICE,
        )


def _policies(policies: Sequence[model.PolicyState]) -> Iterator[Finding]:
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
            sentence = "; ".join(policy.notes)
            yield Finding.of("DriversNotCurrent", about, sentence, remedy, Severity.ADVICE)


def _node_policies(policies: Sequence[model.NodePolicyState]) -> Iterator[Finding]:
    """Yield an error for each refused policy; advice if one waits, is unseen or selects no node."""
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


def _pools(pools: Sequence[model.AddressPool]) -> Iterator[Finding]:
    for pool in pools:
        about = f"ippool/{pool.name}"
        if pool.broken:
            remedy = f"See kube-rdma ip show {quote(pool.name)}, and kube-rdma ip check"
            yield Finding.of("AddressPoolBroken", about, pool.broken, remedy)
        if pool.short:
            problem = f"Nodes ask for addresses and get none: {listed(pool.short)}"
            remedy = "Add a range to the pool, or end pods that hold addresses"
            yield Finding.of("AddressPoolEmpty", about, problem, remedy)
        elif pool.scarce:
            remedy = "Add a range to the pool before it is full"
            yield Finding.of("AddressPoolNearlyFull", about, pool.scarce, remedy)


def _advice(facts: model.ClusterFacts) -> Iterator[Finding]:
    """Yield findings about optional parts that are not installed."""
    agents = [w for w in facts.workloads or () if w.role is model.ProgramRole.AGENT]
    if "NodeReport" in facts.missing:
        problem = "The kind NodeReport is not installed, so nothing is known of cards and pools"
        remedy = _PLAIN if agents and not any(w.reports for w in agents) else _KINDS
        yield Finding.of("ReportsNotInstalled", "", problem, remedy, Severity.ADVICE)
    if "NetworkAttachmentDefinition" in facts.missing and any(w.networks for w in agents):
        yield Finding.of(
            "NetworksNotInstalled",
            "",
            "The kind NetworkAttachmentDefinition is not installed, so pods cannot name a network",
            "Install Multus, or the kind alone: value crds.networkAttachmentDefinitions=true, or "
            "kubectl apply -f config/foreign/network-attachment-definitions.yaml",
            Severity.ADVICE,
        )
    if facts.guarded is False and facts.workloads and any(w.reports for w in facts.workloads):
        yield Finding.of(
            "AdmissionPolicyMissing",
            "",
            "No policy limits agents to their own nodes: a stolen token may change pods of others",
            "On Kubernetes 1.31 or newer: kubectl apply -f config/admission",
            Severity.ADVICE,
        )
    asking = [f"{w.title} has --preflight" for w in facts.workloads or () if has_preflight(w)]
    asking += [f"{pod.title} asks for a preflight" for pod in facts.waiting or () if pod.preflight]
    no_kind = "ValidatingAdmissionPolicyBinding" in facts.missing
    if asking and (no_kind or facts.measured is False):
        problem = f"{listed(asking)}, and no policy adds it to pods: agents refuse those that ask, "
        problem += "except pods with hostNetwork, which start unmeasured"
        remedy = "On Kubernetes 1.30 or newer install again with controller.preflight=true"
        yield Finding.of("PreflightPolicyMissing", "", problem, remedy, Severity.ADVICE)


def has_preflight(workload: model.Workload) -> bool:
    """Decide whether a workload is a controller that lets gangs measure before they start."""
    return workload.role is model.ProgramRole.CONTROLLER and says(workload.words, "--preflight")


# Recognizes kube-rdma's programs by what their containers run, for a DaemonSet may have the name of
# the plugin that it replaced.

_ISOLATION = "--namespace-isolation"
_USUAL = "default,kube-system"  # of the agent's option without a list
_COMMAND = "kube-rdma"
_MARK = "rdma"  # in the name of an image that was renamed, or else of its workload


def program_role(template: model.ProgramTemplate) -> model.ProgramRole | None:
    """Return which of our programs a container runs; None if it runs another one.

    A container without a command runs its image's own. Of an image named kube-rdma that is the
    agent: examples/s2-scc and examples/s3-network start it so.
    """
    words = template.words
    image = template.image.rpartition("/")[2]  # a registry's name says nothing of what is in it
    if words and words[0].rpartition("/")[2] == _COMMAND:
        words = words[1:]
        if not words:
            return None
    elif not words and _COMMAND in image:
        return model.ProgramRole.AGENT
    elif _MARK not in image + template.workload:
        return None
    return next((role for role in model.ProgramRole if words[:1] == (role.value,)), None)


def programs(workloads: Iterable[model.Workload]) -> tuple[model.Workload, ...]:
    """Return the workloads that run agents or controllers, with what their options say."""
    found = []
    for each in workloads:
        networks = says(each.words, "--networks")
        # Of the role node alone an agent labels its node and reports nothing.
        reports = all(says(each.words, "--role", role) for role in ("node", "plugin"))
        if role := program_role(each.template):
            found.append(replace(each, role=role, networks=networks, reports=reports))
    return tuple(found)


def serves_cards(template: model.ProgramTemplate) -> bool:
    """Decide whether a container runs an agent that offers cards, and does not only label nodes."""
    words = template.words
    is_labeller = says(words, "--role", "node") and not says(words, "--role", "plugin")
    return program_role(template) is model.ProgramRole.AGENT and not is_labeller


def says(words: Sequence[str], option: str, value: str = "") -> bool:
    """Decide whether a command line has an option, with this value if one is given."""
    if not value:
        return option in words
    return f"{option}={value}" in words or (option, value) in pairwise(words)


def global_namespaces(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the namespaces whose networks an agent's options let all pods use; None: all."""
    for word, following in pairwise((*words, "")):
        option, equals, text = word.partition("=")
        if option == _ISOLATION:
            alone = not following or following.startswith("-")
            names = text if equals else _USUAL if alone else following
            return tuple(filter(None, map(str.strip, names.split(","))))
    return None
