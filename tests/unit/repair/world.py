"""A cluster whose nodes, reports and policies are in the test's hands."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE, TAINT_RULE
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.kubernetes import moment
from kube_rdma.repair.cluster import REPAIR_POLICY
from kube_rdma.repair.loop import RepairLoop, RepairPace
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside

EAGER = RequestTiming(pause=lambda _: 0.0)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LINK = {"linkLayer": "Ethernet"}
OTHER = {"key": "example.com/maintenance", "effect": "NoSchedule", "timeAdded": moment(NOW)}


class RepairWorld:
    """Everything that a taint depends on, at a fake API server; `clock` moves only by hand."""

    def __init__(self, of_claims=(RESOURCE_SLICE, TAINT_RULE)):
        kinds = (NODE, NODE_REPORT, BANDWIDTH_CHECK, REPAIR_POLICY, *of_claims)
        self.server = FakeServer(kinds)
        self.clock, self.now = 1000.0, NOW
        self.line = self.server.line()

    def node(self, name, taints=(), **meta):
        spec = {"taints": [*taints]}
        self.server.put(NODE, {"metadata": {"name": name, **meta}, "spec": spec})

    def report(self, name, healthy=8, degraded="", age=0):
        """A report of a node with eight cards, of which the first ones are down."""
        cards = [
            {"id": f"0000:0{at}:00.0", "name": f"mlx5_{at}", "resources": ["rdma/nic"]}
            | {"ports": [{"device": f"mlx5_{at}", "number": 1, "state": "ACTIVE"} | LINK]}
            | ({"reasons": ["no port is ACTIVE"]} if at < 8 - healthy else {})
            | ({"degraded": degraded} if degraded and at == 7 else {})
            | ({"firmware": "28.39.1002"} if at == 0 else {})
            for at in range(8)
        ]
        status = {"agentVersion": "1", "summary": {"cards": 8, "healthy": healthy}, "cards": cards}
        pool = {"resource": "rdma/nic", "mode": "hca", "shares": 8, "cards": 8}
        status["pools"] = [pool | {"healthy": healthy}]
        status["renewTime"] = moment(self.now - timedelta(seconds=age))
        self.server.put(NODE_REPORT, {"metadata": {"name": name}, "status": status})

    def devices(self, node, *names, pool="", driver=DRIVER):
        """A slice of the node with these devices, or with those of its eight cards."""
        names = names or [f"0000-0{at}-00-0" for at in range(8)]
        spec = {"driver": driver, "nodeName": node, "devices": [{"name": one} for one in names]}
        spec["pool"] = {"name": pool or node, "generation": 1, "resourceSliceCount": 1}
        name = f"000-{driver}-{node}"
        self.server.put(RESOURCE_SLICE, {"metadata": {"name": name}, "spec": spec})

    @property
    def ruled(self):
        """The taints of devices by DeviceTaintRules: effects by node and device."""
        specs = [one["spec"] for one in self.server.documents("devicetaintrules")]
        places = [(one["deviceSelector"], one["taint"]["effect"]) for one in specs]
        return {(of.get("pool"), of.get("device")): effect for of, effect in places}

    def nodes(self, count, **more):
        for number in range(count):
            self.node(f"node-{number}", **more)
            self.report(f"node-{number}")

    def policy(self, name="cards", annotations=(), when=None, **spec):
        """A policy that counts cards and enforces."""
        spec = {"when": when or {"healthyCardsBelow": 8}, "enforce": True, **spec}
        metadata = {"name": name, "annotations": dict(annotations)}
        before = [
            one
            for one in self.server.documents("repairpolicies")
            if one["metadata"]["name"] == name
        ]
        kept = {"status": before[0]["status"]} if before and "status" in before[0] else {}
        self.server.put(REPAIR_POLICY, {"metadata": metadata, "spec": spec, **kept})

    def measured(self, node, namespace="kube-rdma", hours=1, card=""):
        """A BandwidthCheck that suspects a node, or a card of it."""
        at = moment(self.now - timedelta(hours=hours))
        suspects = [{"kind": "node", "node": node, "pairs": 3, "of": 3}]
        suspects[0] |= {"kind": "card", "device": card} if card else {}
        status = {"observedGeneration": 1, "state": "NotWell", "suspects": suspects}
        status |= {"startTime": at, "completionTime": at}
        metadata = {"name": "nightly", "namespace": namespace}
        self.server.put(BANDWIDTH_CHECK, {"metadata": metadata, "spec": {}, "status": status})

    def found(self, kind, name):
        return next(one for one in self.server.documents(kind) if one["metadata"]["name"] == name)

    def taints(self, name):
        return self.found("nodes", name)["spec"].get("taints", [])

    @property
    def tainted(self):
        """The nodes with repair's taint, and their effects."""
        return {
            node["metadata"]["name"]: taint["effect"]
            for node in self.server.documents("nodes")
            for taint in node["spec"].get("taints", ())
            if taint["key"] == model.KEY
        }

    def status(self, name="cards"):
        return self.found("repairpolicies", name).get("status", {})

    def states(self, name="cards"):
        places = ((one["node"], one.get("card"), one) for one in self.status(name).get("nodes", ()))
        return {(node, card) if card else node: one["state"] for node, card, one in places}

    def told(self, reason):
        return [one["note"] for one in self.server.documents("events") if one["reason"] == reason]

    @property
    def writes(self):
        """The nodes that the controllers wrote, oldest first."""
        every = (one for line in self.server.lines for one in line.requests)
        return [one.name for one in every if one.plural == "nodes" and one.verb == "patch"]

    @asynccontextmanager
    async def leading(self):
        """A controller that leads, with a client of its own."""
        self.line = self.server.line()
        cluster = Cluster(self.line, EAGER)
        events = Events(cluster, "controller")
        timing = RepairPace(again=0.02, clock=lambda: self.clock, now=lambda: self.now)
        loop = RepairLoop(cluster, events, "kube-rdma", timing, Debounce(0.01, 0.03))
        async with beside(loop.run(), events.run()):
            yield loop
