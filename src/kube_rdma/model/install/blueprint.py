"""Objects with holes: the little language in which an installation is described once.

    rules/install: objects ─┬─► fill ─► views/install/manifests (kube-rdma render)
                            └─► views/install/chart (the templates of the Helm chart)

A blueprint is a Kubernetes object as Python has JSON, in which values may be holes. rules/install
puts values into the holes; views/install/chart writes the same holes as Helm's templates. So the
two cannot differ, and whoever changes an object changes it in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kube_base.frozen import Frozen, field

Json: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Any]
Node: TypeAlias = Any
"""A JSON value in which Hole, Joined and When stand for values."""

EITHER = "|"  # between conditions of which one is enough
IS = "="  # between a path and the text that the value there has to be

ABSENT: Any = object()
"""What stands for a field or an entry that is left out."""


class Hole(Frozen):
    """The value at a path such as ``agent.resources``, whatever its type.

    In a blueprint with `over`, a path that starts with a dot leads on from the entry.
    """

    path: str


class Joined(Frozen):
    """A text of constants and holes."""

    parts: tuple[str | Hole, ...]


def either(*conditions: str) -> str:
    """A condition that holds where one of these does; a path where its value is not empty."""
    return EITHER.join(conditions)


def equals(path: str, text: str) -> str:
    """A condition that holds where the value at the path is this text."""
    return f"{path}{IS}{text}"


class When(Frozen):
    """`then` where the value at `path` is neither false nor empty, else `otherwise`.

    Conditions that `either` and `equals` made may stand for the path.
    """

    path: str
    then: Node
    otherwise: Node = ABSENT


class Blueprint(Frozen):
    """An object of the installation.

    It is part of one where all values of `conditions` are neither false nor empty; with `over`
    once for each entry of that list. `notes` are annotations for Helm, which render leaves out, as
    it does the whole object where it is `for_helm` alone.
    """

    body: Json
    conditions: tuple[str, ...] = ()
    over: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    for_helm: bool = False


def joined(*parts: str | Hole) -> Joined:
    """A text of these parts."""
    return Joined(parts)


def unless(path: str, node: Node) -> When:
    """The node where the value at `path` is false or empty, else nothing."""
    return When(path, ABSENT, node)
