"""Runs all checks and brings what they find into order: what causes other things comes first.

Checks stand in the order of the layers, from the driver up to the pod. Each says which others
follow from it, so of two Findings the lower one is the root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.doctor.rules import cards, kubelet, network, pod
from kube_rdma.doctor.rules.check import Check
from kube_rdma.doctor.rules.claimed_cards import listed_cards
from kube_rdma.doctor.rules.errors import outliers
from kube_rdma.model import doctor as model
from kube_rdma.model.finding import Finding, Severity

CHECKS: tuple[Check, ...] = (*cards.CHECKS, *kubelet.CHECKS, *network.CHECKS, *pod.CHECKS)
_BY_CODE = {check.code: check for check in CHECKS}
_ORDER = {check.code: place for place, check in enumerate(CHECKS)}
_SEVERITIES = tuple(Severity)


def diagnose(seen: model.Observation) -> model.Diagnosis:
    """Run all checks that are possible; return their Findings in order, and the checks not made."""
    unseen: list[model.UnseenCheck] = []
    passed: list[str] = []
    every: list[Finding] = []
    for check in CHECKS:
        needs_pod = any(part.partition(".")[0] == "pod" for part in check.needs)
        if needs_pod and seen.pod is None:
            continue  # nobody asked about a pod
        if missing := check.missing(seen):
            unseen.append(model.UnseenCheck(check.code, check.title, missing))
            continue
        findings = tuple(dict.fromkeys(check.findings(seen)))
        every += findings
        if not findings:
            passed.append(check.code)
    traced = (replace(one, follows=_root(one, every)) for one in every)
    others = pod.other_cards(seen)
    ordered = tuple(sorted(traced, key=lambda one: _place(one, others)))
    claimed, used = listed_cards(seen), pod.uses(seen)
    made = tuple(passed), tuple(unseen)
    return model.Diagnosis(ordered, *made, claimed, used, others, seen.from_files)


def _place(finding: Finding, others: Collection[str]) -> tuple[bool, bool, bool, int, int, str]:
    """Return the sort key of a Finding: roots first, of these first what keeps a pod from starting.

    Roots whose subject is in `others` come last of the roots.
    """
    return (
        bool(finding.follows),
        not model.keeps_from_starting(finding),
        finding.subject in others,
        _SEVERITIES.index(finding.severity),
        _ORDER[finding.code],
        finding.subject,
    )


def _root(finding: Finding, every: Sequence[Finding]) -> str:
    """Return the code of the Finding that is the root cause of this one, "" for a root itself.

    The first Finding that explains this one is followed up to its own root. A check explains only
    checks that stand after it in CHECKS, so this ends.
    """
    for other in every:
        check = _BY_CODE[other.code]
        near = finding.code in check.explains and other.subject == finding.subject
        explains = near or finding.code in check.spreads
        if explains and other.severity is not Severity.ADVICE:  # which asks for nothing
            return _root(other, every) or other.code
    return ""


# The Findings of many nodes: the same one is one row, with the nodes that have it.


def diagnose_fleet(answers: Iterable[model.NodeAnswer]) -> model.FleetDiagnosis:
    """Return the diagnosis of each node, and all Findings, similar ones of several nodes as one.

    Findings of one code, severity and cause are similar.
    """
    answers = tuple(answers)
    unlike = outliers([one.seen for one in answers if one.seen])
    nodes = []
    for answer in sorted(answers, key=lambda one: natural(one.node)):
        judged = None
        if answer.seen is not None:
            own = diagnose(answer.seen)
            judged = replace(own, findings=(*own.findings, *unlike.get(answer.node, ())))
        nodes.append(model.NodeDiagnosis(answer.node, judged, "" if judged else answer.why))
    places: dict[tuple[str, Severity, str], list[model.FleetPlace]] = {}
    for node in nodes:
        for one in node.diagnosis.findings if node.diagnosis else ():
            same = places.setdefault((one.code, one.severity, one.cause), [])
            same.append(model.FleetPlace(node.node, one))
    merged = []
    for (code, severity, cause), same in places.items():
        roots = [place.finding.follows for place in same]
        # It follows from another one only where it is nowhere a root itself.
        follows = "" if "" in roots else roots[0]
        merged.append(model.FleetFinding(code, severity, cause, tuple(same), follows))
    return model.FleetDiagnosis(tuple(nodes), tuple(sorted(merged, key=_turn)))


def _turn(finding: model.FleetFinding) -> tuple[bool, int, int, str]:
    """Return the sort key of a Finding: roots first, then by severity, then by number of nodes."""
    severity = _SEVERITIES.index(finding.severity)
    return bool(finding.follows), severity, -len(finding.nodes), finding.code
