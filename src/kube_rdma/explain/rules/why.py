"""Chooses the one root cause among what the existing checks found, for `kube-rdma why`.

Part of the rules of explain. The checks keep their own words, codes and remedies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kube_rdma.model.explain import Clue, Explanation, Symptom, Why
from kube_rdma.model.finding import Finding, NotSeen, Severity

_FIRST: Mapping[Symptom, tuple[str, ...]] = {  # codes that may cause a symptom of a pod that runs
    Symptom.SLOW: ("KR124", "KR125", "KR126", "KR127", "KR128", "KR129", "KR14", "KR411", "KR440"),
    Symptom.TCP: ("KR40", "KR41", "KR42", "KR43", "KR12"),
    Symptom.FEWER_SHARES: ("KR13", "KR12", "KR20"),
}
_OFFER = "resources"  # code of the finding of rules/nodes about a node that offers too little


def symptom_of(pod: Explanation | None) -> Symptom:
    """Return the symptom that an object's state shows; of a node it is its shares."""
    if pod is None:
        return Symptom.FEWER_SHARES
    if pod.phase == "Running":
        return Symptom.TCP
    return Symptom.CREATING if pod.node and pod.phase else Symptom.PENDING


def why(
    about: str,
    symptom: Symptom,
    by_source: Mapping[str, Iterable[Finding]],
    not_seen: Iterable[NotSeen] = (),
) -> Why:
    """Return the root cause, the worst of the first source; nobody is told the same twice."""
    clues: dict[str, Clue] = {}
    for source, findings in by_source.items():
        for one in findings:
            if not one.follows and one.severity is not Severity.ADVICE:
                clues.setdefault(one.problem, Clue(source, one))
    ordered = sorted(clues.values(), key=lambda one: _turn(one.finding, _FIRST.get(symptom, ())))
    root = next(iter(ordered), None)
    return Why(about, symptom, root, tuple(ordered[1:]), tuple(not_seen))


def concerned(findings: Iterable[Finding], pod: Explanation | None, node: str) -> list[Finding]:
    """Return what `kube-rdma status` finds of the pod, of its node and of the nearest to fit."""
    nodes = {node, *(one.subject for one in (pod.findings if pod else ()) if one.code == _OFFER)}
    subjects = {f"node/{name}" for name in nodes} | ({f"pod/{pod.pod}"} if pod else set())
    return [one for one in findings if one.subject in subjects]


def _turn(finding: Finding, first: Collection[str]) -> tuple[bool, bool]:
    return not finding.is_error, not finding.code.startswith(tuple(first) or ("",))
