"""Findings about a node, a pod, a cluster or a document, and the parts that could not be seen.

The rules of `kube-rdma doctor`, `status`, `explain`, `fabric`, `install`, `config check`,
`ip check` and of admission come to Findings, lib/page shows them. Each command fills the fields
that it needs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kube_base.errors import Refused
from kube_base.frozen import Frozen

FieldPath: TypeAlias = tuple[str | int, ...]


class Severity(StrEnum):
    """The weight of a Finding."""

    ERROR = "error"  # something does not work, or a pod is refused
    WARNING = "warning"  # something is slow, or will not work soon
    ADVICE = "advice"  # asks for nothing now


class Stage(StrEnum):
    """The stages at which a pod can be refused, in the order in which it meets them."""

    ADMISSION = "admission"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    AGENT = "agent"


class Finding(Frozen):
    """A problem with its cause and remedy, which are sentences without a full stop."""

    subject: str  # a device, an object (node/node-1), a field, or "" for nothing special
    problem: str
    cause: str = ""
    remedy: str = ""
    severity: Severity = Severity.ERROR
    code: str = ""  # stable, and documented for users
    follows: str = ""  # the code of the Finding that causes it, "" for a root
    path: FieldPath = ()  # to the field, from the document on
    stage: Stage | None = None

    @classmethod
    def of(
        cls,
        code: str,
        subject: str | FieldPath,
        problem: str,
        remedy: str,
        severity: Severity = Severity.ERROR,
    ) -> Finding:
        """Return a Finding about an object (a text) or about the field at a path."""
        path = () if isinstance(subject, str) else subject
        name = subject if isinstance(subject, str) else ".".join(map(str, path))
        return cls(name, problem, "", remedy, severity, code, path=path)

    @classmethod
    def of_refused(cls, error: Refused, stage: Stage | None = None) -> tuple[Finding, ...]:
        """Return a Finding for each fault that a Refused has."""
        every = (error, *error.more)
        return tuple(cls(e.where, e.problem, remedy=e.remedy, stage=stage) for e in every)

    @property
    def is_error(self) -> bool:
        """Return whether the Finding says that something does not work."""
        return self.severity is Severity.ERROR


class NotSeen(Frozen):
    """The name of a part that could not be read, and why."""

    part: str
    why: str
