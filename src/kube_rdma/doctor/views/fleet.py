"""What a doctor found on many nodes, for people and programs: `kube-rdma doctor --all-nodes`.

    the same Finding on some nodes ─► one block, with a count and their names; the worst first

Behind the blocks of roots come nodes that did not answer, and one line that says it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_base.frozen import asdict
from kube_rdma.doctor.views.report import MARKS
from kube_rdma.lib.finding_lines import counted, ended, labelled
from kube_rdma.lib.page import Line, Page, PageState, Part, Sentence, state_of
from kube_rdma.lib.page_text import first_names
from kube_rdma.model.fleet import FleetDiagnosis, FleetFinding, FleetPlace, NodeDiagnosis

_NAMES = 8  # nodes and subjects that are named in a line; -o json has all of them
_INDENT = "    "


def fleet_page(fleet: FleetDiagnosis) -> Page:
    """The whole."""
    roots = [one for one in fleet.findings if not one.follows]
    return (
        (Line(_head(fleet)),),
        *(tuple(_root_parts(one, fleet)) for one in roots),
        tuple(_dark(fleet.nodes)),
        (Sentence(_verdict(fleet, roots)),),
    )


def fleet_document(fleet: FleetDiagnosis) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    return {
        "nodes": [_node(one) for one in fleet.nodes],
        "findings": [
            {
                "code": one.code,
                "severity": one.severity.value,
                "cause": one.cause,
                "follows": one.follows or None,
                "count": len(one.nodes),
                "nodes": list(one.nodes),
                "places": [_place(place) for place in one.places],
            }
            for one in fleet.findings
        ],
    }


def _node(node: NodeDiagnosis) -> dict[str, object]:
    """A node, which was seen if it has a diagnosis."""
    diagnosis = node.diagnosis
    return {
        "node": node.node,
        "answered": diagnosis is not None,
        "why": node.why or None,
        "errors": sum(one.is_error for one in diagnosis.findings) if diagnosis else None,
        "passed": list(diagnosis.passed) if diagnosis else [],
        "notSeen": [asdict(one) for one in diagnosis.unseen] if diagnosis else [],
    }


def _place(place: FleetPlace) -> dict[str, object]:
    finding = place.finding
    return {
        "node": place.node,
        "about": finding.subject,
        "evidence": finding.problem,
        "fix": finding.remedy,
    }


def _head(fleet: FleetDiagnosis) -> str:
    answered = sum(one.diagnosis is not None for one in fleet.nodes)
    return f"{counted(len(fleet.nodes), 'node')} with an agent · {answered} answered"


def _root_parts(root: FleetFinding, fleet: FleetDiagnosis) -> Iterator[Part]:
    """A root with its nodes, the evidence of the first, and the codes that follow from it."""
    subjects = _some(dict.fromkeys(place.finding.subject for place in root.places))
    count = f"{len(root.nodes)} of {len(fleet.nodes)} nodes"
    mark = MARKS[root.severity]
    yield Line(f"{mark} {root.code}  {count}  {subjects}".rstrip(), state_of(mark))
    first = root.places[0]
    differs = any(place.finding.problem != first.finding.problem for place in root.places)
    texts = {
        "Nodes": _some(root.nodes),
        "Seen": f"{f'{first.node}: ' if differs else ''}{first.finding.problem}",
        "Cause": root.cause,
        "Fix": first.finding.remedy,
    }
    yield from labelled(texts)
    after = [one.code for one in fleet.findings if one.follows == root.code]
    if after and root == next(one for one in fleet.findings if one.code == root.code):
        yield Line(f"{_INDENT}       and so: {', '.join(dict.fromkeys(after))}")


def _dark(nodes: Sequence[NodeDiagnosis]) -> Iterator[Sentence]:
    """Nodes of which too little was seen; those with one reason in one line."""
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
        yield Sentence(text, _INDENT, PageState.UNKNOWN)


def _verdict(fleet: FleetDiagnosis, roots: Sequence[FleetFinding]) -> str:
    errors = sum(one.severity.value == "error" for one in roots)
    ill = sum(bool(one.diagnosis and one.diagnosis.ill) for one in fleet.nodes)
    dark = sum(one.is_dark for one in fleet.nodes)
    rest = f"; of {counted(dark, 'node')} too little was seen" if dark else ""
    if errors:
        others = counted(len(roots) - errors, "note")
        return f"{counted(errors, 'error')} on {counted(ill, 'node')}, {others}{rest}."
    if dark or not fleet.nodes:
        return f"Too little was seen to rule out problems{rest}."
    notes = f", {counted(len(roots), 'note')}" if roots else ""
    return f"No error on {counted(len(fleet.nodes), 'node')}{notes}."


def _some(names: Iterable[str]) -> str:
    return first_names(list(filter(None, names)), _NAMES)
