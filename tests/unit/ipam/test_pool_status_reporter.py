"""A pool's status says how full it is, is written when it changes, and never else."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_network

import pytest

from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam import pool_status_reporter
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, LEASE
from kube_rdma.ipam.pool_status_reporter import PoolStatusReporter
from kube_rdma.model.ipam import Block, BlockKey, Family, IPPool, IPRange, NodeHolding
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside
from tests.unit.ipam.conftest import until

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SUBNET = ip_network("10.0.0.0/26")


@pytest.fixture
async def cluster():
    cluster = Cluster(FakeServer([IP_POOL, IP_BLOCK, LEASE]).line())
    await cluster.create(IP_POOL, Wanted("pool", spec=IPPool("pool", (IPRange(SUBNET),))))
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
    # It has one holder, who follows it: some statuses for him may be followed by others soon.
    assert [reporter.apart(written) for written in (0, 1, 5000)] == [10.0, 10.0, 100.0]
    assert status.ranges == "10.0.0.0/26"
    ready, nearly = sorted(status.conditions, key=lambda one: one.type, reverse=True)
    assert (ready.type, ready.status) == ("Ready", "True")
    assert (nearly.type, nearly.status) == ("NearlyFull", "False")


async def test_a_new_pool_has_its_status_while_those_of_others_wait(cluster):
    """Every agent receives a status, so with thousands of them one is written rarely."""
    heard = []
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"), heard.append)
    assert await reporter.report(NOW) == 1
    await hold(cluster, 10)
    await cluster.create(IP_POOL, Wanted("new", spec=IPPool("new", (IPRange(SUBNET),))))
    assert await reporter.report(NOW, edited=True) == 1
    assert (await cluster.get(IP_POOL, "new")).status.used == "10"
    assert (await cluster.get(IP_POOL, "pool")).status.used == "0"
    assert [one.held for parts in heard[-1].values() for one in parts] == [10, 10]
    assert await reporter.report(NOW) == 1


async def test_whoever_asks_is_told_how_full_all_pools_are(cluster):
    heard = []
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"), heard.append)
    await hold(cluster, 10)
    await reporter.report(NOW)
    await reporter.report(NOW)  # also where no status is written
    assert [
        [(name, one.held, one.size) for name, parts in look.items() for one in parts]
        for look in heard
    ] == [[("pool", 10, 62)], [("pool", 10, 62)]]


class Looks:
    """How full the pools were at each look of a reporter that runs."""

    def __init__(self):
        self.held = []
        self._news = asyncio.Condition()
        self._tasks = set()

    def heard(self, usages):
        self.held.append(sum(usage.held for each in usages.values() for usage in each))
        task = asyncio.ensure_future(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self):
        async with self._news:
            self._news.notify_all()

    async def until(self, condition):
        async with self._news:
            await self._news.wait_for(lambda: condition(self.held))


@asynccontextmanager
async def running(line):
    """A reporter of a controller that leads, and its looks."""
    cluster, looks = Cluster(line), Looks()
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"), looks.heard)
    async with beside(reporter.run()):
        yield looks


async def test_blocks_are_listed_once_however_often_it_looks(monkeypatch):
    """There may be as many as nodes: of 5,000 a list is megabytes, and there were six a minute."""
    monkeypatch.setattr(pool_status_reporter, "REPORT_SECONDS", 0.0)
    server = FakeServer([IP_POOL, IP_BLOCK, LEASE])
    people, line = Cluster(server.line()), server.line()
    await people.create(IP_POOL, Wanted("pool", spec=IPPool("pool", (IPRange(SUBNET),))))
    async with running(line) as looks:
        await looks.until(lambda held: len(held) >= 3)
        await hold(people, 10)
        await looks.until(lambda held: held[-3:] == [10, 10, 10])
    lists = [one for one in line.requests if (one.verb, one.plural) == ("list", "ipblocks")]
    assert len(lists) == 1


async def test_a_garbled_block_is_left_out_of_no_count(monkeypatch):
    """What is not understood may be anybody's addresses: its pools keep their figures, and say it.

    Pools of other networks are reported as ever, where one block stopped all.
    """
    monkeypatch.setattr(pool_status_reporter, "REPORT_SECONDS", 0.0)
    server = FakeServer([IP_POOL, IP_BLOCK, LEASE])
    people = Cluster(server.line())
    await people.create(IP_POOL, Wanted("pool", spec=IPPool("pool", (IPRange(SUBNET),))))
    await hold(people, 10)
    (well,) = server.documents("ipblocks")
    async with running(server.line()) as looks:
        await looks.until(lambda held: held[-1:] == [10])
        spec = {**well["spec"], "first": "10.0.0.3"}
        server.put(IP_BLOCK, {"metadata": {"name": well["metadata"]["name"]}, "spec": spec})
        other = IPPool("other", (IPRange(SUBNET),), network="other")
        await people.create(IP_POOL, Wanted("other", spec=other))
        await hold_other(people)
        await looks.until(lambda held: held[-1:] == [11])
        await until(lambda: conflicts(server))
        assert "10.0.0.3 does not begin a block" in conflicts(server)[0]
        server.put(IP_BLOCK, {"metadata": {"name": well["metadata"]["name"]}, "spec": well["spec"]})
        await until(lambda: not conflicts(server))
    assert set(looks.held[looks.held.index(10) :]) == {10, 11}


def conflicts(server):
    """What the statuses of the pools say of them."""
    return [each for pool in server.documents("ippools") for each in pool["status"]["conflicts"]]


async def test_a_pool_whose_handling_raises_says_so_and_others_are_reported(cluster, monkeypatch):
    """Each look at all pools ended at the first that raised what nobody expects."""
    await cluster.create(IP_POOL, Wanted("another", spec=IPPool("another", (IPRange(SUBNET),))))
    reader = kinds.pool_of_text

    def fail(stored):
        if stored.name == "another":
            raise RecursionError
        return reader(stored)

    monkeypatch.setattr(kinds, "pool_of_text", fail)
    with recorded() as log:
        reporter = PoolStatusReporter(cluster, Events(cluster, "test"))
        assert await reporter.report(NOW) == 2
        assert await reporter.report(NOW) == 0
    assert (await cluster.get(IP_POOL, "pool")).status.free == "62"
    status = (await cluster.get(IP_POOL, "another")).status
    ready = {one.type: one for one in status.conditions}["Ready"]
    assert ready.status == "False"
    assert ready.message.startswith("kube-rdma cannot handle this IPPool (RecursionError)")
    assert len(log.of("object failed")) == 1


async def hold_other(cluster):
    """A node holds an address of another network, which is none of the pool's."""
    key = BlockKey("other", Family.V4, int(SUBNET.network_address))
    await cluster.create(IP_BLOCK, Wanted(key.name, spec=Block(key, (NodeHolding("node-2", 2),))))
