"""What `kube-rdma config check` found in manifests, for people and for programs.

The last step of that command; programs/admission/manifest_check judges, this sets it on a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.model.finding import Finding
from kube_rdma.views.findings import located, sentence
from kube_rdma.views.text import aligned, widths, wrapped

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


def check_text(check: ManifestCheck, width: int) -> str:
    """A table of the objects, then warnings and what admission adds; errors are told elsewhere."""
    rows = [
        (one.place, one.kind, one.name or _NONE, one.meaning)
        for one in check.objects
        if one.meaning
    ]
    lines = [] if check.objects else ["There is no object."]
    if rows:
        columns = widths([_HEAD, *rows])
        lines += [aligned(row, columns) for row in (_HEAD, *rows)]
    if others := len(check.objects) - len(rows):
        lines += [""] if rows else []
        lines.append(f"Objects that are not looked at: {others}")
    return "\n".join((*lines, *_sentences(check, width)))


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


def _sentences(check: ManifestCheck, width: int) -> Iterator[str]:
    for warning in check.warnings:
        yield ""
        yield from wrapped(f"Warning: {sentence(warning)}", width, "  ")
    for number, addition in enumerate(check.additions):
        if not number:
            yield ""
        yield from wrapped(f"Admission adds: {addition.what} ({addition.where})", width, "  ")
