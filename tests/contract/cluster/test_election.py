"""Two copies and one Lease, on the fake and on a real server (lab/native/test_api_server.py)."""

import asyncio
from pathlib import Path

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.controller.leadership import ELECTION, ElectionLease, Leadership
from kube_rdma.model.election import ElectionRecord, ElectionTiming
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.kit.api_server import POWERLESS, QUICK, REAL
from tests.kit.beside import beside

NAME, NAMESPACE = "kube-rdma-contract", "default"
PATIENT = ElectionTiming(duration=3600.0, deadline=3000.0, retry=0.02)
HASTY = ElectionTiming(duration=0.6, deadline=0.3, retry=0.02)


class Copies:
    """Copies of a program that do nothing but say who works."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.working = []
        self.worked = []

    async def work(self, name):
        """Until it is cancelled."""
        self.working.append(name)
        self.worked.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            self.working.remove(name)

    def standing(self, name, timing, cluster=None):
        """One copy, which ends in order."""
        lease = ElectionLease(cluster or self.cluster, NAME, NAMESPACE)
        run = Leadership(lease, name, timing).run(lambda: self.work(name))
        return beside(run)

    async def until(self, *names):
        """Wait until exactly these work."""
        async with asyncio.timeout(30):
            while self.working != [*names]:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)


@pytest.fixture
def api():
    return FakeServer([ELECTION])


@pytest.fixture
async def copies(api):
    if not REAL:
        yield Copies(Cluster(api.line(), QUICK))
        return
    async with connect(Path(REAL), pace=QUICK) as real:
        for found in await real.list(ELECTION):
            if found.name == NAME:
                await real.delete(ELECTION, found, unchanged=False)
        yield Copies(real)


async def test_one_of_two_works_and_the_other_follows_at_once_when_it_ends(copies):
    """Its Lease is given back; else the other would wait for an hour."""
    async with copies.standing("b", PATIENT) as second:
        await copies.until("b")
        async with copies.standing("a", PATIENT):
            second.cancel()
            await copies.until("a")
            record = await ElectionLease(copies.cluster, NAME, NAMESPACE).read()
            assert (record.holder, record.transitions) == ("a", 1)


async def test_the_lease_is_as_client_go_writes_it(copies):
    async with copies.standing("a", PATIENT):
        await copies.until("a")
        record = (await copies.cluster.get(ELECTION, NAME, NAMESPACE)).spec
        assert (record.holder, record.duration, record.transitions) == ("a", 3600.0, 0)
        assert record.acquired.endswith("Z")
        assert record.renewed >= record.acquired


async def test_a_lease_of_another_that_is_not_renewed_is_taken(copies):
    """A copy that was killed gives nothing back."""
    lease = ElectionLease(copies.cluster, NAME, NAMESPACE)
    await lease.read()
    assert await lease.write(ElectionRecord("dead", HASTY.duration))
    async with copies.standing("a", HASTY):
        await copies.until("a")


async def test_who_may_not_write_the_lease_says_so_once_and_does_not_work(copies, api):
    async def stand(cluster):
        with recorded() as log:
            async with copies.standing("powerless", HASTY, cluster), asyncio.timeout(30):
                while not log.of("lease not written"):  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
            assert len(log.of("lease not written")) == 1
        assert copies.worked == []

    if REAL:
        async with connect(Path(POWERLESS), pace=QUICK) as powerless:
            await stand(powerless)
    else:
        api.forbidden = {("get", "leases")}
        await stand(Cluster(api.line(), QUICK))


@pytest.mark.skipif(bool(REAL), reason="the network is cut on the fake")
async def test_who_cannot_renew_stops_and_works_again_when_the_network_is_back(copies, api):
    line = api.line()
    async with copies.standing("a", HASTY, Cluster(line, QUICK)):
        await copies.until("a")
        line.cut()
        await copies.until()
        async with copies.standing("b", HASTY):
            await copies.until("b")
            line.mend()
        await copies.until("a")
    assert copies.worked == ["a", "b", "a"]


async def test_what_the_work_raises_ends_the_copy_and_gives_the_lease_back(copies):
    async def broken():
        raise OSError("broken")

    lease = ElectionLease(copies.cluster, NAME, NAMESPACE)
    with pytest.raises(OSError, match="broken"):
        await Leadership(lease, "a", PATIENT).run(broken)
    async with copies.standing("b", PATIENT):
        await copies.until("b")
