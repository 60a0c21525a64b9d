"""The part of docs/doctor.md that follows from the checks: a section for each code.

The symptom is the first paragraph of the docstring of a check's function `look`. Causes and fixes
come from Findings, which the caller has: tests plant a fault for each code. Names in them are
examples. A check that passes on a message of another program has no cause here: the doctor prints
that message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from kube_base.plain_text import ended
from kube_rdma.doctor.rules import errors
from kube_rdma.doctor.rules.diagnose import CHECKS
from kube_rdma.model.finding import Finding
from kube_rdma_tools.page_tables import BEGIN, put

PAGE = "docs/doctor.md"
CODES = BEGIN.format("codes")
GROUPS = {
    "KR1": "Cards",
    "KR2": "Kubelet and agent",
    "KR3": "Networks of the node",
    "KR4": "Pods",
}
PASSED_ON = frozenset({"KR130", "KR290", "KR310", "KR401", "KR490"})
_LOOKS: dict[str, tuple[str, object]] = {one.code: (one.title, one.look) for one in CHECKS}
_LOOKS[errors.CODE] = (errors.TITLE, errors.outliers)


def filled(page: str, findings: Iterable[Finding]) -> str:
    """Return the page with the section of finding codes written anew."""
    return put(page, CODES, codes(findings))


def noticed(code: str) -> str:
    """Return the symptom of a finding: the first paragraph of its check's docstring."""
    return " ".join((_LOOKS[code][1].__doc__ or "").partition("\n\n")[0].split())


def codes(findings: Iterable[Finding]) -> str:
    """Return the page's sections on finding codes, with one fix for each cause, in groups."""
    by_code: dict[str, dict[str, Finding]] = {}
    for one in findings:
        by_code.setdefault(one.code, {}).setdefault(one.cause, one)
    lines = []
    for group, some in groupby(sorted(_LOOKS), lambda code: code[:3]):
        lines += [f"## {GROUPS[group]}", ""]
        for code in some:
            of_code = () if code in PASSED_ON else by_code.get(code, {}).values()
            lines += [f"### {_heading(code)}", _linked(noticed(code)), ""]
            lines += [line for one in of_code for line in (_said(one), "")]
    return "\n".join(lines[:-1])


def _said(finding: Finding) -> str:
    return _linked(f"{ended(finding.cause)} **Fix**: {ended(finding.remedy)}")


def _heading(code: str) -> str:
    return f"{code} · {_LOOKS[code][0]}"


def _linked(text: str) -> str:
    """Return a text whose references to other codes and pages are Markdown links."""
    text = re.sub(r"\(docs/([\w-]+\.md[#\w-]*)\)", r"([\1](\1))", text)
    text = re.sub(r"\(SECURITY\.md\)", "([SECURITY.md](../SECURITY.md))", text)
    return re.sub(r"\bKR\d{3}\b", lambda code: f"[{code[0]}](#{_anchor(code[0])})", text)


def _anchor(code: str) -> str:
    return re.sub(r"[^\w\- ]", "", _heading(code).lower()).replace(" ", "-")
