"""Shows a Diagnosis, of a node or of all nodes, for people and programs: `kube-rdma doctor`.

Roots come first, each with evidence, cause and fix, and the codes that follow from it. Last come
what was not seen, where it matters, and one line that sums it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from kube_base.plain_text import ended
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.lib.phrases import listed
from kube_rdma.model import doctor as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.finding import Finding, Severity

_PROGRAMS = 3  # that are named; a job may have a hundred
_NAMES = 8  # nodes and subjects that are named in a line; -o json has all of them
_INDENT = "    "
_FOLLOWING = " " * len("    Cause  ")


# A node.


def doctor_page(
    seen: model.Observation, diagnosis: model.Diagnosis, *, verbose: bool = False
) -> page.Page:
    """Return the page of a node's diagnosis, and of a pod on it if one was asked about.

    What was not checked is named if `verbose`, or if that is the only result.
    """
    every = [one for one in diagnosis.findings if not one.follows]
    roots = [one for one in every if one.subject not in diagnosis.elsewhere]
    is_result = diagnosis.is_blind and not diagnosis.ill  # exit code 6
    cards = seen.survey.devices if seen.survey else ()
    ports = {port.netdev for card in cards for port in card.ports}
    names = {*(card.name for card in cards), *(card.pci for card in cards), *ports}
    alike = page.folded(roots, frozenset(filter(None, names)))
    parts = [tuple(_root_parts(one, others, diagnosis)) for one, others in alike]
    count = sum(map(model.keeps_from_starting, roots))
    return (
        *parts[:count],
        (page.Sentence(_head(seen), "    "),),
        tuple(_claimed(diagnosis)),
        tuple(_uses(diagnosis)),
        *parts[count:],
        tuple(_elsewhere(seen, len(every) - len(roots))),
        tuple(_unseen(seen, diagnosis)) if verbose or is_result else (),
        (page.Sentence(_verdict(diagnosis)),),
    )


def doctor_document(seen: model.Observation, diagnosis: model.Diagnosis) -> dict[str, object]:
    """Return the diagnosis as JSON values. Keys are stable: they are added to, never renamed."""
    findings = [
        json_object(
            one,
            "code",
            "severity",
            about=one.subject,
            evidence=one.problem,
            cause=one.cause,
            fix=one.remedy,
            follows=one.follows or None,
        )
        for one in diagnosis.findings
    ]
    claimed = [
        json_object(one, without=("rdma",), card=one.card or None, rdmaDevice=one.rdma or None)
        for one in diagnosis.claimed
    ]
    uses = [
        json_object(one, "container", pinnedBytes=one.pinned, queuePairs=one.pairs)
        for one in diagnosis.uses
    ]
    return {
        "node": seen.node,
        "pod": seen.pod.title if seen.pod else None,
        "taken": seen.taken,
        "findings": findings,
        "claimed": claimed,
        "uses": uses,
        "passed": list(diagnosis.passed),
        "notChecked": json_list(diagnosis.unseen),
        "notSeen": json_list(seen.not_seen),
    }


def _claimed(diagnosis: model.Diagnosis) -> Iterator[page.Part]:
    """Yield sentences about the cards that the pod has by claims, one for each driver.

    The sentence of a foreign driver says what is not checked.
    """
    for driver in dict.fromkeys(one.driver for one in diagnosis.claimed):
        mine = (one for one in diagnosis.claimed if one.driver == driver)
        cards = dict.fromkeys(
            f"{one.rdma or one.device}{f' ({one.card})' if one.card else ''} in {one.container}"
            for one in mine
        )
        text = f"Cards by claims of driver {driver}: {', '.join(cards)}."
        if driver != DRIVER:
            text += (
                " Not checked: whether they have the networks, addresses and MTU that their claims "
                "ask for; only the driver knows its parameters."
            )
        yield page.Sentence(text, "    ")


def _uses(diagnosis: model.Diagnosis) -> Iterator[page.Part]:
    """Yield a sentence for each container that was seen to have queue pairs or pinned memory."""
    for use in diagnosis.uses:
        words = [
            f"{page.counted(one.count, f'{one.type} queue pair')} on {one.device}"
            + (f" of {listed(one.programs, _PROGRAMS)}" if one.programs else "")
            + f", {one.ready} connected"
            for one in use.pairs or ()
        ]
        if use.pinned:
            words.append(f"{use.pinned / (1 << 20):.1f} MiB of memory pinned")
        if words:
            other = f" No queue pair on {', '.join(use.unused)}." if use.unused else ""
            yield page.Sentence(f"In use by {use.container}: {'; '.join(words)}.{other}", "    ")


def _head(seen: model.Observation) -> str:
    where = f"{seen.pod.title} on {seen.node}" if seen.pod else f"node {seen.node}"
    facts = [where]
    if seen.survey is not None:
        facts.append(page.counted(len(seen.survey.devices), "RDMA device"))
        facts.append(f"namespace mode {seen.survey.namespace_mode}")
    if versions := seen.versions:
        named = {"Linux": versions.kernel, "Kubernetes": versions.kubelet}
        named["vpc-cni"] = versions.vpc_cni
        facts += (f"{name} {version}" for name, version in named.items() if version)
    if seen.runtime:
        facts.append(f"{seen.runtime.name} {seen.runtime.version}")
    return " · ".join(facts)


def _root_parts(
    root: Finding, others: Sequence[str], diagnosis: model.Diagnosis
) -> Iterator[page.Part]:
    """Yield the lines of a root Finding: what was seen, cause, fix, and what follows from it."""
    yield page.titled(page.MARKS[root.severity], root)
    yield from page.labelled({"Seen": root.problem, "Cause": root.cause, "Fix": root.remedy})
    yield from page.also(others)
    after = [one for one in diagnosis.findings if one.follows == root.code]
    is_first = root == next(one for one in diagnosis.findings if one.code == root.code)
    if after and is_first:
        names = dict.fromkeys(f"{one.code} {one.subject}".rstrip() for one in after)
        yield page.Sentence(f"{_FOLLOWING}and so: {', '.join(names)}", f"{_FOLLOWING}  ")


def _elsewhere(seen: model.Observation, count: int) -> Iterator[page.Part]:
    """Yield one line that counts Findings about cards that the pod does not hold."""
    if count:
        about = f"And {count} about other cards of {seen.node}"
        yield page.Sentence(f"{about}: kube-rdma doctor {quote(f'node/{seen.node}')}", "    ")


def _unseen(seen: model.Observation, diagnosis: model.Diagnosis) -> Iterator[page.Part]:
    if diagnosis.unseen:
        names = ", ".join(f"{one.title} ({one.code})" for one in diagnosis.unseen)
        yield page.Sentence(f"? Not checked: {names}.", "    ", page.PageState.UNKNOWN)
    yield from page.not_seen(seen.not_seen)


def _verdict(diagnosis: model.Diagnosis) -> str:
    roots = [one for one in diagnosis.findings if not one.follows]
    errors = sum(one.is_error for one in roots)
    others = len(roots) - errors
    rest = ""
    if diagnosis.from_files:
        rest = "; only cards were judged"
    elif diagnosis.unseen:
        rest = f"; {page.counted(len(diagnosis.unseen), 'check')} could not be made (--verbose)"
    if errors:
        return f"{page.counted(errors, 'error')}, {page.counted(others, 'note')}{rest}."
    if others:
        much = "Too little was seen" if diagnosis.is_blind else "No error"
        return f"{much}, {page.counted(others, 'note')}{rest}."
    if diagnosis.is_blind:
        return f"Too little was seen to rule out problems{rest}."
    return f"Nothing is wrong in what was seen{rest}."


# All nodes: `kube-rdma doctor --all-nodes`.


def fleet_page(fleet: model.FleetDiagnosis) -> page.Page:
    """Return the page about several nodes: root Findings, and nodes that were hardly seen."""
    roots = [one for one in fleet.findings if not one.follows]
    answered = sum(one.diagnosis is not None for one in fleet.nodes)
    nodes = page.counted(len(fleet.nodes), "node")
    return (
        (page.Line(f"{nodes} with an agent · {answered} answered"),),
        *(tuple(_fleet_root_parts(one, fleet)) for one in roots),
        tuple(_dark(fleet.nodes)),
        (page.Sentence(_fleet_verdict(fleet, roots)),),
    )


def fleet_document(fleet: model.FleetDiagnosis) -> dict[str, object]:
    """Return all nodes' diagnoses as JSON values. Keys are stable: only added to, never renamed."""
    nodes = []
    for node in fleet.nodes:
        own = node.diagnosis
        nodes.append(
            {
                "node": node.node,
                "answered": own is not None,
                "why": node.why or None,
                "errors": sum(one.is_error for one in own.findings) if own else None,
                "passed": list(own.passed) if own else [],
                "notChecked": json_list(own.unseen) if own else [],
            }
        )
    findings = [
        json_object(
            one,
            "code",
            "severity",
            "cause",
            follows=one.follows or None,
            count=len(one.nodes),
            nodes=one.nodes,
            places=[
                {"node": at.node, "about": of.subject, "evidence": of.problem, "fix": of.remedy}
                for at in one.places
                for of in (at.finding,)
            ],
        )
        for one in fleet.findings
    ]
    return {"nodes": nodes, "findings": findings}


