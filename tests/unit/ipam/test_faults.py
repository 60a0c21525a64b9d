"""A node whose neighbours fail: nothing is given twice, and what is said tells what to do."""

import asyncio

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.effect_runner import EffectRunner
from kube_rdma.ipam.rules.effects import ReadLease, WriteLease
from kube_rdma.model.ipam import JournalId, NicRequest, NodeLease
from kube_rdma_testing.disk import Failing, FakeDisk, Killed
from tests.unit.ipam.conftest import SPACE, TIMING, ask, gives, texts, until
from tests.unit.kube_client.test_silence import Loop


async def test_without_the_api_server_a_node_gives_what_it_holds_for_a_while(world):
    """Cut off it serves from its stock until T is over, then refuses; mended it goes on."""
    async with world.node() as addresses:
        first = texts(await addresses.add(ask("c1")))
        world.lines["node-1"].cut()
        second = texts(await addresses.add(ask("c2")))
        world.clock.time += TIMING.contact
        with pytest.raises(Unavailable, match="no contact with the API server for too long"):
            await addresses.add(ask("c3"))
        world.lines["node-1"].mend()
        await until(lambda: gives(addresses))
        third = texts(await addresses.add(ask("c3")))
    assert len({*first, *second, *third}) == 3


@pytest.mark.parametrize("lost", range(1, 7))
async def test_lost_answers(world, lost):
    """However many answers are lost in a row, all pods get addresses, and blocks agree."""
    async with world.node() as addresses:
        world.lines["node-1"].lose = lost
        found = [texts(await _patiently(addresses, f"c{n}")) for n in range(40)]
        assert len({*map(tuple, found)}) == 40
        assert await addresses.check() == ()
        state = addresses._agent.state
        await until(
            lambda: all(
                not holding.uncertain for holding in addresses._agent.state.holdings.values()
            )
        )
        assert state.node == "node-1"
        mine = sum(h.confirmed.bit_count() for h in addresses._agent.state.holdings.values())
        assert world.held("node-1") == mine


async def test_repeated_deliveries_and_failures(world):
    """A write that arrives twice and answers of 500 and 429 do no harm."""
    async with world.node() as addresses:
        line = world.lines["node-1"]
        line.repeat, line.fail = 4, [500, 429, 500]
        found = [texts(await _patiently(addresses, f"c{n}")) for n in range(40)]
    assert len({*map(tuple, found)}) == 40


@pytest.mark.parametrize("step", range(25))
async def test_killed_at_any_step_of_the_journal(world, step):
    """What was answered before is still so after the restart, and nobody else has it."""
    disk, answered = FakeDisk(), {}
    try:
        async with world.node(disk=Failing(disk, at=step)) as addresses:
            for name in ("c1", "c2", "c3"):
                answered[name] = texts(await addresses.add(ask(name)))
            del answered["c2"]
            await addresses.delete("c2")
    except* Killed:
        pass
    disk.crash(lost=step % 3)
    async with world.node(disk=disk) as addresses:
        for name, found in answered.items():
            assert texts(await addresses.add(ask(name))) == found
        new = [texts(await addresses.add(ask(f"d{n}"))) for n in range(5)]
        assert not {text for each in new for text in each} & {
            t for a in answered.values() for t in a
        }


async def test_a_full_disk(world):
    """The pod's error says what the journal needs; with room again it gets its address."""
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        disk.capacity = 10
        with pytest.raises(Unavailable, match=r"No space left on device.*disk that is writable"):
            await addresses.add(ask("c1"))
        disk.capacity = None
        await addresses.add(ask("c1"))


@pytest.mark.parametrize("fault", [{"capacity": 0}, {"read_only": True}])
async def test_a_disk_that_takes_nothing_holds_up_no_end(world, fault):
    """The address cools down in memory; it is given once the journal could note that it is free."""
    world.pool("one", subnet="10.1.0.0/30", rest=5)
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        first = [texts(await addresses.add(ask(f"c{n}", pool="one"))) for n in range(2)]
        vars(disk).update(fault)
        await addresses.delete("c0")
        await addresses.delete("c0")
        disk.capacity, disk.read_only = None, False
        assert await refused(world, addresses, ask("d", pool="one"))
        world.clock.time += 5
        assert texts(await addresses.add(ask("e", pool="one"))) == first[0]


