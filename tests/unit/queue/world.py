"""A cluster with Kueue whose Workloads, reports and measurements are in the test's hands."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.queue import CONTROLLER
from kube_rdma.queue.cluster import ADMISSION_CHECK, RESOURCE_FLAVOR, WORKLOAD
from kube_rdma.queue.rails import RailsChecks
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside

KUEUE = (ADMISSION_CHECK, WORKLOAD, RESOURCE_FLAVOR)
KINDS = (*KUEUE, NODE_REPORT, BANDWIDTH_CHECK, IP_POOL, DEFINITION)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
EAGER = RequestTiming(pause=lambda _: 0.0)
RESERVED = ("QuotaReserved",)


def condition(kind):
    words = {"reason": kind, "message": "", "lastTransitionTime": moment(NOW)}
    return {"type": kind, "status": "True", **words}


class QueueWorld:
    """Everything that an answer depends on, at a fake API server."""

    def __init__(self, kinds=KINDS):
        self.server = FakeServer(kinds)
        self.line = self.server.line()
        for node in ("node-1", "node-2"):
            self.put(NODE, node, meta={"labels": {"kubernetes.io/hostname": f"host-{node[-1]}"}})
            self.report(node)

    def put(self, kind, name, namespace="", meta=None, **parts):
        names = {"name": name} | ({"namespace": namespace} if namespace else {})
        self.server.put(kind, {"metadata": {**names, **(meta or {})}, **parts})

    def check(self, name="rails", controller=CONTROLLER, **spec):
        """An administrator writes an AdmissionCheck."""
        meta = {"generation": 3}
        self.put(ADMISSION_CHECK, name, meta=meta, spec={"controllerName": controller, **spec})

    def report(self, node, healthy=8, ill=(), age=0):
        """A report of a node's agent, some seconds ago; ill cards with `no port is ACTIVE`."""
        cards = [
            {"id": f"0000:81:00.{at}", "name": name, "resources": ["rdma/nic"]}
            | {"reasons": ["no port is ACTIVE"]}
            for at, name in enumerate(ill)
        ]
        counts = {"shares": 8, "healthy": healthy, "cards": 8}
        status = {"agentVersion": "1", "summary": {"cards": 8, "healthy": 8}, "cards": cards}
        status["pools"] = [{"resource": "rdma/nic", "mode": "exclusive", **counts}]
        status["renewTime"] = moment(NOW - timedelta(seconds=age))
        self.put(NODE_REPORT, node, status=status)

    def measured(self, name, *suspects, namespace="kube-rdma", hours=1):
        """A BandwidthCheck that ended with these suspects."""
        entries = [{"kind": "card", "pairs": 3, "of": 3, **each} for each in suspects]
        at = moment(NOW - timedelta(hours=hours))
        status = {"observedGeneration": 1, "state": "NotWell", "startTime": at, "suspects": entries}
        self.put(BANDWIDTH_CHECK, name, namespace, spec={}, status={**status, "completionTime": at})

    def workload(self, name="job", hosts=("host-1", "host-2"), shares=8, **more):
        """A Workload with a pod on each of these hosts; `hosts` None: Kueue names no nodes.

        `more`: checks, holds (its conditions), namespace, count, flavors, annotations, resource.
        """
        states = more.get("checks", {"rails": "Pending"})
        checks = [
            {"name": check, "message": "", "lastTransitionTime": moment(NOW)}
            | ({"state": state} if isinstance(state, str) else state)
            for check, state in states.items()
        ]
        limits = {more.get("resource", "rdma/nic"): shares, "cpu": "1"}
        container = {"name": "main", "resources": {"limits": limits}}
        template = {"metadata": {"annotations": more.get("annotations", {})}}
        template["spec"] = {"containers": [container]}
        count = more.get("count", len(hosts or ()))
        given = {"name": "main", "count": count, "flavors": more.get("flavors", {})}
        if hosts is not None:
            values = [{"individual": {"prefix": "host-", "roots": [one[5:] for one in hosts]}}]
            slices = [{"valuesPerLevel": values, "podCounts": {"universal": 1}}]
            levels = ["kubernetes.io/hostname"]
            given["topologyAssignment"] = {"levels": levels, "slices": slices}
        status = {
            "admissionChecks": checks,
            "conditions": [condition(each) for each in more.get("holds", RESERVED)],
            "admission": {"clusterQueue": "rdma", "podSetAssignments": [given]},
        }
        spec = {"podSets": [{"name": "main", "count": count, "template": template}]}
        self.put(WORKLOAD, name, more.get("namespace", "team"), spec=spec, status=status)

    def answers(self, name="job"):
        """The entries of a Workload's admission checks, by name."""
        found = [d for d in self.server.documents("workloads") if d["metadata"]["name"] == name]
        return {one["name"]: one for d in found for one in d["status"]["admissionChecks"]}

    def state(self, name="job", check="rails"):
        return self.answers(name)[check]["state"]

    def told(self):
        """The Events about Workloads, as their names, reasons and notes."""
        events = self.server.documents("events")
        return [(e["regarding"]["name"], e["reason"], e["note"]) for e in events]

    @property
    def writes(self):
        """What the controllers have written of Workloads, oldest first."""
        every = (r for line in self.server.lines for r in line.requests)
        ours = (r for r in every if r.plural == "workloads" and r.verb == "patch")
        return [msgspec.json.decode(one.body) for one in ours]

    @asynccontextmanager
    async def answering(self):
        """A controller that leads; each has a client of its own."""
        self.line = self.server.line()
        self.cluster = Cluster(self.line, EAGER)
        events = Events(self.cluster, "controller")
        part = RailsChecks(self.cluster, events, "kube-rdma", Debounce(0.01, 0.03), lambda: NOW)
        async with beside(part.run(), events.run()):
            yield part
