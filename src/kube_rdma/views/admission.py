"""What `kube-rdma config check` found in manifests, for people and for programs.

The last step of that command; programs/admission/manifest_check judges, this sets it on a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.views.text import aligned, widths, wrapped

_HEAD = ("AT", "KIND", "NAME", "WHAT IT IS")
_NONE = "-"  # no name


class CheckedObject(Frozen):
    """An object of a file; `meaning` is empty for one that kube-rdma has nothing to do with."""

    place: str
    kind: str
    name: str
    meaning: str


class Remark(Frozen):
    """A sentence about a field, with what to do; `where` is empty for what is about several."""

    where: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        """As one line."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.problem}." + (f" {self.remedy}." if self.remedy else "")


class Addition(Frozen):
    """What admission would add to a pod."""

    where: str
    what: str


class ManifestCheck(Frozen):
    """All of it. With `errors` the files are refused."""

    objects: tuple[CheckedObject, ...]
    warnings: tuple[Remark, ...] = ()
    additions: tuple[Addition, ...] = ()
    errors: tuple[Remark, ...] = ()


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
        "warnings": [_remark(one) for one in check.warnings],
        "additions": [{"where": one.where, "what": one.what} for one in check.additions],
        "errors": [_remark(one) for one in check.errors],
    }


def _sentences(check: ManifestCheck, width: int) -> Iterator[str]:
    for warning in check.warnings:
        yield ""
        yield from wrapped(f"Warning: {warning}", width, "  ")
    for number, addition in enumerate(check.additions):
        if not number:
            yield ""
        yield from wrapped(f"Admission adds: {addition.what} ({addition.where})", width, "  ")


def _remark(remark: Remark) -> dict[str, str]:
    return {"where": remark.where, "problem": remark.problem, "remedy": remark.remedy}
