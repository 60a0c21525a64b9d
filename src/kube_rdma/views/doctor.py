"""What a doctor found, for people and programs: `kube-rdma doctor`.

Roots first, each with evidence, cause and fix; behind them in short what follows from them; last
what was not seen, and one line that says it all. Marks are those of views/reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_rdma.model.doctor import Ailment, Blank, Diagnosis, Gravity, Observation
from kube_rdma.model.frozen import asdict
from kube_rdma.views.text import wrapped

_MARKS: Mapping[Gravity, str] = {Gravity.ERROR: "✗", Gravity.WARNING: "!", Gravity.ADVICE: "·"}
_LABELS = ("Seen", "Cause", "Fix")
_WIDEST = max(map(len, _LABELS))


def doctor_text(seen: Observation, diagnosis: Diagnosis, width: int = 100) -> str:
    """The whole; `width` in columns."""
    roots = [one for one in diagnosis.ailments if not one.follows]
    blocks = [
        [_head(seen)],
        *(list(_root_lines(one, diagnosis, width)) for one in roots),
        list(_unseen_lines(seen, diagnosis, width)),
        wrapped(_verdict(diagnosis), width, ""),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def doctor_document(seen: Observation, diagnosis: Diagnosis) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    return {
        "node": seen.node,
        "pod": seen.pod.title if seen.pod else None,
        "taken": seen.taken,
        "findings": [
            {
                "code": one.code,
                "severity": one.gravity.value,
                "about": one.about,
                "evidence": one.evidence,
                "cause": one.cause,
                "fix": one.fix,
                "follows": one.follows or None,
            }
            for one in diagnosis.ailments
        ],
        "passed": list(diagnosis.passed),
        "notSeen": [asdict(one) for one in diagnosis.unseen],
        "blanks": [asdict(one) for one in seen.blanks],
    }


def _head(seen: Observation) -> str:
    where = f"{seen.pod.title} on {seen.node}" if seen.pod else f"node {seen.node}"
    facts = [where]
    if seen.survey is not None:
        count = len(seen.survey.devices)
        facts.append(f"{count} RDMA device{'' if count == 1 else 's'}")
        facts.append(f"namespace mode {seen.survey.namespace_mode}")
    if seen.versions and seen.versions.kernel:
        facts.append(f"Linux {seen.versions.kernel}")
    if seen.versions and seen.versions.kubelet:
        facts.append(f"Kubernetes {seen.versions.kubelet}")
    if seen.runtime:
        facts.append(f"{seen.runtime.name} {seen.runtime.version}")
    return " · ".join(facts)


def _root_lines(root: Ailment, diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """A root, and the codes that follow from it."""
    yield f"{_MARKS[root.gravity]} {root.code}  {root.about}".rstrip()
    for label, sentence in zip(_LABELS, (root.evidence, root.cause, root.fix), strict=True):
        lead = f"    {label:<{_WIDEST}}  "
        yield from wrapped(f"{lead}{sentence}", width, " " * len(lead))
    after = [one for one in diagnosis.ailments if one.follows == root.code]
    is_first = root == next(one for one in diagnosis.ailments if one.code == root.code)
    if after and is_first:
        names = dict.fromkeys(f"{one.code} {one.about}".rstrip() for one in after)
        lead = f"    {'':<{_WIDEST}}  "
        yield from wrapped(f"{lead}and so: {', '.join(names)}", width, f"{lead}  ")


def _unseen_lines(seen: Observation, diagnosis: Diagnosis, width: int) -> Iterator[str]:
    if diagnosis.unseen:
        names = ", ".join(f"{one.title} ({one.code})" for one in diagnosis.unseen)
        yield from wrapped(f"? Not checked: {names}.", width, "    ")
    for blank in seen.blanks:
        yield from wrapped(f"? Not seen: {_blank(blank)}", width, "    ")


def _blank(blank: Blank) -> str:
    why = blank.why if blank.why.endswith(".") else f"{blank.why}."
    return f"{blank.part}. {why}"


def _verdict(diagnosis: Diagnosis) -> str:
    roots = [one for one in diagnosis.ailments if not one.follows]
    errors = sum(one.gravity is Gravity.ERROR for one in roots)
    others = len(roots) - errors
    checks = f"{len(diagnosis.passed)} checks passed"
    if diagnosis.unseen:
        checks += f", {len(diagnosis.unseen)} could not be made"
    if errors:
        return f"{_counted(errors, 'error')}, {_counted(others, 'note')}; {checks}."
    if others:
        much = "Too little was seen" if diagnosis.is_blind else "No error"
        return f"{much}, {_counted(others, 'note')}; {checks}."
    if diagnosis.is_blind:
        return f"Too little was seen to rule out problems; {checks}."
    return f"Nothing is wrong in what was seen; {checks}."


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
