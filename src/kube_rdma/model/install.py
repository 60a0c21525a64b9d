"""Objects with holes: the little language in which an installation is described once.

    install/rules/objects/*.yaml ─► install/documents/installation ─┐
    install/dashboards, definitions, install/rules/pod_policies ────┴─► parts ─┬─► kube-rdma render
                                                                               └─► chart (tools)

A blueprint is a Kubernetes object as Python has JSON, in which values may be holes. The rules of
install put values into the holes; kube_rdma_tools/chart_templates writes the same holes as Helm's
templates. So the two differ only in what a Blueprint has for Helm alone, and whoever changes an
object changes it in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from kube_base.errors import Refused
from kube_base.frozen import Frozen, field
from kube_rdma.model.finding import Finding, NotSeen
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.migrate import PluginDaemonSet
from kube_rdma.model.reports import ChosenNodes

Json: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Any]
Node: TypeAlias = Any
"""A JSON value in which Hole, Joined, When and Spread stand for values."""

EITHER = " or "  # between conditions of which one is enough
IS = " == "  # between a path and the text that the value there has to be

ABSENT: Any = object()
"""A stand-in for a field or an entry that is left out."""


class Hole(Frozen):
    """A place in a blueprint that is filled with the value at a path such as ``agent.resources``.

    In a blueprint with `over`, a path with a dot in front starts at the entry of that list.
    """

    path: str


NAMESPACE = Hole("namespace.name")
OWN_NAMES = Hole("platform.own")
"""fullnameOverride and a dot, in names of cluster-wide objects; "" without fullnameOverride."""


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

    In an object the name of the field with the Spread is dropped, and other fields win.
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

    @property
    def noted(self) -> Json:
        """Return the body with the annotations for Helm."""
        if not self.notes:
            return self.body
        annotations = {**self.body["metadata"].get("annotations", {}), **self.notes}
        return {**self.body, "metadata": {**self.body["metadata"], "annotations": annotations}}


def joined(*parts: str | Hole) -> Joined:
    """Return a Joined text of these parts."""
    return Joined(parts)


def unless(condition: str, node: Node) -> When:
    """Return a choice: `node` where the condition is false, and nothing where it is true."""
    return When(condition, ABSENT, node)


# An installation and the cluster that it is for: `kube-rdma install`.


class ChartRelease(Frozen):
    """An installation with the names and marks that Helm would give it."""

    name: str
    preset: str
    namespace: str
    objects: tuple[Json, ...]  # in the order in which they are applied
    trial: Json  # the pod that tries the image
    chosen: ChosenNodes | None  # nodes for agents; None: it has no agents
    has_operator: bool
    served: Mapping[str, bool]  # kinds that installations use, and whether the cluster has them
    notes: tuple[str, ...] = ()  # what is left to do or left out, one sentence each


class ClusterObject(Frozen):
    """An object of a release beside what the cluster has under its name."""

    wanted: Json
    found: Json | None = None  # None: nothing
    made: Json | None = None  # what the API server says that it would store; None: not asked
    owner: str = ""  # whose it is, where it is not the release's
    refusal: Refused | None = None  # why it cannot be read or written


class InstallSight(Frozen):
    """A release and what was seen of the cluster that it is for."""

    release: ChartRelease
    version: str  # of the API server: v1.36.3
    objects: tuple[ClusterObject, ...]
    nodes: tuple[NodeState, ...] = ()
    plugins: tuple[PluginDaemonSet, ...] = ()  # for RDMA cards, kube-rdma's agents among them
    operators: tuple[str, ...] = ()  # Deployments of NVIDIA's network operator
    kept_by_helm: bool = False  # Helm has a record of the release
    not_seen: tuple[NotSeen, ...] = ()


class Act(StrEnum):
    """An act of an installation on an object of the cluster."""

    MADE = "new"
    CHANGED = "changed"
    LEFT = "unchanged"


class InstallPlan(Frozen):
    """The acts of an installation on its objects, and what a person has to know."""

    sight: InstallSight
    acts: tuple[tuple[Act, Json], ...]  # without objects of others
    findings: tuple[Finding, ...]
    served: int  # nodes that get an agent

    @property
    def wanted(self) -> tuple[Json, ...]:
        """Return the objects to write, in the order of the release."""
        return tuple(one for act, one in self.acts if act is not Act.LEFT)


# A value of the installation as people read of it: its path, its sentence, its default.

UNSAID: Any = object()
"""A stand-in for a default that does not exist."""


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