@pytest.mark.parametrize("fault", [{"capacity": 0}, {"read_only": True}])
async def test_a_restart_frees_what_could_not_be_noted(world, fault):
    """The record still has the address of a container that is gone: its cool-down begins now."""
    world.pool("one", subnet="10.1.0.0/30", rest=5)
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        first = texts(await addresses.add(ask("c0", pool="one")))
        await addresses.add(ask("c1", pool="one"))
        vars(disk).update(fault)
        await addresses.delete("c0")
    disk.capacity, disk.read_only = None, False
    async with world.node(disk=disk) as addresses:
        world.clock.time += 1
        await addresses.collect(frozenset({"c1"}), addresses.now())
        assert await refused(world, addresses, ask("d", pool="one"))
        world.clock.time += 5
        assert texts(await addresses.add(ask("e", pool="one"))) == first


async def refused(world, addresses, request):
    """Whether a request that waited as long as requests do is refused, for the pool is full."""
    waiting = asyncio.create_task(addresses.add(request))
    await asyncio.sleep(10 * world.timing.tick)
    world.clock.time += TIMING.patience
    with pytest.raises(Refused, match="the pool is full"):
        await waiting
    return True


async def test_a_record_that_cannot_be_read(world):
    """The node gives nothing: an address that a pod has may stand in it."""
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        await addresses.add(ask("c1"))
    handle = disk.create("c1.json")
    disk.write(handle, b"{")
    disk.close(handle)
    with pytest.raises(Broken, match=r"drain the node first\. journal/c1\.json cannot be read"):
        async with world.node(disk=disk):
            pass


async def test_a_record_of_a_later_version(world):
    """After a roll-back the node gives nothing and keeps what it holds; DEL works all the same.

    Updated again, it goes on, and every address is whose it was.
    """
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        kept = texts(await addresses.add(ask("c1")))
        await addresses.add(ask("c2"))
    held, content = world.held("node-1"), disk.read("c1.json")
    _overwrite(disk, "c1.json", content.replace(b'"Lease"', b'"Lease2"'))
    async with world.node(disk=disk, ready=False) as addresses:
        await until(lambda: addresses._trouble)
        with pytest.raises(Unavailable, match=r"gives no addresses yet: .*run the version that"):
            await addresses.add(ask("c3"))
        await addresses.delete("c2")
        await addresses.delete("c1")
    assert world.held("node-1") == held
    _overwrite(disk, "c1.json", content)
    async with world.node(disk=disk) as addresses:
        assert texts(await addresses.add(ask("c1"))) == kept
        assert kept != texts(await addresses.add(ask("c4")))


async def test_a_record_of_a_later_version_that_a_person_removed(world):
    disk = FakeDisk()
    async with world.node(disk=disk):
        _overwrite(disk, "c1.json", b'{"version": 2}')
    async with world.node(disk=disk, ready=False) as addresses:
        await until(lambda: addresses._trouble)
        disk.unlink("c1.json")
        world.clock.time += TIMING.contact
        await until(lambda: gives(addresses))


def _overwrite(disk, name, content):
    handle = disk.create(name)
    disk.write(handle, content)
    disk.close(handle)


async def test_a_journal_without_its_id(world):
    disk = FakeDisk()
    async with world.node(disk=disk) as addresses:
        await addresses.add(ask("c1"))
    disk.unlink("journal@id.json")
    with pytest.raises(Broken, match="not the journal's own id"):
        async with world.node(disk=disk):
            pass


async def test_what_rbac_forbids_is_said(world):
    """Not that the pool is full, but which rule is missing."""
    world.server.forbidden.add(("create", "ipblocks"))
    async with world.node() as addresses:
        asked = asyncio.create_task(addresses.add(ask("c1")))
        await until(lambda: addresses._runner.refusal)
        world.clock.time += 2 * TIMING.patience
        with pytest.raises(
            Refused, match=r'Add the rule .*"ipblocks".*"create".* to a role of fake'
        ):
            await asked
        world.server.forbidden.clear()
        await addresses.add(ask("c1"))


async def test_a_pool_that_is_edited(world):
    """A pool that comes later is known at once, one that gives nothing says why."""
    async with world.node() as addresses:
        world.pool("late", subnet="10.2.0.0/24")
        await until(lambda: "late" in addresses._agent.catalog)
        await addresses.add(ask("c1", pool="late"))
        world.pool("late", subnet="10.2.0.0/32")
        await until(lambda: "late" not in addresses._agent.catalog)
        with pytest.raises(Refused, match="nothing is left to give"):
            await addresses.add(ask("c2", pool="late"))


