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
    """A place in a blueprint that is filled with the value at a path such as ``agent.resources``.

    In a blueprint with `over`, a path that starts with a dot leads on from the entry.
    """

    path: str


NAMESPACE = Hole("namespace.name")
OWN_NAMES = Hole("platform.own")
"""What names of the cluster begin with where a release has its own, with a dot behind it."""


class Joined(Frozen):
    """A text that is joined of constants and holes."""

    parts: tuple[str | Hole, ...]


class When(Frozen):
    """A choice in a blueprint: `then` where the condition is true, else `otherwise`.

    A condition is a path whose value is neither false nor empty, or ``path == text``, or several of
    these with ``or`` between them. As an entry of a list a choice may be a list, whose entries then
    stand in its place.
    """

    condition: str
    then: Node
    otherwise: Node = ABSENT


class Spread(Frozen):
    """A place in a blueprint that is filled with all entries of the list or object at a path.

    In an object the field's own name is not used, and other fields of it win.
    """

    path: str


class Blueprint(Frozen):
    """A pattern of one object of the installation, which is made if all `conditions` are true."""

    body: Json
    conditions: tuple[str, ...] = ()
    over: str = ""  # the path of a list, for each entry of which it is made
    notes: Mapping[str, str] = field(default_factory=dict)  # annotations for Helm alone
    for_helm: bool = False  # render leaves out the whole object
    component: str = ""  # the label app.kubernetes.io/component; "": its part's name


def joined(*parts: str | Hole) -> Joined:
    """Return a Joined text of these parts."""
    return Joined(parts)


def unless(condition: str, node: Node) -> When:
    """Return a choice of the node where the condition is false, and of nothing where it is true."""
    return When(condition, ABSENT, node)


# A value of the installation as people read of it: its path, its sentence, its default.

UNSAID: Any = object()
"""What stands where there is no default."""


class ChartValue(Frozen):
    """One value of the Helm chart and of `kube-rdma render`."""

    path: str  # ``agent.enabled``, or ``pools[].name`` in the entries of a list
    sentence: str
    default: Any = UNSAID  # everybody's
    others: tuple[tuple[str, Any], ...] = ()  # who has another: ``preset vke``, and its default
    required: bool = False
    whole: bool = False  # an object whose values follow

    @property
    def in_list(self) -> bool:
        """Return whether this is a value inside the entries of a list."""
        return "[]" in self.path
