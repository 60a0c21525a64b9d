"""How often 500 agents list at a real API server while nothing happens: once for each kind.

Their watches are the product's, six for each agent, over connections of their own. Time passes
fifteen times as fast: so does the client's clock, and streams are as much shorter.
"""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from kube_client.calls import RequestTiming
from kube_client.connect import Http
from kube_client.kinds import EVERYWHERE, Where
from kube_client.kubeconfig import find_access
from kube_client.objects import Cluster
from kube_client.route import find_route
from kube_client.watching import Synced
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma_lab import cluster
from kube_rdma_lab import lab as labs
from tests.groups import own

CRDS = Path(__file__).resolve().parents[3] / "config" / "crds"
NAME = own("rest")
AGENTS = 500
FASTER = 15.0
HOUR = 3600.0
ROUND = 1.25 * HOUR  # the longest time between two lists of a watch
ONES = ("ippools", "ipblocks", "nodepolicies", "nodereports")
PACE = RequestTiming(clock=lambda: time.monotonic() * FASTER, stream=300.0 / FASTER)


@pytest.fixture
def lab():
    """A control plane of its own, so nobody else changes anything."""
    labs.down(NAME)
    running = labs.up(NAME, "control-plane", None, lambda event: None)
    for path in sorted(CRDS.glob("*.yaml")):
        cluster.kubectl(running, "apply", "-f", "-", stdin=path.read_text())
    cluster.wait(running, "--for=condition=Established", *(f"crd/{n}.kube-rdma.io" for n in ONES))
    yield running
    labs.down(NAME)


class Counted:
    """A transport that counts the verbs of its requests."""

    def __init__(self, transport, counts):
        self._transport, self._counts = transport, counts

    async def send(self, request):
        self._counts[request.verb] += 1
        return await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request, seconds):
        self._counts["watch"] += 1
        async with self._transport.stream(request, seconds) as stream:
            yield stream


async def follow(door, kind, where, synced):
    async with aclosing(door.watch(kind, where)) as events:
        async for event in events:
            if isinstance(event, Synced):
                synced.release()


def watches(node):
    """What an agent with networks watches."""
    return (
        (NODE, Where(name=node)),
        (POD, Where(fields=f"spec.nodeName={node}")),
        (IP_POOL, EVERYWHERE),
        (IP_BLOCK, EVERYWHERE),
        (NODE_POLICY, EVERYWHERE),
        (NODE_REPORT, Where(name=node)),
    )


@pytest.mark.slow
async def test_agents_at_rest_list_six_times_an_hour(lab):
    """Each kind once in a round; the rest are streams that go on."""
    counts, synced = Counter(), asyncio.Semaphore(0)
    access = find_access(lab.kubeconfig)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        following = []
        for number in range(AGENTS):
            transport = Http(access, find_route(access.server, {}), "kube-rdma/trial")
            stack.callback(transport.close)
            door = Cluster(Counted(transport, counts), PACE)
            for kind, where in watches(f"node-{number}"):
                following.append(tasks.create_task(follow(door, kind, where, synced)))
            for _ in watches(""):
                await synced.acquire()
        first, began = counts["list"], time.monotonic()
        counts.clear()
        await asyncio.sleep(ROUND / FASTER)
        seconds = (time.monotonic() - began) * FASTER
        for task in following:
            task.cancel()
    each = counts["list"] / AGENTS * HOUR / seconds
    print(
        f"{AGENTS} agents: {first} lists at first, then {each:.2f} an hour each, "
        f"{counts['watch'] / AGENTS * HOUR / seconds:.0f} streams"
    )
    assert 6 * AGENTS <= first <= 6.1 * AGENTS  # a stream that broke off asks for the version
    assert each <= 6.0
