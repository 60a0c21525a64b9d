"""Each code has its section in docs/doctor.md, in order, and no other code has."""

from __future__ import annotations

import re
from pathlib import Path

from kube_rdma.doctor.rules import errors
from kube_rdma.doctor.rules.diagnose import CHECKS

PAGE = Path(__file__).parents[4] / "docs/doctor.md"
SECTION = re.compile(r"(?m)^### (KR\d+) · (.+)\n")
LABELS = ["Symptom", "Evidence", "Cause", "Fix"]


def sections(text):
    """By code the title and what stands below it."""
    _, *parts = SECTION.split(text)
    return {code: (title, body) for code, title, body in zip(*[iter(parts)] * 3, strict=True)}


def differences(text):
    """What the page has otherwise than the checks."""
    documented = sections(text)
    wanted = {check.code: check.title for check in CHECKS} | {errors.CODE: errors.TITLE}
    yield from (f"{code} is not documented" for code in wanted if code not in documented)
    yield from (f"{code} is no code" for code in documented if code not in wanted)
    for code, (title, body) in documented.items():
        if wanted.get(code, title) != title:
            yield f"{code} is called {wanted[code]!r}"
        if re.findall(r"(?m)^- \*\*(\w+)\*\*: \S", body) != LABELS:
            yield f"{code} has not symptom, evidence, cause and fix"


def test_every_code_is_documented():
    text = PAGE.read_text(encoding="utf-8")
    assert not list(differences(text))
    of_one_node = [code for code in sections(text) if code != errors.CODE]
    assert of_one_node == [check.code for check in CHECKS]


def test_what_is_missing_or_wrong_is_named():
    text = PAGE.read_text(encoding="utf-8")
    assert "KR101 is not documented" in differences(text.replace("### KR101", "### KR999"))
    assert "KR999 is no code" in differences(text.replace("### KR101", "### KR999"))
    assert "KR101 is called 'driver'" in differences(text.replace("KR101 · driver", "KR101 · x"))
    assert len(list(differences(text.replace("- **Fix**", "- **Remedy**", 1)))) == 1
