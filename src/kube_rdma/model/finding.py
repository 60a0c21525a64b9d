"""What is wrong with a node, a pod, a cluster or a document, and what could not be seen of it.

The rules of `kube-rdma doctor`, `status`, `explain`, `config check`, `ip check` and of admission
come to Findings, lib/page shows them. Each command fills what it needs of one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kube_base.errors import Refused
from kube_base.frozen import Frozen

FieldPath: TypeAlias = tuple[str | int, ...]


class Severity(StrEnum):
    """How bad a Finding is.

    ERROR: something does not work, or a pod is refused. ADVICE asks for nothing now.
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class Stage(StrEnum):
    """Who says no to a pod, in the order in which it meets them."""

    ADMISSION = "admission"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    AGENT = "agent"


class Finding(Frozen):
    """Something that is not as it should be, with what to do; texts are sentences without stop.

    `subject` is what it is about: a device, an object (``node/node-1``), a field, or nothing
    special. `code` is stable, and documented for users. `follows` is the code of the Finding that
    causes it, "" for a root. `path` leads to the field, from the document on.
    """

    subject: str
    problem: str
    cause: str = ""
    remedy: str = ""
    severity: Severity = Severity.ERROR
    code: str = ""
    follows: str = ""
    path: FieldPath = ()
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
        """A Finding with its code first, about an object or about the field of this path."""
        path = () if isinstance(subject, str) else subject
        name = subject if isinstance(subject, str) else ".".join(map(str, path))
        return cls(name, problem, "", remedy, severity, code, path=path)

    @classmethod
    def of_refused(cls, error: Refused, stage: Stage | None = None) -> tuple[Finding, ...]:
        """What an error refuses, fault by fault."""
        every = (error, *error.more)
        return tuple(cls(e.where, e.problem, remedy=e.remedy, stage=stage) for e in every)

    @property
    def is_error(self) -> bool:
        """Whether something does not work."""
        return self.severity is Severity.ERROR


class NotSeen(Frozen):
    """A part that could not be seen, by its name, and why."""

    part: str
    why: str
