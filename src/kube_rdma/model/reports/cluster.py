"""A cluster at one moment as its API server tells it, and what is wrong with it.

reports/gather reads a ClusterFacts, reports/rules/cluster makes Findings of it,
reports/views/pages shows both. A part that could not be read is None, and `not_seen` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from kube_base.frozen import Frozen, field
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.finding import NotSeen
from kube_rdma.model.node import NodeState
from kube_rdma.model.reports.node_report import NodeReport

# Without these nothing can be told of a cluster's health.
_ESSENTIAL = frozenset(
    {"nodes", "DaemonSets and Deployments", "pods of agents and controllers", "NodeReport"}
)


class ProgramRole(StrEnum):
    """Which of kube-rdma's programs a workload runs."""

    AGENT = "agent"
    CONTROLLER = "controller"


class ProgramTemplate(Frozen):
    """A container of a workload: its image, and command and arguments in one."""

    workload: str  # name of the DaemonSet or Deployment
    image: str
    words: tuple[str, ...] = ()


class Workload(Frozen):
    """A DaemonSet of agents or a Deployment of a controller.

    `networks`: it gives pods their networks. `reports`: its agents have role node, so they report.
    """

    role: ProgramRole
    namespace: str
    name: str
    desired: int
    ready: int
    updated: int
    image: str = ""
    networks: bool = False
    reports: bool = False

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.namespace}/{self.name}"


class ProgramPod(Frozen):
    """A pod of a workload; `why` is what its container waits for, or why it ended."""

    workload: str  # its title
    namespace: str
    name: str
    node: str
    ready: bool
    why: str = ""
    restarts: int = 0


class PolicyState(Frozen):
    """What a NicClusterPolicy says of itself."""

    title: str  # with its namespace; without, where the definition is for the whole cluster
    state: str
    reason: str
    notes: tuple[str, ...] = ()  # of conditions that do not hold
    ours: bool = True  # kube-rdma's operator wrote the status


class NodePolicyState(Frozen):
    """What a NodePolicy says of itself; `seen` False: no controller has looked at this version.

    `reason` and `message` are of the first condition that does not hold, empty where all do.
    """

    name: str
    seen: bool = False
    nodes: int = 0
    applied: int = 0
    pending: int = 0
    refused: int = 0
    overruled: int = 0
    reason: str = ""
    message: str = ""


class AddressPool(Frozen):
    """What an IPPool says of itself; `broken` and `scarce` are sentences, "" where all is well."""

    name: str
    ranges: str
    used: str
    free: str
    broken: str = ""
    scarce: str = ""
    short: tuple[str, ...] = ()  # nodes that cannot serve a pod
    routed: bool = False  # it has a default route


class ClusterEvent(Frozen):
    """The last word about a node or a pod; `last` is a time as in RFC 3339."""

    kind: str
    namespace: str
    name: str
    reason: str
    note: str
    last: str = ""


class WaitingPod(Frozen):
    """A pod that has not started; `resources` are the extended ones that it asks for."""

    namespace: str
    name: str
    node: str = ""
    resources: tuple[str, ...] = ()
    networks: bool = False  # its annotations ask for networks

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class ClusterFacts(Frozen, dict=True):
    """All that is read. Of objects of kube-rdma's kinds None also means: no such kind."""

    nodes: tuple[NodeState, ...] | None = None
    workloads: tuple[Workload, ...] | None = None
    pods: tuple[ProgramPod, ...] | None = None
    reports: Mapping[str, NodeReport] | None = None
    policies: tuple[PolicyState, ...] | None = None
    node_policies: tuple[NodePolicyState, ...] | None = None
    pools: tuple[AddressPool, ...] | None = None
    networks: tuple[Network, ...] | None = None
    waiting: tuple[WaitingPod, ...] | None = None
    events: tuple[ClusterEvent, ...] | None = None
    guarded: bool | None = None  # the policy that holds agents to their nodes is in force
    missing: tuple[str, ...] = field(default=())  # kinds that are not installed
    not_seen: tuple[NotSeen, ...] = ()

    @cached_property
    def agents(self) -> Mapping[str, tuple[ProgramPod, ...]]:
        """The pods of agents on each node."""
        titles = {w.title for w in self.workloads or () if w.role is ProgramRole.AGENT}
        pods: dict[str, tuple[ProgramPod, ...]] = {}
        for pod in self.pods or ():
            if pod.workload in titles and pod.node:
                pods[pod.node] = (*pods.get(pod.node, ()), pod)
        return pods

    @property
    def is_blind(self) -> bool:
        """Whether a part was not read without which nothing can be told."""
        return any(one.part in _ESSENTIAL for one in self.not_seen)

    @property
    def is_unreported(self) -> bool:
        """Whether agents report their nodes, and the kind that they write is not installed."""
        return "NodeReport" in self.missing and any(w.reports for w in self.workloads or ())

    @property
    def hides_cards(self) -> bool:
        """Whether nothing is known of the nodes' cards, though somebody tells of them."""
        return self.is_unreported or any(one.part == "NodeReport" for one in self.not_seen)


class ClusterHealth(StrEnum):
    """How a cluster is."""

    HEALTHY = "healthy"
    PROBLEMS = "problems"
    UNKNOWN = "unknown"
