"""Pages and JSON of `kube-rdma config check`: objects, findings and additions.

They are the last step of that command: admission/manifest_check judges, this shows the result.
"""

from __future__ import annotations

from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_list
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.finding import Finding

_HEAD = ("AT", "KIND", "NAME", "WHAT IT IS")
_NONE = "-"  # no name


class CheckedObject(Frozen):
    """An object of a file; `meaning` says what it is for kube-rdma, and is empty for nothing."""

    at: str
    kind: str
    name: str
    meaning: str
    templates: tuple[CheckedObject, ...] = ()  # of pods, where it has several


class Addition(Frozen):
    """A value that admission would add to a pod."""

    where: str
    what: str


class ManifestCheck(Frozen):
    """The result of a check of files: objects, findings and additions."""

    objects: tuple[CheckedObject, ...]
    findings: tuple[Finding, ...] = ()
    additions: tuple[Addition, ...] = ()
    pods: tuple[tuple[str, PodTemplate], ...] = ()  # with their places

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that make the files invalid."""
        return tuple(one for one in self.findings if one.is_error)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Return the findings that are no errors: warnings and notes."""
        return tuple(one for one in self.findings if not one.is_error)


def check_page(check: ManifestCheck) -> page.Page:
    """Return the page of a check: warnings, a table of objects, and additions."""
    rows = tuple(
        page.PageRow(
            (one.at, one.kind, one.name or _NONE, one.meaning),
            parts=tuple((each.at, each.kind, each.name, each.meaning) for each in one.templates),
        )
        for one in check.objects
        if one.meaning
    )
    others = len(check.objects) - len(rows)
    return (
        () if check.objects else (page.Line("There is no object."),),
        *((each,) for each in page.sentences(check.warnings)),
        (page.PageTable(_HEAD, rows, ranked=True),) if rows else (),
        (page.Line(f"Objects that are not looked at: {others}"),) if others else (),
        tuple(
            page.Sentence(f"Admission adds {one.what} ({':'.join(one.where.split(':')[:2])})", "  ")
            for one in check.additions
        ),
    )


def check_document(check: ManifestCheck) -> dict[str, Any]:
    """Return the JSON document of a check, with errors."""
    return {
        "objects": json_list(check.objects),
        "warnings": [
            page.located(one) | {"severity": one.severity.value} for one in check.warnings
        ],
        "additions": json_list(check.additions),
        "errors": [page.located(one) for one in check.errors],
    }
