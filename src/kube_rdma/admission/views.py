"""What `kube-rdma config check` found in manifests, for people and for programs.

The last step of that command; admission/manifest_check judges, this sets it on a page.
"""

from __future__ import annotations

from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.lib.page import (
    Line,
    Page,
    PageRow,
    PageState,
    PageTable,
    Sentence,
    located,
    sentence,
)
from kube_rdma.model.finding import Finding

_HEAD = ("AT", "KIND", "NAME", "WHAT IT IS")
_NONE = "-"  # no name


class CheckedObject(Frozen):
    """An object of a file; `meaning` is empty for one that kube-rdma has nothing to do with."""

    place: str
    kind: str
    name: str
    meaning: str


class Addition(Frozen):
    """What admission would add to a pod."""

    where: str
    what: str


class ManifestCheck(Frozen):
    """All of it."""

    objects: tuple[CheckedObject, ...]
    findings: tuple[Finding, ...] = ()
    additions: tuple[Addition, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What refuses the files."""
        return tuple(one for one in self.findings if one.is_error)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The rest."""
        return tuple(one for one in self.findings if not one.is_error)


def check_page(check: ManifestCheck) -> Page:
    """A table of the objects, then warnings and what admission adds; errors are told elsewhere."""
    rows = tuple(
        PageRow((one.place, one.kind, one.name or _NONE, one.meaning))
        for one in check.objects
        if one.meaning
    )
    others = len(check.objects) - len(rows)
    return (
        () if check.objects else (Line("There is no object."),),
        (PageTable(_HEAD, rows, ranked=True),) if rows else (),
        (Line(f"Objects that are not looked at: {others}"),) if others else (),
        *((_warning(warning),) for warning in check.warnings),
        tuple(_addition(addition) for addition in check.additions),
    )


def check_document(check: ManifestCheck) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "objects": [
            {"at": one.place, "kind": one.kind, "name": one.name, "meaning": one.meaning}
            for one in check.objects
        ],
        "warnings": [located(one) for one in check.warnings],
        "additions": [{"where": one.where, "what": one.what} for one in check.additions],
        "errors": [located(one) for one in check.errors],
    }


def _warning(warning: Finding) -> Sentence:
    return Sentence(f"Warning: {sentence(warning)}", "  ", PageState.WARNING)


def _addition(addition: Addition) -> Sentence:
    return Sentence(f"Admission adds: {addition.what} ({addition.where})", "  ")
