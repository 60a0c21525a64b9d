"""How soon ResourceSlices say what a node has: first of all, and when a link drops.

The publisher writes to an API server in memory, so a figure has the agent's own waits and work and
no network. That of a link has the whole agent in it, from the kernel's announcement on
(standin.py): the burst of announcements is waited for, then the node is looked at.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.standin import Standin, card, write_config, write_node
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE
from kube_rdma.adapters.kernel.netlink.events import News, RtnlEvent
from kube_rdma.agent.loop import run_plugin
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.claims.publisher import SlicePublisher
from kube_rdma.claims.rules.shape import claim_offer
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import Device, PciAddress
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.recording import recorded

NAME = "node-1"
CARDS = 8
ROUNDS = 8


def measure(rounds: int) -> Iterator[Figure]:
    """Publish nodes of virtual functions, then let links drop."""
    for functions in (8, 16):
        with recorded():
            times, slices, work = zip(
                *(asyncio.run(_published(functions)) for _ in range(rounds)), strict=True
            )
        busy = f"CPU {median(work) * 1000:.0f} ms"
        note = f"slices: {slices[0]}; worst {max(times) * 1000:.0f} ms; {busy}, waits on purpose 50"
        goal = "≤ 100" if functions == 8 else ""
        key = f"published_{CARDS}_x_{functions}_ms"
        yield Figure(key, median(times) * 1000, "ms", goal, note)
    with recorded(), tempfile.TemporaryDirectory() as folder:
        dropped, writes = asyncio.run(_dropped(Path(folder), rounds))
    note = f"the worst of {rounds}: {max(dropped):.2f} s"
    yield Figure("link_to_taint_seconds", median(dropped), "s", "≤ 0.3", note)
    yield Figure("link_to_taint_writes", writes / rounds, "", "1", f"{writes} for {rounds} links")


async def _published(functions: int) -> tuple[float, int, float]:
    """Seconds from a look to the last slice of a node, the slices, and seconds of CPU."""
    server = _server()
    publisher = SlicePublisher(Cluster(server.line()), NAME, lambda _: None)
    task = asyncio.create_task(publisher.run())
    try:
        (node,) = server.documents("nodes")
        publisher.seen(NodeState(NAME, node["metadata"]["uid"]))
        await asyncio.sleep(0.5)  # the watch has begun, and the node was heard of
        clock = asyncio.get_running_loop().time
        begin, work = clock(), time.process_time()
        publisher.keep(claim_offer([_functions(functions)]))
        await _until(lambda: _devices(server) == CARDS * functions)
        taken = clock() - begin, time.process_time() - work
        return taken[0], len(server.documents("resourceslices")), taken[1]
    finally:
        await _ended(task)


async def _dropped(folder: Path, rounds: int) -> tuple[list[float], int]:
    """Seconds from each announcement to the taint, and the writes of all."""
    server = _server()
    standin = Standin(folder / "tree")
    every = [card(number) for number in range(rounds)]
    write_node(standin.tree, every)
    write_config(folder, {"mode": "shared-multi", "shares": 16})
    times = []
    async with FakeKubelet.at(folder), _agent(standin, folder, server):
        await _until(lambda: _devices(server) > 0)
        await asyncio.sleep(2)  # what follows a start is over
        before = _writes(server)
        clock = asyncio.get_running_loop().time
        for number in range(rounds):
            down = [card(n, up=n > number) for n in range(rounds)]
            _show(standin, folder / f"tree-{number}", down)
            begin = clock()
            standin.links.push(RtnlEvent(News.LINK, number + 2))
            await _until(partial(_has_tainted, server, number + 1))
            times.append(clock() - begin)
            await asyncio.sleep(1.5)
        return times, _writes(server) - before


@asynccontextmanager
async def _agent(standin: Standin, folder: Path, server: FakeServer) -> AsyncIterator[None]:
    cluster = Cluster(server.line())
    events = NodeEvents(cluster, NAME, Events(cluster, NAME))
    keeper = SlicePublisher(Cluster(server.line()), NAME, lambda _: None)
    dependencies = replace(standin.dependencies(folder), node=events, keepers=(keeper,))
    task = asyncio.create_task(run_plugin(dependencies))
    try:
        yield
    finally:
        await _ended(task)


def _show(standin: Standin, tree: Path, cards: list[Device]) -> None:
    write_node(tree, cards)
    standin.tree = tree


def _server() -> FakeServer:
    server = FakeServer((RESOURCE_SLICE,))
    server.put(NODE, {"metadata": {"name": NAME}, "spec": {}, "status": {}})
    return server


def _functions(count: int) -> Pool:
    """The virtual functions of all cards."""
    spec = PoolSpec("rdma/vf", Mode.SRIOV, "bench")
    return Pool(spec, (), tuple(_function(c, n) for c in range(CARDS) for n in range(count)))


def _function(number: int, index: int) -> Card:
    parent = card(number)
    assert parent.position
    bus = int(str(parent.position.pci)[5:7], 16)
    pci = PciAddress(f"0000:{bus:02x}:{index // 8 + 1:02x}.{index % 8}")
    position = replace(parent.position, pci=pci, path=(pci,), physical_function=parent.position.pci)
    device = replace(
        parent, name=f"mlx5_{number}_{index}", identity=str(pci), pci=pci, position=position
    )
    netdev = Netdev(f"ens{number}v{index}", "ether", up=True, carrier=True)
    function = Function(position, 0x15B3, 0x101E, "mlx5_core", (netdev,), vf_index=index)
    return Card(CardId(str(pci)), (device,), function)


def _devices(server: FakeServer) -> int:
    """Of a pool that is whole."""
    parts = [part["spec"] for part in server.documents("resourceslices")]
    if not parts or len(parts) < parts[0]["pool"]["resourceSliceCount"]:
        return 0
    return sum(len(part.get("devices", ())) for part in parts)


def _has_tainted(server: FakeServer, count: int) -> bool:
    """Whether so many cards are tainted, however many devices their shares are."""
    parts = [part["spec"] for part in server.documents("resourceslices")]
    devices = (device for part in parts for device in part.get("devices", ()))
    names = {
        device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
        for device in devices
        if device.get("taints")
    }
    return len(names) == count


def _writes(server: FakeServer) -> int:
    requests = [request for line in server.lines for request in line.requests]
    verbs = ("create", "update", "delete", "patch")
    return sum(one.plural == "resourceslices" and one.verb in verbs for one in requests)


async def _until(done: Callable[[], bool]) -> None:
    """Look every millisecond, which each time has in it at most."""
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.001)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