def _fleet_root_parts(root: model.FleetFinding, fleet: model.FleetDiagnosis) -> Iterator[page.Part]:
    """Yield the lines of a root Finding of several nodes: its nodes, evidence and consequences."""
    subjects = _some(dict.fromkeys(place.finding.subject for place in root.places))
    count = f"{len(root.nodes)} of {len(fleet.nodes)} nodes"
    mark = page.MARKS[root.severity]
    yield page.Line(f"{mark} {root.code}  {count}  {subjects}".rstrip(), page.state_of(mark))
    first = root.places[0]
    differs = any(place.finding.problem != first.finding.problem for place in root.places)
    texts = {
        "Nodes": _some(root.nodes),
        "Seen": f"{f'{first.node}: ' if differs else ''}{first.finding.problem}",
        "Cause": root.cause,
        "Fix": first.finding.remedy,
    }
    yield from page.labelled(texts)
    after = [one.code for one in fleet.findings if one.follows == root.code]
    if after and root == next(one for one in fleet.findings if one.code == root.code):
        yield page.Line(f"{_INDENT}       and so: {', '.join(dict.fromkeys(after))}")


def _dark(nodes: Sequence[model.NodeDiagnosis]) -> Iterator[page.Sentence]:
    """Yield a line for each reason why too little was seen of nodes, with their names."""
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        if node.is_dark:
            blind = "Most checks could not be made; see kube-rdma doctor node/NAME"
            why = blind if node.diagnosis else node.why
            # A reason that names its node is the same reason on another one.
            reasons.setdefault(why.replace(node.node, "NODE"), []).append(node.node)
    for why, names in reasons.items():
        reason = why.replace("NODE", names[0]) if len(names) == 1 else why
        text = f"? Not seen: {_some(names)}. {ended(reason)}"
        yield page.Sentence(text, _INDENT, page.PageState.UNKNOWN)


def _fleet_verdict(fleet: model.FleetDiagnosis, roots: Sequence[model.FleetFinding]) -> str:
    errors = sum(one.severity is Severity.ERROR for one in roots)
    ill = sum(bool(one.diagnosis and one.diagnosis.ill) for one in fleet.nodes)
    dark = sum(one.is_dark for one in fleet.nodes)
    rest = f"; of {page.counted(dark, 'node')} too little was seen" if dark else ""
    if errors:
        others = page.counted(len(roots) - errors, "note")
        return f"{page.counted(errors, 'error')} on {page.counted(ill, 'node')}, {others}{rest}."
    if dark or not fleet.nodes:
        return f"Too little was seen to rule out problems{rest}."
    notes = f", {page.counted(len(roots), 'note')}" if roots else ""
    return f"No error on {page.counted(len(fleet.nodes), 'node')}{notes}."


def _some(names: Iterable[str]) -> str:
    return listed(list(filter(None, names)), _NAMES)
