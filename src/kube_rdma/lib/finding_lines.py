"""Findings on a page, as far as the commands print them alike: doctor, status, explain, checks.

Each command has its own marks and labels, and says in its own view what comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.lib.page import Line, PageState, Sentence, state_of
from kube_rdma.model.finding import Finding, NotSeen

_INDENT = "    "
_FEW = 3  # findings that are alike and are shown one by one


def titled(mark: str, finding: Finding) -> Line:
    """The first line of a Finding: its code, and what it is about."""
    return Line(f"{mark} {finding.code}  {finding.subject}".rstrip(), state_of(mark))


def labelled(texts: Mapping[str, str]) -> Iterator[Sentence]:
    """A text behind each label, the texts below each other."""
    widest = max(map(len, texts))
    for label, text in texts.items():
        lead = f"{_INDENT}{label:<{widest}}  "
        yield Sentence(f"{lead}{text}", " " * len(lead))


def sentence(finding: Finding) -> str:
    """A Finding in one line: where, what and what to do."""
    place = f"{finding.subject}: " if finding.subject else ""
    remedy = f" {finding.remedy}." if finding.remedy else ""
    return f"{place}{finding.problem}.{remedy}"


def folded(
    findings: Iterable[Finding], names: Iterable[str] = ()
) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """Findings; those that say the same of more than three objects as one, with the others' names.

    Two are alike where only their subjects differ, and `names` that belong to these.
    """
    every = tuple(findings)
    words = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")
    keys = [_without_names(one, words) for one in every]
    alike: dict[Finding, list[Finding]] = {}
    for key, finding in zip(keys, every, strict=True):
        alike.setdefault(key, []).append(finding)
    for key, finding in zip(keys, every, strict=True):
        group = alike[key]
        if len(group) <= _FEW:
            yield finding, ()
        elif finding is group[0]:
            yield finding, tuple(one.subject for one in group[1:])


def _without_names(finding: Finding, words: re.Pattern[str]) -> Finding:
    """What a Finding says, whomever it is about."""
    name = finding.subject.rpartition("/")[2]

    def plain(text: str) -> str:
        return words.sub("…", text.replace(name, "…") if name else text)

    return replace(
        finding,
        subject="…" if name else "",
        problem=plain(finding.problem),
        cause=plain(finding.cause),
        remedy=plain(finding.remedy),
        path=(),
    )


def also(subjects: Sequence[str]) -> Iterator[Sentence]:
    """A line that names the other objects of which a Finding says the same."""
    if subjects:
        names = sorted((subject.rpartition("/")[2] for subject in subjects), key=natural)
        text = f"{_INDENT}The same holds for {len(names)} more: {', '.join(names)}."
        yield Sentence(text, _INDENT)


def located(finding: Finding) -> dict[str, str]:
    """The same as JSON values."""
    return {"where": finding.subject, "problem": finding.problem, "remedy": finding.remedy}


def not_seen(parts: Iterable[NotSeen], verb: str = "seen") -> Iterator[Sentence]:
    """What could not be seen, and why."""
    for hidden in parts:
        text = f"? Not {verb}: {hidden.part}. {ended(hidden.why)}"
        yield Sentence(text, _INDENT, PageState.UNKNOWN)


def counted(count: int, word: str) -> str:
    """A number of things."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def ended(text: str) -> str:
    """A sentence with its stop."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
