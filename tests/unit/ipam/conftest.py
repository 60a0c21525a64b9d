"""An API server with pools, and nodes that can be started, cut off and killed."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Unavailable
from kube_client.calls import RequestTiming as WatchPace
from kube_client.objects import Cluster
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam import objects
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.ipam.effect_runner import IpamTiming
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.model.ipam import AddressRequest, NicRequest, Timing
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.disk import FakeDisk

SPACE = "kube-rdma"
TIMING = Timing(contact=30.0, margin=3.0, patience=2.0)


def quickly(failures):
    return 0.0 if failures < 2 else 0.01


def at_once(_failures):
    return 0.0


class Clock:
    """Stands still; tests move it."""

    def __init__(self):
        self.time = 1000.0

    def __call__(self):
        return self.time


class World:
    """One API server, one clock, and what each node has on its disk."""

    def __init__(self):
        self.server = FakeServer([IP_POOL, ipam.IP_BLOCK, ipam.LEASE])
        self.clock = Clock()
        self.timing = IpamTiming(
            TIMING, self.clock, tick=0.005, longest=0.005, gc_interval=0.005, pause=at_once
        )
        self.disks = {}
        self.lines = {}

    def pool(self, name="p", *, rest=0, block=32, namespaces=(), **ranges):
        spec = {
            "ranges": [ranges or {"subnet": "10.0.0.0/24"}],
            "restSeconds": rest,
            "blockSize": block,
        }
        if namespaces:
            spec["namespaces"] = list(namespaces)
        self.server.put(IP_POOL, self.document("IPPool", name, spec))

    def document(self, kind, name, spec):
        version = "kube-rdma.io/v1alpha1"
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def cluster(self, node):
        self.lines[node] = self.server.line()
        return Cluster(self.lines[node], WatchPace(self.clock, quickly))

    @asynccontextmanager
    async def node(self, name="node-1", *, boot="boot-1", disk=None, ready=True):
        """A running node; its disk stays when it ends."""
        disk = disk or self.disks.setdefault(name, FakeDisk())
        dependencies = IpamDependencies(self.cluster(name), SPACE, disk)
        async with NodeAddresses(name, boot, dependencies, self.timing) as addresses:
            if ready:
                await until(lambda: gives(addresses))
            yield addresses

    def blocks(self):
        documents = self.server.documents("ipblocks")
        return [objects.decode_block(json.dumps(each["spec"]).encode()) for each in documents]

    def held(self, node):
        return sum(h.bits.bit_count() for b in self.blocks() for h in b.holdings if h.node == node)


async def gives(addresses, lost=0):
    """Whether the node gives addresses, and has lost so many."""
    try:
        return len(await addresses.check()) == lost
    except Unavailable:
        return False


async def until(condition):
    """Wait for a condition."""
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        await asyncio.sleep(0.002)


async def served(node, request):
    """The answer; while the node just writes a block it is asked again, as the kubelet does."""
    while True:
        try:
            return await node.add(request)
        except Unavailable:
            await asyncio.sleep(0.002)


def ask(container, *nics, pool="p", namespace=""):
    found = nics or (NicRequest("net1", pool),)
    return AddressRequest(container, f"uid-{container}", tuple(found), namespace)


def texts(granted):
    return [str(allocation.address) for allocation in granted.allocations]


@pytest.fixture
def world():
    found = World()
    found.pool()
    return found
