"""Objects with holes: the little language in which an installation is described once.

    install/rules/objects/*.yaml ─► install/documents/installation ─┐
    install/dashboards, definitions, install/rules/pod_policies ────┴─► parts ─┬─► kube-rdma render
                                                                               └─► chart (tools)

A blueprint is a Kubernetes object as Python has JSON, in which values may be holes. install/rules
puts values into the holes; kube_rdma_tools/chart_templates writes the same holes as Helm's
templates. So the two cannot differ, and whoever changes an object changes it in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kube_base.frozen import Frozen, field

Json: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Any]
Node: TypeAlias = Any
"""A JSON value in which Hole, Joined, When and Spread stand for values."""

EITHER = " or "  # between conditions of which one is enough
IS = " == "  # between a path and the text that the value there has to be

ABSENT: Any = object()
"""What stands for a field or an entry that is left out."""


class Hole(Frozen):
    """The value at a path such as ``agent.resources``, whatever its type.

    In a blueprint with `over`, a path that starts with a dot leads on from the entry.
    """

    path: str


NAMESPACE = Hole("namespace.name")
OWN_NAMES = Hole("platform.own")
"""What names of the cluster begin with where a release has its own, with a dot behind it."""


class Joined(Frozen):
    """A text of constants and holes."""

    parts: tuple[str | Hole, ...]


class When(Frozen):
    """`then` where the condition holds, else `otherwise`.

    A condition is a path whose value is neither false nor empty, or ``path == text``, or several of
    these with ``or`` between them. As an entry of a list a choice may be a list, whose entries then
    stand in its place.
    """

    condition: str
    then: Node
    otherwise: Node = ABSENT


class Spread(Frozen):
    """All entries of the list or object at a path, in the place of an entry or a field.

    In an object the field's own name is not used, and other fields of it win.
    """

    path: str


class Blueprint(Frozen):
    """An object of the installation.

    It is part of one where all `conditions` hold; with `over` once for each entry of that list.
    `notes` are annotations for Helm, which render leaves out, as it does the whole object where it
    is `for_helm` alone. `component` is the label app.kubernetes.io/component; "": its part's name.
    """

    body: Json
    conditions: tuple[str, ...] = ()
    over: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    for_helm: bool = False
    component: str = ""


def joined(*parts: str | Hole) -> Joined:
    """A text of these parts."""
    return Joined(parts)


def unless(condition: str, node: Node) -> When:
    """The node where the condition does not hold, else nothing."""
    return When(condition, ABSENT, node)


# A value of the installation as people read of it: its path, its sentence, what is by default.

UNSAID: Any = object()
"""What stands where there is no default."""


class ChartValue(Frozen):
    """One value of the Helm chart and of `kube-rdma render`.

    `path` is ``agent.enabled``, or ``pools[].name`` in the entries of a list. `whole` is an object
    whose values follow. `default` is everybody's, and `others` have presets and distributions with
    another one, as ``preset vke``.
    """

    path: str
    sentence: str
    default: Any = UNSAID
    others: tuple[tuple[str, Any], ...] = ()
    required: bool = False
    whole: bool = False

    @property
    def in_list(self) -> bool:
        """Whether it is a value of a list's entries."""
        return "[]" in self.path
