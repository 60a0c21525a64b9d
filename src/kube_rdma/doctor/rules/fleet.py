"""Brings the Findings of many nodes together: the same one is one row, with the nodes that have it.

Behind doctor/rules/diagnose, which judges each node by itself. Two Findings are the same when code,
severity and cause are: the evidence names an interface or a number, which differs from node to
node while the fault and its fix are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.rules.outliers import outliers
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.fleet import (
    FleetDiagnosis,
    FleetFinding,
    FleetPlace,
    NodeAnswer,
    NodeDiagnosis,
)

_SEVERITIES = tuple(Severity)


def diagnose_fleet(answers: Iterable[NodeAnswer]) -> FleetDiagnosis:
    """What is wrong with each node that answered, and what they have in common."""
    answers = tuple(answers)
    unlike = outliers([one.seen for one in answers if one.seen])
    judged = (_of_node(one, unlike.get(one.node, ())) for one in answers)
    nodes = sorted(judged, key=lambda one: natural(one.node))
    places: dict[tuple[str, Severity, str], list[FleetPlace]] = {}
    for place in _places(nodes):
        finding = place.finding
        places.setdefault((finding.code, finding.severity, finding.cause), []).append(place)
    merged = (
        FleetFinding(code, severity, cause, tuple(same), _root(same))
        for (code, severity, cause), same in places.items()
    )
    return FleetDiagnosis(tuple(nodes), tuple(sorted(merged, key=_turn)))


def _of_node(answer: NodeAnswer, unlike: tuple[Finding, ...]) -> NodeDiagnosis:
    """What its own checks find, and behind it what other nodes have otherwise."""
    if answer.seen is None:
        return NodeDiagnosis(answer.node, why=answer.why)
    own = diagnose(answer.seen)
    return NodeDiagnosis(answer.node, replace(own, findings=(*own.findings, *unlike)))


def _places(nodes: Iterable[NodeDiagnosis]) -> Iterator[FleetPlace]:
    for node in nodes:
        for finding in node.diagnosis.findings if node.diagnosis else ():
            yield FleetPlace(node.node, finding)


def _root(places: Iterable[FleetPlace]) -> str:
    """The root of what is nowhere a root itself."""
    roots = [place.finding.follows for place in places]
    return "" if "" in roots else roots[0]


def _turn(finding: FleetFinding) -> tuple[bool, int, int, str]:
    """Roots before what follows, then by severity, then what most nodes have."""
    severity = _SEVERITIES.index(finding.severity)
    return bool(finding.follows), severity, -len(finding.nodes), finding.code
