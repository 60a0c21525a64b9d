"""A pool's status says how full it is, is written when it changes, and never else."""

from datetime import UTC, datetime
from ipaddress import ip_network

import pytest

from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.ipam import IP_BLOCK, LEASE
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL
from kube_rdma.model.ipam import Block, BlockKey, Family, IPPool, IPRange, NodeHolding
from kube_rdma.programs.ipam.pool_status_reporter import PoolStatusReporter
from kube_rdma_testing.cluster.server import FakeServer

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SUBNET = ip_network("10.0.0.0/26")


@pytest.fixture
async def cluster():
    cluster = Cluster(FakeServer([IP_POOL, IP_BLOCK, LEASE]).line())
    pool = IPPool("pool", (IPRange(SUBNET),))
    await cluster.create(IP_POOL, Wanted("pool", spec=pool))
    return cluster


async def hold(cluster, count):
    """Let a node hold so many addresses of the pool's only block."""
    key = BlockKey("default", Family.V4, int(SUBNET.network_address))
    bits = ((1 << count) - 1) << 1
    block = Block(key, (NodeHolding("node-1", bits),))
    await cluster.create(IP_BLOCK, Wanted(key.name, spec=block))


async def test_the_status_is_written_once_and_again_when_it_changes(cluster):
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"))
    assert await reporter.report(NOW) == 1
    assert await reporter.report(NOW) == 0
    await hold(cluster, 10)
    assert await reporter.report(NOW) == 1
    status = (await cluster.get(IP_POOL, "pool")).status
    assert status.used == "10"
    assert status.ranges == "10.0.0.0/26"
    ready, nearly = sorted(status.conditions, key=lambda one: one.type, reverse=True)
    assert (ready.type, ready.status) == ("Ready", "True")
    assert (nearly.type, nearly.status) == ("NearlyFull", "False")


async def test_a_pool_that_runs_dry_is_said_before_it_does(cluster):
    await hold(cluster, 60)
    await PoolStatusReporter(cluster, Events(cluster, "test")).report(NOW)
    conditions = (await cluster.get(IP_POOL, "pool")).status.conditions
    assert {one.type: one.status for one in conditions}["NearlyFull"] == "True"


async def test_whoever_asks_is_told_how_full_all_pools_are(cluster):
    heard = []
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"), heard.append)
    await hold(cluster, 10)
    await reporter.report(NOW)
    await reporter.report(NOW)  # also where no status is written
    assert [[(one.pool, one.held, one.size) for one in look] for look in heard] == [
        [("pool", 10, 62)],
        [("pool", 10, 62)],
    ]
