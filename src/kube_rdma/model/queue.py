"""Workloads of Kueue that wait for the admission check of rails, and the facts that answer it.

queue/rules decides over these values, which queue/cluster reads at the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

from kube_base.frozen import Frozen
from kube_rdma.model.kubernetes import NamespacedName, SparsePart
from kube_rdma.model.reports import NodeReport
from kube_rdma.model.verify import Suspects

CONTROLLER = "kube-rdma.io/rails"
"""The controllerName of the AdmissionChecks that kube-rdma's controller answers."""

HOSTNAME = "kubernetes.io/hostname"
"""The label, and the topology's level, by which Kueue names single nodes."""

PENDING, READY, RETRY = "Pending", "Ready", "Retry"
"""States of an admission check; Kueue evicts a Workload with Retry, and queues it again."""


class CheckEntry(SparsePart):
    """The state of one admission check in a Workload's status (Kueue's AdmissionCheckState)."""

    name: str
    state: str
    message: str
    last_transition_time: str
    requeue_after_seconds: int | None = None
    retry_count: int | None = None  # of Retry so far; Kueue counts them


class WaitingPods(Frozen):
    """The equal pods of one of a Workload's podSets, and where Kueue wants them to run."""

    count: int
    resources: Mapping[str, int] = {}  # extended resources that each of them requests
    claims: bool = False  # each has ResourceClaims
    networks: tuple[str, ...] = ()  # as namespace/name, one for each interface
    flavors: tuple[str, ...] = ()
    selector: Mapping[str, str] = {}  # their nodeSelector
    hosts: Mapping[str, int] | None = None  # how many on each hostname; None: no node is named
    measures: bool = False  # they ask for a preflight


class WaitingWorkload(NamespacedName):
    """A Workload that has its quota and its place, and waits for admission checks."""

    uid: str
    version: str
    checks: tuple[CheckEntry, ...]
    pods: tuple[WaitingPods, ...]


class RailsWorld(Frozen, dict=True):
    """The facts of a cluster by which Workloads are judged."""

    now: datetime
    namespace: str  # of kube-rdma, whose BandwidthChecks count for all Workloads
    reports: Mapping[str, NodeReport] = {}  # by node
    nodes: Mapping[str, Mapping[str, str]] = {}  # labels by node
    flavors: Mapping[str, Mapping[str, str]] = {}  # labels of nodes by ResourceFlavor
    pools: Mapping[str, Mapping[str, int]] = {}  # addresses that an IPPool has left, by family
    networks: Mapping[str, str] = {}  # IPPool by namespace/name of a network that has one pool
    suspects: Mapping[str, Suspects] = {}  # by namespace of the BandwidthChecks

    @cached_property
    def hosts(self) -> Mapping[str, str]:
        """Return the names of nodes by hostname."""
        return {labels.get(HOSTNAME, name): name for name, labels in self.nodes.items()}

    @cached_property
    def offered(self) -> frozenset[str]:
        """Return the resources that at least one NodeReport has a pool for."""
        return frozenset(pool.resource for one in self.reports.values() for pool in one.pools)
