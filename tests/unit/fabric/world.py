"""A cluster in memory whose agents report the switches that this test says they hear."""

from contextlib import asynccontextmanager

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.fabric.nodes import FabricNodes, FabricTiming
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside

QUICK = FabricTiming(settle=0.0, silent=0.0, apart=0.0, again=0.01, pause=lambda _: 0.0)


def card(number, place, **more):
    """A pooled card; `place` is "leaf swp1", or "" if it hears nothing."""
    switch, _, port = place.partition(" ")
    near = {"neighbour": {"switch": switch, "port": port}} if switch else {"unheard": "no frame"}
    device = f"mlx5_{number}"
    layer = {"state": "ACTIVE", "linkLayer": "Ethernet"}
    return {
        "id": f"0000:{number:02x}:00.0",
        "name": device,
        "resources": ["rdma/hca"],
        "ports": [{"device": device, "number": 1, **layer, **near}],
        **more,
    }


def status(*places):
    """The status of a NodeReport with a card in each place."""
    cards = [card(n, place) for n, place in enumerate(places)]
    summary = {"cards": len(cards), "healthy": len(cards)}
    return {"agentVersion": "1", "summary": summary, "cards": cards}


class FabricWorld:
    """Nodes, their reports, and what the controller writes."""

    def __init__(self, *kinds):
        self.server = FakeServer([NODE_REPORT, *kinds])
        self.line = self.server.line()

    def node(self, name, labels=(), annotations=()):
        meta = {"name": name, "labels": dict(labels), "annotations": dict(annotations)}
        self.server.put(NODE, {"metadata": meta, "spec": {}})

    def report(self, name, *places, node=True):
        """An agent's report; what an administrator expects stays."""
        if node and name not in self.nodes:
            self.node(name)
        kept = {"spec": self.spec(name)} if self.spec(name) else {}
        document = {"metadata": {"name": name}, "status": status(*places), **kept}
        self.server.put(NODE_REPORT, document)

    def expect(self, name, *places):
        """Write what a node's cards are to be plugged into."""
        pairs = [(n, *place.split()) for n, place in enumerate(places)]
        cabling = [
            {"card": f"0000:{n:02x}:00.0", "switch": leaf, "switchPort": port}
            for n, leaf, port in pairs
        ]
        self.server.put(NODE_REPORT, {**self.reports[name], "spec": {"cabling": cabling}})

    @property
    def nodes(self):
        return {one["metadata"]["name"]: one["metadata"] for one in self.server.documents("nodes")}

    @property
    def reports(self):
        return {one["metadata"]["name"]: one for one in self.server.documents("nodereports")}

    def spec(self, name):
        return self.reports.get(name, {}).get("spec")

    def label(self, name, key="kube-rdma.io/leaf"):
        return (self.nodes[name].get("labels") or {}).get(key)

    def notes(self, name):
        return self.nodes[name].get("annotations") or {}

    @property
    def writes(self):
        return [str(r) for r in self.line.requests if r.verb not in ("get", "list", "watch")]

    @property
    def events(self):
        """The Events: node, reason, note."""
        return [
            (one["regarding"]["name"], one["reason"], one["note"])
            for one in self.server.documents("events")
        ]

    @asynccontextmanager
    async def running(self, labels="write", timing=QUICK, **more):
        """A controller that leads."""
        cluster = Cluster(self.line, RequestTiming(pause=lambda _: 0.0))
        events = Events(Cluster(self.server.line()), "controller-1")
        part = FabricNodes(cluster, events, labels, timing, **more)
        async with beside(part.run(), events.run()):
            yield part
