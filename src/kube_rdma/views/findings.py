"""Findings on a page, as far as the commands print them alike: doctor, status, explain, checks.

Each command has its own marks and labels, and says in its own view what comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kube_rdma.model.finding import Finding, NotSeen
from kube_rdma.views.text import wrapped

_INDENT = "    "


def titled(mark: str, finding: Finding) -> str:
    """The first line of a Finding: its code, and what it is about."""
    return f"{mark} {finding.code}  {finding.subject}".rstrip()


def labelled(texts: Mapping[str, str], width: int) -> Iterator[str]:
    """A text behind each label, the texts below each other."""
    widest = max(map(len, texts))
    for label, text in texts.items():
        lead = f"{_INDENT}{label:<{widest}}  "
        yield from wrapped(f"{lead}{text}", width, " " * len(lead))


def sentence(finding: Finding) -> str:
    """A Finding in one line: where, what and what to do."""
    place = f"{finding.subject}: " if finding.subject else ""
    remedy = f" {finding.remedy}." if finding.remedy else ""
    return f"{place}{finding.problem}.{remedy}"


def located(finding: Finding) -> dict[str, str]:
    """The same as JSON values."""
    return {"where": finding.subject, "problem": finding.problem, "remedy": finding.remedy}


def not_seen_lines(parts: Iterable[NotSeen], width: int, verb: str = "seen") -> Iterator[str]:
    """What could not be seen, and why."""
    for hidden in parts:
        yield from wrapped(f"? Not {verb}: {hidden.part}. {ended(hidden.why)}", width, _INDENT)


def counted(count: int, word: str) -> str:
    """A number of things."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def ended(text: str) -> str:
    """A sentence with its stop."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
