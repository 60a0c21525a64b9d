"""Pools, blocks, borrow queues and leases of nodes, and compare-and-swap on each of them.

On the fake, and where conftest says on a real API server (tests/lab/native/test_ip_crds.py).
"""

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import replace
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.cluster import IP_POOL, pool_of
from kube_rdma.ipam.rules.subpools import key_of
from kube_rdma.model.ipam import (
    Block,
    BorrowQueue,
    BorrowRequest,
    IPPool,
    IPRange,
    NodeHolding,
    NodeLease,
    Pin,
)
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.api_server import QUICK, REAL, clear_all

ON_FAKE = pytest.mark.skipif(bool(REAL), reason="faults are planted in the fake")

POOL = IPPool("rail-0", (IPRange(ip_network("10.0.0.0/24")),))
KEY, _ = key_of("default", ip_address("10.0.0.70"))
BLOCK = Block(KEY, (NodeHolding("node-1", 0b1011),), (Pin("a/b/c", 3),), 1)
LEASE = NodeLease("node-1", "journal", "boot", 1)
REQUEST = BorrowRequest(node="node-2", family="IPv4", count=2)
GARBLED = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "IPBlock",
    "metadata": {"name": "default.10-0-0-0"},
    "spec": {"network": "default", "first": "10.0.0.1"},
}


@pytest.fixture
def api():
    return FakeServer([IP_POOL, ipam.IP_BLOCK, ipam.LEASE])


@pytest.fixture
async def cluster(api):
    """The fake's, or that of a real API server, without objects of earlier tests."""
    if not REAL:
        yield Cluster(api.line(), QUICK)
        return
    async with connect(Path(REAL), pace=QUICK) as real:
        await clear_all(real, IP_POOL)
        await clear_all(real, ipam.IP_BLOCK)
        await clear_all(real, ipam.LEASE, ipam.LEASES)
        yield real


@pytest.fixture
def objects(cluster):
    return ipam.IpamObjects(cluster, "kube-system")


async def blocks(cluster):
    """All blocks by their key; Refused or Broken where one of them is garbled."""
    return {each.spec.key: ipam.stored_block(each) for each in await cluster.list(ipam.IP_BLOCK)}


async def test_a_block_is_made_changed_and_dropped(cluster, objects):
    """What is read is what was written, with the version of the object."""
    made = await objects.write_block(BLOCK)
    assert replace(made, version=None) == BLOCK
    more = replace(made, holdings=(NodeHolding("node-2", 1),), edition=2)
    changed = await objects.write_block(more)
    assert await objects.block(KEY) == changed == replace(more, version=changed.version)
    assert await blocks(cluster) == {KEY: changed}
    await objects.drop_block(made)
    assert await objects.block(KEY) == changed
    await objects.drop_block(changed)
    assert await objects.block(KEY) is None


async def test_only_one_of_two_writes_of_a_block_succeeds(objects):
    """Create and replace; the loser gets None and has changed nothing."""
    made = await objects.write_block(BLOCK)
    assert await objects.write_block(BLOCK) is None
    won = await objects.write_block(replace(made, edition=2))
    assert await objects.write_block(replace(made, edition=3)) is None
    assert (await objects.block(KEY)).edition == won.edition == 2


@ON_FAKE
async def test_a_write_without_an_answer_is_none(api):
    """Whether it was done, only reading tells."""
    line = api.line()
    objects = ipam.IpamObjects(Cluster(line, QUICK), "kube-system")
    line.lose = 1
    assert await objects.write_block(BLOCK) is None
    assert (await objects.block(KEY)).edition == 1
    line.cut()
    assert await objects.write_block(BLOCK) is None
    with pytest.raises(Unavailable):
        await objects.block(KEY)


@ON_FAKE
async def test_a_write_that_is_forbidden_is_said(api, objects):
    """RBAC is no lost race: nobody would ever hear of it."""
    api.forbidden.add(("create", "ipblocks"))
    with pytest.raises(Refused, match="ipblocks"):
        await objects.write_block(BLOCK)


async def test_a_lease_is_made_renewed_fenced_and_dropped(objects):
    """The whole value survives, in a Lease of Kubernetes."""
    made = await objects.write_lease(LEASE)
    assert replace(made, version=None) == LEASE
    renewed = await objects.write_lease(replace(made, heartbeat=2))
    assert await objects.write_lease(replace(made, heartbeat=2, fenced=True)) is None
    fenced = await objects.write_lease(replace(renewed, heartbeat=3, fenced=True))
    assert await objects.lease("node-1") == fenced
    assert fenced.fenced
    await objects.drop_lease(renewed)
    assert await objects.lease("node-1") == fenced
    await objects.drop_lease(fenced)
    assert await objects.lease("node-1") is None


async def test_a_lease_without_a_journal(objects):
    """What the controller makes to fence a node that has none."""
    fence = NodeLease("node-1", "", "", heartbeat=1, fenced=True)
    assert replace(await objects.write_lease(fence), version=None) == fence


async def test_wants_live_in_the_status_beside_all_else(cluster, objects):
    """Another field of the status stays; the spec stays; a stale queue is not written."""
    await cluster.create(IP_POOL, Wanted("rail-0", spec=POOL))
    empty = await objects.borrow_queue("rail-0")
    queued = await objects.write_borrow_queue(replace(empty, requests=(REQUEST,)))
    assert queued.requests == (REQUEST,)
    assert await objects.write_borrow_queue(replace(empty, requests=())) is None
    stored = await cluster.get(IP_POOL, "rail-0")
    await cluster.replace_status(IP_POOL, replace(stored, status=replace(stored.status, used="7")))
    queue = await objects.borrow_queue("rail-0")
    await objects.write_borrow_queue(replace(queue, requests=()))
    stored = await cluster.get(IP_POOL, "rail-0")
    assert (stored.status.used, stored.status.wants) == ("7", ())
    assert [r.subnet for r in pool_of(stored).ranges] == [ip_network("10.0.0.0/24")]
    assert pool_of(stored).ranges[0].source == "IPPool rail-0: spec.ranges[0]"


async def test_a_pool_that_is_not_there_has_an_empty_queue(objects):
    assert await objects.borrow_queue("nobody") == BorrowQueue("nobody")
    assert await objects.write_borrow_queue(BorrowQueue("nobody", (REQUEST,))) is None


@ON_FAKE
async def test_a_garbled_object_hides_no_other(api, cluster, objects):
    """`see` tells it with a sentence that names object and field; a list refuses."""
    await objects.write_block(BLOCK)
    api.put(ipam.IP_BLOCK, GARBLED)
    seen = await cluster.see(ipam.IP_BLOCK)
    assert [each.name for each in seen.objects] == [KEY.name]
    (why,) = seen.muddled
    assert why.startswith("IPBlock default.10-0-0-0: ")
    assert "spec.first: 10.0.0.1 does not begin a block of 64 addresses" in why
    with pytest.raises(Refused, match=r"default\.10-0-0-0"):
        await blocks(cluster)


@ON_FAKE
async def test_a_block_under_another_name_is_broken(api, cluster):
    """Two objects for one block could be two holders for one address."""
    spec = {"network": "default", "first": "10.0.0.64"}
    api.put(ipam.IP_BLOCK, {**GARBLED, "spec": spec})
    with pytest.raises(Broken, match=r"IPBlock default.10-0-0-0, spec.first: 10.0.0.64"):
        await blocks(cluster)
