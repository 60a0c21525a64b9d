"""A pool's status names the generation that was looked at: none that comes, none of before.

Two controllers write beside each other, as while one takes over, and the spec changes meanwhile.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_client.kinds import ObjectKind, Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, IP_POOL_TEXT, LEASE
from kube_rdma.ipam.pool_status_reporter import PoolStatusReporter
from kube_rdma.model.ipam import IPPool, IPRange
from kube_rdma_testing.cluster.server import FakeServer

START = datetime(2026, 11, 26, tzinfo=UTC)
SUBNETS = [ip_network(f"10.0.{number}.0/26") for number in range(4)]


class SlowCluster(Cluster):
    """A client whose writes of a status are late: something happens between look and write."""

    def __init__(self, line, meanwhile):
        super().__init__(line)
        self._meanwhile = meanwhile

    async def replace_status(self, kind: ObjectKind, changed):
        await self._meanwhile()
        return await super().replace_status(kind, changed)


class PoolWorld:
    """One pool, two controllers, and what its status has said until now."""

    def __init__(self):
        self.server = FakeServer([IP_POOL, IP_BLOCK, LEASE])
        self.people = Cluster(self.server.line())
        self.seen = [-1]
        self.now = START

    async def stored(self):
        return await self.people.get(IP_POOL, "pool")

    async def edit(self, subnet):
        """Somebody writes another spec, or the same again."""
        stored = await self.stored()
        pool = replace(stored.spec, ranges=(IPRange(subnet),))
        await self.people.replace(IP_POOL, replace(stored, spec=pool))

    async def report(self, meanwhile):
        """A controller looks, and writes after something has happened."""
        cluster = SlowCluster(self.server.line(), meanwhile)
        self.now += timedelta(seconds=10)
        await PoolStatusReporter(cluster, Events(cluster, "test")).report(self.now)

    async def check(self):
        """What holds after each step."""
        stored = await self.stored()
        observed = stored.status.observed_generation if stored.status else -1
        assert observed <= stored.generation
        assert observed >= self.seen[-1]
        if observed == stored.generation:
            ranges = ", ".join(str(each.subnet) for each in stored.spec.ranges)
            assert stored.status.ranges == ranges
        self.seen.append(observed)


subnets = st.sampled_from(SUBNETS)
# What happens while a controller is between its look and its write.
meanwhiles = st.none() | subnets | st.just("another controller")
steps = st.lists(
    st.tuples(st.just("edit"), subnets) | st.tuples(st.just("report"), meanwhiles), max_size=8
)


@given(steps)
def test_a_status_names_a_generation_that_was_looked_at_and_none_before_the_last(steps):
    asyncio.run(_lived(steps))


async def _lived(steps):
    world = PoolWorld()
    await world.people.create(IP_POOL, Wanted("pool", spec=IPPool("pool", (IPRange(SUBNETS[0]),))))
    for step, what in steps:
        if step == "edit":
            await world.edit(what)
        else:
            await world.report(_meanwhile(world, what))
        await world.check()
    await world.report(_meanwhile(world, None))
    stored = await world.stored()
    assert stored.status.observed_generation == stored.generation


def _meanwhile(world, what):
    async def happens():
        if what == "another controller":
            await world.report(_meanwhile(world, None))
        elif what:
            await world.edit(what)
        await world.check()

    return happens


async def test_a_pool_that_is_not_understood_has_a_status_that_says_so():
    """It was stored where no webhook looks; whoever waits for it is told at once."""
    server = FakeServer([IP_POOL_TEXT, IP_BLOCK, LEASE])
    cluster = Cluster(server.line())
    spec = b'{"ranges": [{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]}'
    await cluster.create(IP_POOL_TEXT, Wanted("pool", spec=spec))
    reporter = PoolStatusReporter(cluster, Events(cluster, "test"))
    assert (await reporter.report(START), await reporter.report(START)) == (1, 0)
    stored = await cluster.get(IP_POOL_TEXT, "pool")
    conditions = {each.type: each for each in stored.status.conditions}
    assert stored.status.observed_generation == stored.generation
    assert (conditions["Ready"].status, conditions["Stalled"].status) == ("False", "True")
    assert "have addresses in common" in conditions["Stalled"].message
    assert json.loads(stored.spec) == json.loads(spec)
