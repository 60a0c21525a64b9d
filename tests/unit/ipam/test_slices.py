"""Nodes of IPAM, running, with a pool whose nodes have slices."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused
from kube_rdma.model.ipam import NicRequest
from tests.unit.ipam.conftest import ask, served, texts, until

SLICES = {"subnet": "10.20.0.0/29", "perNode": {"prefix": 31, "gatewayIndex": 0}}


@pytest.fixture(autouse=True)
def routed(world):
    """Four slices of two addresses, of which one is the router's."""
    world.pool("routed", **SLICES)
    world.pool("other", subnet="10.9.0.0/16")


async def given(node, name):
    (allocation,) = (await served(node, ask(name, pool="routed"))).allocations
    assert allocation.gateway == allocation.subnet[0]
    assert allocation.subnet == ip_network((int(allocation.address) - 1, 31))
    return allocation


async def test_each_node_has_a_slice_of_its_own_and_says_when_it_is_full(world):
    """The second pod of a node finds no address, and another node still has its own."""
    async with world.node("node-1") as one, world.node("node-2") as two:
        first, second = await given(one, "a"), await given(two, "b")
        assert first.subnet != second.subnet
        assert await given(one, "a") == first
        with pytest.raises(Refused, match=f"{first.subnet}, which node node-1 has of the pool"):
            await _while_time_passes(world, one.add(ask("c", pool="routed")))
        await one.delete("a")
        await until(lambda: _gives(one, "c"))
        assert world.held("node-1") == 2


async def _gives(node, name):
    try:
        return bool(texts(await node.add(ask(name, pool="routed"))))
    except Refused:
        return False


async def _while_time_passes(world, asking):
    task = asyncio.ensure_future(asking)
    while not task.done():
        world.clock.time += 1
        await asyncio.sleep(0.01)
    return task.result()


async def test_a_pool_without_a_free_slice_says_so(world):
    """Four nodes have all of it; a fifth waits for no other node, and is told what to do."""
    for name in [f"node-{number}" for number in range(1, 5)]:
        async with world.node(name) as node:
            await given(node, name)
    async with world.node("node-5") as last:
        with pytest.raises(Refused, match=r"no /31 of 10\.20\.0\.0/29 is free for node node-5"):
            await _while_time_passes(world, last.add(ask("e", pool="routed")))


async def test_a_chosen_slice_of_which_another_node_holds_an_address_names_that_node(world):
    """A pool that was shared before."""
    world.pool("routed", subnet="10.20.0.0/29")
    chosen = [{"node": "node-1", "subnet": "10.20.0.2/31"}]
    async with world.node("node-2") as two, world.node("node-1") as one:
        for node, address in ((one, "10.20.0.5"), (two, "10.20.0.3")):
            nic = NicRequest("net1", "routed", addresses=(ip_address(address),))
            await served(node, ask(address, nic))
        world.pool("routed", **SLICES | {"perNode": SLICES["perNode"] | {"nodes": chosen}})
        await until(lambda: one.pools()["routed"].ranges[0].per_node)
        with pytest.raises(Refused, match="slice of node node-1, and node node-2 holds addresses"):
            await _while_time_passes(world, one.add(ask("a", pool="routed")))


async def test_a_node_has_its_slice_again_after_a_restart(world):
    """With its disk, and rebuilt with another one in a later boot."""
    async with world.node("node-1") as node:
        before = await given(node, "a")
    async with world.node("node-1") as node:
        assert await given(node, "a") == before
        await node.delete("a")
        assert (await given(node, "b")).subnet == before.subnet
