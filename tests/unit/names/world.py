"""A cluster whose pods, Services, reports and blocks are in the test's hands."""

from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

import msgspec

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL
from kube_rdma.ipam.objects import encode_block
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.ipam import Block, BlockKey, Family, IPPool, IPRange, NodeHolding
from kube_rdma.model.names import MANAGED_BY, NETWORK, PODS, RAIL
from kube_rdma.names.cluster import ADDRESSED_CLAIM, ENDPOINT_SLICE, SERVICE
from kube_rdma.names.publisher import NamesPublisher
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside
from tests.unit.ipam.conftest import until

KINDS = (SERVICE, ENDPOINT_SLICE, NODE_REPORT, IP_POOL, IP_BLOCK, ADDRESSED_CLAIM, DEFINITION)
SUBNET = ip_network("10.0.0.0/16")
CARD, OTHER_CARD = "0000:81:00.0", "0000:c1:00.0"
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
EAGER = RequestTiming(pause=lambda _: 0.0)


def interface(address, network="default/rail-0", card=CARD, **more):
    """One entry of a pod's annotation; `address` may be several."""
    texts = [address] if isinstance(address, str) else address
    return {"name": network, "interface": "net1", "ips": texts, "card": card, **more}


class NamesWorld:
    """Everything that names depend on, at a fake API server."""

    def __init__(self):
        self.server, self.born = FakeServer(KINDS), 0
        self.held = defaultdict(dict)  # by block the bits of nodes
        self.line = self.server.line()
        pool = IPPool("rails", (IPRange(SUBNET), IPRange(ip_network("fd00::/112"))))
        self.put(IP_POOL, "rails", spec=msgspec.json.decode(ip_pool.encode(pool)))
        self.put(DEFINITION, "rail-0", "default", spec={"config": ""})
        for node in ("node-1", "node-2"):
            self.node(node, f"192.0.2.{node[-1]}")
            self.report(node)

    def put(self, kind, name, namespace="", meta=None, **parts):
        names = {"name": name} | ({"namespace": namespace} if namespace else {})
        self.server.put(kind, {"metadata": {**names, **(meta or {})}, **parts})

    def node(self, name, *addresses):
        told = [{"type": "InternalIP", "address": each} for each in addresses]
        self.put(NODE, name, status={"addresses": told})

    def report(self, node, *ill, rails=(CARD, OTHER_CARD)):
        """The word of a node's agent: cards by rail, of which some are ill."""
        cards = [
            {
                "id": card,
                "name": card,
                "resources": ["rdma/nic"],
                "rail": rail,
                "reasons": ["no port is ACTIVE"] if card in ill else [],
            }
            for rail, card in enumerate(rails)
        ]
        status = {"agentVersion": "1", "summary": {"cards": 0, "healthy": 0}, "cards": cards}
        self.put(NODE_REPORT, node, status=status)

    def hold(self, node, *addresses):
        """An agent acquires addresses of the pool, and gives none back."""
        bits = defaultdict(int)
        for text in addresses:
            address = ip_address(text)
            offset = int(address) % 64
            key = BlockKey("default", Family(address.version), int(address) - offset)
            bits[key] |= 1 << offset
        for key, mask in bits.items():
            holdings = self.held[key]
            holdings[node] = holdings.get(node, 0) | mask
            block = Block(key, tuple(NodeHolding(*each) for each in sorted(holdings.items())))
            self.put(IP_BLOCK, key.name, spec=msgspec.json.decode(encode_block(block)))

    def service(self, name="trainer", namespace="default", **more):
        """Somebody asks for names; `more` is of the annotations (pods, network, rail) or spec."""
        asks = {PODS: more.pop("pods", "app=trainer")}
        asks |= {key: more.pop(key.rpartition("/")[2], "") for key in (NETWORK, RAIL)}
        meta = {"annotations": {key: text for key, text in asks.items() if text}}
        self.put(SERVICE, name, namespace, meta, spec={"clusterIP": "None", **more})

    def pod(self, name, *interfaces, namespace="default", **more):
        """A pod whose agent has attached interfaces; its node holds their addresses if `held`.

        `more`: node, ready, labels, phase, ip; else it is of the metadata.
        """
        node = more.pop("node", "node-1")
        entries = [interface(one) if isinstance(one, str) else one for one in interfaces]
        own = [text for one in entries for text in one["ips"]]
        if more.pop("held", True):
            self.hold(node, *(text for text in own if text.startswith(("10.0.", "fd00::"))))
        shown = [{**one, "ips": [f"{text}/24" for text in one["ips"]]} for one in entries]
        text = msgspec.json.encode(shown).decode()
        self.born += 1
        born = (BEGIN + timedelta(seconds=self.born)).strftime("%Y-%m-%dT%H:%M:%SZ")
        seen = [d["metadata"] for d in self.server.documents("pods")]
        born = next((m["creationTimestamp"] for m in seen if m["name"] == name), born)
        meta = {
            "labels": more.pop("labels", {"app": "trainer"}),
            "annotations": {"kube-rdma.io/network-status": text},
            "creationTimestamp": born,
        }
        conditions = [{"type": "Ready", "status": str(more.pop("ready", True))}]
        ips = [{"ip": ip}] if (ip := more.pop("ip", "")) else []
        status = {"phase": more.pop("phase", "Running"), "conditions": conditions, "podIPs": ips}
        self.put(POD, name, namespace, {**meta, **more}, spec={"nodeName": node}, status=status)

    @property
    def slices(self):
        own = dict([MANAGED_BY])
        documents = self.server.documents("endpointslices")
        return [d for d in documents if own.items() <= d["metadata"].get("labels", {}).items()]

    def names(self, service="trainer"):
        """The addresses of a Service by name, each with whether it is ready."""
        found = defaultdict(dict)
        for each in self.slices:
            if each["metadata"]["labels"]["kubernetes.io/service-name"] == service:
                for endpoint in each["endpoints"]:
                    ready = endpoint["conditions"]["ready"]
                    found[endpoint.get("hostname")][endpoint["addresses"][0]] = ready
        return dict(found)

    @property
    def writes(self):
        every = [r for r in self.line.requests if r.plural == "endpointslices"]
        return [r for r in every if r.verb in ("create", "update", "delete")]

    def told(self, reason):
        return [e["note"] for e in self.server.documents("events") if e["reason"] == reason]

    @asynccontextmanager
    async def publishing(self, changes=None):
        """A controller that leads; each has a client of its own."""
        self.line = self.server.line()
        cluster = Cluster(self.line, EAGER)
        events = Events(cluster, "controller")
        publisher = NamesPublisher(cluster, events, changes or Debounce(0.01, 0.03))
        async with beside(publisher.run(), events.run()):
            yield publisher

    async def settled(self):
        """Wait until the controller has seen all that there is."""
        self.born += 1
        name, address = f"fence-{self.born}", f"10.0.{200 + self.born // 200}.{self.born % 200 + 1}"
        if "fence" not in (d["metadata"]["name"] for d in self.server.documents("services")):
            self.service("fence", "fence", pods="app=fence")
        shown = interface(address, card="fence")
        self.pod(name, shown, namespace="fence", node="fence", labels={"app": "fence"})
        await until(lambda: name in self.names("fence"))
