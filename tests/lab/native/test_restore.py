"""Etcd goes back to a backup under nodes that have given addresses since; none is given twice.

The nodes are IPAM's own, each with a journal and watches as in an agent, beside a controller's
gc; none of them starts again. The API server and its etcd are the lab's.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.effect_runner import IpamTiming
from kube_rdma.ipam.gc import run_gc
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.model.ipam import AddressRequest, NicRequest, Timing
from kube_rdma_lab import backups, cluster
from kube_rdma_lab import lab as labs
from tests.groups import own
from tests.kit import manifests

CRDS = Path(__file__).resolve().parents[3] / "config" / "crds"
NAME = own("restore")
PACE = IpamTiming(Timing(recall=20.0))
NODES = ("node-a", "node-b", "node-c")
POOL = manifests.ip_pool(
    "restored", ranges=[{"subnet": "10.98.0.0/22"}], blockSize=8, restSeconds=0
)


@pytest.fixture(scope="module")
def lab():
    """A control plane of its own, for it goes back."""
    labs.down(NAME)
    running = labs.up(NAME, "control-plane", None, lambda event: None)
    for path in sorted(CRDS.glob("ip*.yaml")):
        cluster.kubectl(running, "apply", "-f", "-", stdin=path.read_text())
    names = [f"crd/{kind}.kube-rdma.io" for kind in ("ippools", "ipblocks")]
    cluster.wait(running, "--for=condition=Established", *names)
    cluster.apply(running, POOL)
    yield running
    labs.down(NAME)


@asynccontextmanager
async def working(lab, folder):
    """Nodes and a controller at the lab's API server."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(lab.kubeconfig))
        gc = asyncio.create_task(run_gc(client, "default", Events(client, "test"), PACE))
        nodes = []
        for name in NODES:
            client = await stack.enter_async_context(connect(lab.kubeconfig))
            to = IpamDependencies(client, "default", Folder(folder / name))
            node = NodeAddresses(f"{name}-{uuid4()}", f"boot of {name}", to, PACE)
            nodes.append(await stack.enter_async_context(node))
        yield nodes
        assert not gc.done()
        gc.cancel()
        await asyncio.gather(gc, return_exceptions=True)


async def patiently(node, container):
    """Ask as a runtime does, again and again; the address."""
    request = AddressRequest(container, f"uid-{container}", (NicRequest("net1", "restored"),))
    async with asyncio.timeout(300):
        while True:
            try:
                (allocation,) = (await node.add(request)).allocations
            except Unavailable:
                await asyncio.sleep(0.2)
            else:
                return str(allocation.address)


async def add(nodes, word, count):
    """So many pods on each node, one node after the other; what they got."""
    names = [(node, f"{word}-{at}-{n}") for n in range(count) for at, node in enumerate(nodes)]
    return {name: await patiently(node, name) for node, name in names}


async def held(lab):
    """Every address that some node holds."""
    async with connect(lab.kubeconfig) as client:
        blocks = [ipam.stored_block(one) for one in await client.list(ipam.IP_BLOCK)]
    return {
        str(block.key.address(place))
        for block in blocks
        for holding in block.holdings
        for place in range(64)
        if holding.bits >> place & 1
    }


@pytest.mark.parametrize("bump", [0, 10**9], ids=["as it was", "bumped"])
async def test_a_restore_gives_no_address_twice(lab, tmp_path, bump):
    """Pods keep what they have, new ones get others, and nobody starts anew."""
    async with working(lab, tmp_path) as nodes:
        before = await add(nodes, "early", 3)
        await asyncio.to_thread(backups.save, lab, tmp_path / "backup.db")
        before |= await add(nodes, "late", 20)
        await asyncio.to_thread(backups.restore, lab, tmp_path / "backup.db", bump=bump)
        later = await add(nodes, "new", 20)
        every = [*before.values(), *later.values()]
        assert len(every) == len(set(every))
        assert set(every) <= await held(lab)
        assert {name: await patiently(nodes[0], name) for name in before if "-0-" in name} == {
            name: text for name, text in before.items() if "-0-" in name
        }
        for node in nodes:
            assert await node.check() == ()
