"""Runs all checks and brings what they find into order: what causes other things comes first.

Last of doctor/rules. Checks stand in the order of the layers, from the driver up to the pod, and
each says which others follow from it; so of two Findings the lower one is the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.doctor.rules import cards, kubelet, network, pod
from kube_rdma.doctor.rules.check import Check
from kube_rdma.doctor.rules.claimed_cards import listed_cards
from kube_rdma.doctor.rules.errors import outliers
from kube_rdma.doctor.rules.pod import uses
from kube_rdma.model.doctor import (
    Diagnosis,
    FleetDiagnosis,
    FleetFinding,
    FleetPlace,
    NodeAnswer,
    NodeDiagnosis,
    Observation,
    UnseenCheck,
)
from kube_rdma.model.finding import Finding, Severity

CHECKS: tuple[Check, ...] = (
    *cards.CHECKS,
    *kubelet.CHECKS,
    *network.CHECKS,
    *pod.CHECKS,
)
_BY_CODE = {check.code: check for check in CHECKS}
_ORDER = {check.code: place for place, check in enumerate(CHECKS)}
_SEVERITIES = tuple(Severity)


def diagnose(seen: Observation) -> Diagnosis:
    """What is wrong: roots first, the most severe before others, what follows behind them."""
    unseen: list[UnseenCheck] = []
    passed: list[str] = []
    every: list[Finding] = []
    for check in CHECKS:
        if _is_of_pod(check) and seen.pod is None:
            continue  # nobody asked about a pod
        if missing := check.missing(seen):
            unseen.append(UnseenCheck(check.code, check.title, missing))
            continue
        findings = tuple(dict.fromkeys(check.findings(seen)))
        every += findings
        if not findings:
            passed.append(check.code)
    ordered = tuple(_ordered(every))
    return Diagnosis(ordered, tuple(passed), tuple(unseen), listed_cards(seen), uses(seen))


def _is_of_pod(check: Check) -> bool:
    return any(part.partition(".")[0] == "pod" for part in check.needs)


def _ordered(every: Sequence[Finding]) -> list[Finding]:
    traced = [replace(one, follows=_root(one, every)) for one in every]
    return sorted(traced, key=_place)


def _place(finding: Finding) -> tuple[bool, int, int, str]:
    return (
        bool(finding.follows),
        _SEVERITIES.index(finding.severity),
        _ORDER[finding.code],
        finding.subject,
    )


def _root(finding: Finding, every: Sequence[Finding]) -> str:
    """The code of the root: of the first Finding that explains this one, and so on; "" for a root.

    A check explains only checks behind it, so this ends.
    """
    first = next(_explaining(finding, every), None)
    return (_root(first, every) or first.code) if first else ""


def _explaining(finding: Finding, every: Sequence[Finding]) -> Iterator[Finding]:
    """Advice explains nothing, for it asks for nothing."""
    for other in every:
        check = _BY_CODE[other.code]
        near = finding.code in check.explains and other.subject == finding.subject
        if (near or finding.code in check.spreads) and other.severity is not Severity.ADVICE:
            yield other


# Brings the Findings of many nodes together: the same one is one row, with the nodes that have
# it.


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
        FleetFinding(code, severity, cause, tuple(same), _fleet_root(same))
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


def _fleet_root(places: Iterable[FleetPlace]) -> str:
    """The root of what is nowhere a root itself."""
    roots = [place.finding.follows for place in places]
    return "" if "" in roots else roots[0]


def _turn(finding: FleetFinding) -> tuple[bool, int, int, str]:
    """Roots before what follows, then by severity, then what most nodes have."""
    severity = _SEVERITIES.index(finding.severity)
    return bool(finding.follows), severity, -len(finding.nodes), finding.code
