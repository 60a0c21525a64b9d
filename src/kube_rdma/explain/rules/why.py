"""Chooses the root cause among what the existing checks found, for `kube-rdma why`.

The checks keep their own words, codes and remedies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_rdma.model.explain import Explanation
from kube_rdma.model.finding import Finding, Severity

PENDING, CREATING, TCP, SLOW, SHARES = SYMPTOMS = (
    *("Pending", "ContainerCreating"),
    *("tcp", "slow", "fewer-shares"),  # in place of RDMA; than cards
)
_FIRST: Mapping[str, tuple[str, ...]] = {  # codes of what may cause a symptom
    TCP: ("KR40", "KR41", "KR42", "KR43", "KR12"),
    SLOW: ("KR124", "KR125", "KR126", "KR127", "KR128", "KR129", "KR14", "KR411", "KR440"),
    SHARES: ("KR13", "KR12", "KR20"),
}
_OFFER = "resources"  # code of the finding of rules/nodes about a node that offers too little


def symptom_of(pod: Explanation | None) -> str:
    """Return the symptom that a pod's state shows; without a pod it is that of missing shares."""
    if pod is None:
        return SHARES
    if pod.phase in ("", "Pending"):
        return CREATING if pod.node and pod.phase else PENDING
    return TCP  # its containers run, or have run


def concerned(findings: Iterable[Finding], pod: Explanation | None, node: str) -> list[Finding]:
    """Return the Findings about the pod, its node, or the node that is nearest to fit."""
    own = pod.findings if pod else ()
    names = {f"node/{name}" for name in (node, *(one.subject for one in own if one.code == _OFFER))}
    return [one for one in findings if one.subject in names or (pod and one.subject == pod.title)]


def causes(symptom: str, clues: Iterable[tuple[str, Finding]]) -> tuple[tuple[str, Finding], ...]:
    """Return root Findings with their sources, each once: errors first, then what fits the symptom.

    Advice is left out.
    """
    roots: dict[str, tuple[str, Finding]] = {}
    for source, one in clues:
        if not one.follows and one.severity is not Severity.ADVICE:
            roots.setdefault(one.problem, (source, one))
    first = _FIRST.get(symptom, ("",))
    turn = sorted(roots.values(), key=lambda clue: not clue[1].code.startswith(first))
    return tuple(sorted(turn, key=lambda clue: not clue[1].is_error))