async def test_pools_are_shown_as_addresses_are_given_out_of_them(world):
    """With their latest change; not while the API server tells none, for then they may be old."""
    world.pool("late", subnet="10.2.0.0/24")
    async with world.node() as addresses:
        assert addresses.pools()["p"].cooldown == 0
        world.pool("p", rest=7, subnet="10.0.0.0/24")
        await until(lambda: addresses.pools()["p"].cooldown == 7)
        assert set(addresses.pools()) == {"p", "late"}
        world.lines["node-1"].cut()
        await until(lambda: addresses.pools() is None)
        world.lines["node-1"].mend()
        await until(addresses.pools)


async def test_a_caller_that_gives_up(world):
    """Its request goes on to its end: asked again, the container has what was given."""
    async with world.node() as addresses:
        asked = asyncio.create_task(addresses.add(ask("c1")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: not addresses._requests)
        recorded = addresses._agent.state.records["c1"].allocations
        assert texts(await addresses.add(ask("c1"))) == [str(recorded[0].address)]


async def test_a_request_that_waits_ends_with_the_node(world):
    more_than_there_are = [NicRequest(f"net{n}", "p") for n in range(255)]
    async with world.node() as addresses:
        asked = asyncio.create_task(addresses.add(ask("c1", *more_than_there_are)))
        await until(lambda: "c1" in addresses._agent.waiting)
    await asyncio.wait({asked})
    assert asked.cancelled()


async def test_a_block_that_was_garbled(world):
    """Pods get addresses of other blocks, and what else there is to do is done."""
    async with world.node() as addresses:
        await addresses.add(ask("c1", NicRequest("net1", "p")))
        (block,) = world.server.documents("ipblocks")
        spec = {**block["spec"], "edition": "many"}
        world.server.put(ipam.IP_BLOCK, world.document("IPBlock", block["metadata"]["name"], spec))
        found = [texts(await _patiently(addresses, f"d{n}")) for n in range(60)]
        assert len({*map(tuple, found)}) == 60
        await addresses.delete("d59")
        await until(lambda: "d59" not in addresses._agent.state.records)


class Starved:
    """A transport whose process gets no turn for a quarter of an hour, with the answer there.

    It then takes a few turns to come from the socket to the one who asked.
    """

    def __init__(self, line):
        self.line = line

    async def send(self, request):
        answer = await self.line.send(request)
        asyncio.get_running_loop().ahead += 900.0
        for _ in range(3):
            await asyncio.sleep(0)
        return answer


def renewal():
    """An operation that writes the node's lease, then reads it."""
    written = yield WriteLease(NodeLease("node-1", JournalId("j"), "b"))
    return written, (yield ReadLease("node-1"))


def test_an_answer_that_a_starved_node_reads_late_counts(world):
    """A limit by the clock would throw it away, and with it the node's right to give addresses."""
    objects = ipam.IpamObjects(Cluster(Starved(world.server.line())), SPACE)
    with asyncio.Runner(loop_factory=Loop) as runner:
        written, read = runner.run(EffectRunner(objects, world.timing).run(renewal()))
    assert written == read
    assert read.journal == "j"


async def test_a_write_without_an_answer_is_unknown(world):
    line = world.server.line()
    line.lose = 1
    objects = ipam.IpamObjects(Cluster(line), SPACE)
    written, read = await EffectRunner(objects, world.timing).run(renewal())
    assert written is None
    assert read.journal == "j"


async def test_a_list_that_is_refused_is_told_at_once(world):
    """A node that cannot list its blocks says why, and gives addresses as soon as it can."""
    world.server.forbidden.add(("list", "ipblocks"))
    async with world.node(ready=False) as addresses:
        await until(lambda: "ipblocks" in str(addresses._trouble))
        with pytest.raises(Unavailable, match=r"gives no addresses yet:.*ipblocks"):
            await addresses.check()
        world.server.forbidden.clear()
        await until(lambda: gives(addresses))


async def _patiently(addresses, container):
    """As a runtime does: ask until there is an answer."""
    while True:
        try:
            return await addresses.add(ask(container))
        except Unavailable:
            await asyncio.sleep(0.002)
