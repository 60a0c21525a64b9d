"""Lists the parts of a controller; one that fails does not end the others (adapters/bulkhead).

    every copy          events, metrics, health
    the copy that leads garbage collection of addresses, reports of pools, evictions, status of
                        policies, bandwidth checks, the end of a former webhook, labels of leaves,
                        names of addresses, preflight, admission checks of Kueue, repair, the
                        operator

The command `kube-rdma controller` runs them. A part that fails is begun anew, one of the leader as
a fresh object, while the others go on. The parts of the leader are cancelled when the lead is lost,
all parts when the program is asked to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kube_base.frozen import Frozen, field
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, start
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.controller.evictions import Evictions
from kube_rdma.controller.leadership import Leadership
from kube_rdma.controller.retirement import retire_webhook
from kube_rdma.fabric.nodes import FabricNodes
from kube_rdma.ipam.gc import run_gc
from kube_rdma.ipam.pool_status_reporter import PoolStatusReporter
from kube_rdma.lib.health import HealthChecks
from kube_rdma.model.install import Values
from kube_rdma.model.ipam import Usage
from kube_rdma.names.publisher import NamesPublisher
from kube_rdma.operator.reconcile import Operator, OperatorPlace
from kube_rdma.preflight.rounds import PreflightRounds
from kube_rdma.queue.rails import RailsChecks
from kube_rdma.repair.loop import RepairLoop
from kube_rdma.reports.policies import PolicyStatuses
from kube_rdma.verify.bandwidth_checks import BandwidthChecks

if TYPE_CHECKING:  # prometheus-client is imported where somebody asks
    from kube_rdma.controller.exporter import ControllerExporter

Parts = Mapping[str, Part]


class ControllerOptions(Frozen):
    """The options of the command `controller`."""

    namespace: str
    policies: bool = False
    cluster_wide: bool = False  # policies are those of the cluster, not of the namespace
    values: Values = field(default_factory=dict)  # of the installation, for agents of policies
    fullname: str = ""  # with which the release's names begin, where that is not kube-rdma
    health: tuple[str | None, int] | None = None  # of /livez and /readyz; None: not served
    node_labels: str = "leave"  # as the value controller.nodeLabels
    features: frozenset[str] = frozenset()  # names, preflight, queue, repair: off by default


def always(
    events: Events, exporter: ControllerExporter | None = None, health: Part | None = None
) -> Parts:
    """Return the tasks that every copy of the controller runs; `health` answers probes."""
    metrics = exporter.run if exporter else None
    parts = {"events": events.run, "metrics": metrics, "health": health}
    return {name: part for name, part in parts.items() if part}


def leading(
    cluster: Cluster,
    events: Events,
    options: ControllerOptions,
    exporter: ControllerExporter | None = None,
) -> Parts:
    """Return the tasks that only the leader runs."""
    namespace = options.namespace
    reported: Callable[[Mapping[str, Sequence[Usage]]], None] = (
        exporter.reported if exporter else lambda _: None
    )
    parts: dict[str, Part] = {
        "addresses of gone nodes": partial(run_gc, cluster, namespace, events),
        "pool reports": lambda: PoolStatusReporter(cluster, events, reported).run(),
        "evictions": lambda: Evictions(cluster, events).run(),
        "policy status": lambda: PolicyStatuses(cluster).run(),
        "bandwidth checks": lambda: BandwidthChecks(cluster, events).run(),
        "former webhook": partial(retire_webhook, cluster, namespace, options.fullname),
    }
    if options.node_labels != "leave":
        parts["labels of leaves"] = lambda: FabricNodes(cluster, events, options.node_labels).run()
    if options.policies:
        place = OperatorPlace(namespace, options.cluster_wide, options.values)
        parts["operator"] = lambda: Operator(cluster, place, events).run()
    if "names" in options.features:
        parts["names of addresses"] = lambda: NamesPublisher(cluster, events).run()
    if "preflight" in options.features:
        parts["preflight"] = lambda: PreflightRounds(cluster, events).run()
    if "queue" in options.features:
        parts["admission checks"] = lambda: RailsChecks(cluster, events, namespace).run()
    if "repair" in options.features:
        parts["repair"] = lambda: RepairLoop(cluster, events, namespace).run()
    return parts


def readiness(cluster: Cluster, lead: Leadership) -> HealthChecks:
    """Return the health checks of a copy: its Lease, and its watches while it leads."""

    def watches() -> Sequence[str]:
        return cluster.troubles() if lead.leads else ()

    return HealthChecks({"lease": lead.unread, "watches": watches})


async def run_controller(lead: Leadership, beside: Parts, work: Parts) -> None:
    """Run the tasks `beside` at once, and `work` while this copy leads, until cancelled."""

    async def leading_work() -> None:
        async with asyncio.TaskGroup() as tasks:
            start(tasks, work)

    async with asyncio.TaskGroup() as tasks:
        start(tasks, {**beside, "election": partial(lead.run, leading_work)})
