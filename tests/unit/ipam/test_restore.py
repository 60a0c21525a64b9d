"""Nodes of IPAM, running, whose API server goes back to an earlier hour."""

from ipaddress import ip_address
from itertools import count

import pytest

from kube_base.errors import Unavailable
from kube_rdma.ipam import cluster as ipam
from kube_rdma.model.ipam import NicRequest
from tests.unit.ipam.conftest import TIMING, ask, gives, served, texts, until


async def given(node, name):
    return texts(await served(node, ask(name)))


async def restored(world, backup, bump, *nodes):
    """Etcd goes back while the API server is down, which each node notices before it is up again.

    A write that a node begins before that would else reach the restored store, as none does where
    the server ends: it ends every connection.
    """
    for line in world.lines.values():
        line.cut()
    for node in nodes:
        await acquires_nothing(node, "while its watch of the IPBlocks is interrupted")
    world.server.restore(backup, bump)
    for line in world.lines.values():
        line.mend()


async def knows(world, node):
    """Wait until a node has noticed and entered again; then it acquires nothing for a minute."""
    await acquires_nothing(node, "takes new addresses in")


async def acquires_nothing(node, why):
    """Wait until a node refuses new addresses for this reason."""
    addresses = (ip_address(f"10.9.{n // 256}.{n % 256}") for n in count(1))

    async def refused():
        wish = NicRequest("net1", "other", addresses=(next(addresses),))
        try:
            await node.add(ask(f"probe-{wish.addresses[0]}", wish))
        except Unavailable as error:
            return why in str(error)
        return False

    await until(refused)


async def serve(world, *nodes):
    """The minute passes, and nodes give addresses."""

    async def all_give():
        return all([await gives(node) for node in nodes])

    world.clock.time += TIMING.recall
    await until(all_give)


@pytest.mark.parametrize("bump", [0, 1000])
async def test_a_restored_store_gives_nothing_twice(world, recording, bump):
    """Pods since the backup keep their addresses; new ones get others, after the minute."""
    world.pool("other", subnet="10.9.0.0/16")
    async with world.node("node-1") as one, world.node("node-2") as two:
        before = [await given(one, "a0")]
        backup = world.server.store.backup()
        before += [await given(one, f"a{n}") for n in range(1, 40)]
        before += [await given(two, f"b{n}") for n in range(40)]
        await restored(world, backup, bump, one, two)
        for node in (one, two):
            await knows(world, node)
        await until(lambda: asked_back(world, before[:40], before[40:]))
        assert await given(one, "a1") == before[1]
        recalls = recording.of("addresses recalled")
        assert {each["seconds"] for each in recalls} == {TIMING.recall}
        await serve(world, one, two)
        later = [await given(node, f"c{n}") for n in range(20) for node in (one, two)]
        every = [text for texts_ in (*before, *later) for text in texts_]
        assert len(every) == len(set(every))
        assert await one.check() == await two.check() == ()


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
async def test_a_definition_that_somebody_deletes_and_makes_again_gives_nothing_twice(world, seen):
    """While it is away nobody knows who has what; then all ask theirs back before any acquires."""
    world.pool("other", subnet="10.9.0.0/16")
    async with world.node("node-1") as one, world.node("node-2") as two:
        before = [
            await given(node, f"{n}-{at}") for n in range(40) for at, node in enumerate((one, two))
        ]
        world.server.uninstall(ipam.IP_BLOCK, seen=seen)
        for line in world.lines.values():
            line.requests.clear()
            await until(lambda line=line: asked_in_vain(line.requests))
        world.server.add(ipam.IP_BLOCK)
        for node in (one, two):
            await knows(world, node)
        await until(lambda: asked_back(world, before[::2], before[1::2]))
        assert await given(two, "3-1") == before[7]
        await serve(world, one, two)
        later = [await given(node, f"c{n}") for n in range(60) for node in (one, two)]
        every = [text for texts_ in (*before, *later) for text in texts_]
        assert len(every) == len(set(every))
        assert await one.check() == await two.check() == ()


async def test_a_node_that_starts_without_the_definition_keeps_its_pods_addresses(world):
    """Once the definition is there it asks back what its journal says, and others get the rest."""
    world.pool("other", subnet="10.9.0.0/16")
    async with world.node() as one:
        before = [await given(one, f"a{n}") for n in range(40)]
    world.server.uninstall(ipam.IP_BLOCK, seen=True)
    async with world.node(ready=False) as one:
        line = world.lines["node-1"]
        await until(lambda: asked_in_vain(line.requests))
        world.server.add(ipam.IP_BLOCK)
        await until(lambda: asked_back(world, before, []))
        async with world.node("node-2") as two:
            await serve(world, one, two)
            later = [await given(node, f"c{n}") for n in range(60) for node in (one, two)]
        every = [text for texts_ in (*before, *later) for text in texts_]
        assert len(every) == len(set(every))


def asked_in_vain(requests):
    """Whether blocks were asked for; there is no definition of them."""
    return any(one.plural == "ipblocks" for one in requests)


def asked_back(world, ones, twos):
    """Whether node-1 and node-2 hold what they gave to pods, each its own.

    A acquire that was under way when the store went back may hold it first, and is given back.
    """
    return all(
        held(world, node) >= {text for texts_ in given_ for text in texts_}
        for node, given_ in (("node-1", ones), ("node-2", twos))
    )


def held(world, node):
    """Every address that a node holds."""
    return {
        str(block.key.address(offset))
        for block in world.blocks()
        for holding in block.holdings
        for offset in range(64)
        if holding.node == node and holding.bits >> offset & 1
    }
