"""A node follows the blocks that name it, and reads others only when it lacks addresses."""

import asyncio
import json

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.objects import block_labels, decode_block, holder_label, pin_label
from kube_rdma.ipam.rules.agent import next_tick
from kube_rdma.model.ipam import NicRequest
from tests.unit.ipam.conftest import TIMING, ask, gives, served, texts, until
from tests.unit.ipam.test_gc import join, patrolling


def labels(world):
    """The labels of each block, and those that it should have."""
    for document in world.server.documents("ipblocks"):
        block = decode_block(json.dumps(document["spec"]).encode())
        yield document["metadata"].get("labels", {}), dict(block_labels(block))


def as_earlier(world):
    """Write all blocks as a release without labels does."""
    for document in world.server.documents("ipblocks"):
        spec = {**document["spec"], "edition": document["spec"]["edition"] + 1}
        name = document["metadata"]["name"]
        world.server.put(ipam.IP_BLOCK, world.document("IPBlock", name, spec))


async def patiently(world, node, request):
    """The addresses that a node gets, with the time that others need to give them back."""
    asked = asyncio.create_task(served(node, request))
    while not asked.done():
        world.clock.time += 0.02
        await asyncio.sleep(0.001)
    return texts(await asked)


async def test_what_other_nodes_have_is_not_sent_to_a_node(world):
    """Neither when it starts nor when their pods do; it lists what has its own label."""
    world.pool("wide", subnet="10.64.0.0/10")
    async with world.node("node-1") as one, world.node("node-2") as two:
        for n in range(80):
            await served(one, ask(f"a{n}", pool="wide"))
        await two.add(ask("b", pool="wide"))
        await until(lambda: two._agent.blocks)
        assert {h.node for b in two._agent.blocks.values() for h in b.holdings} == {"node-2"}
        asked = [one for one in world.lines["node-2"].requests if one.plural == "ipblocks"]
    every = {dict(one.query).get("labelSelector") for one in asked if one.verb in ("list", "watch")}
    assert every == {holder_label("node-2")}
    assert all(have == wanted for have, wanted in labels(world))


async def test_a_node_that_lacks_addresses_sees_all_blocks_for_a_while(world):
    """It finds the last free one, and forgets what it saw of other nodes."""
    world.pool("small", subnet="10.1.0.0/28")
    async with world.node("node-1") as one, world.node("node-2") as two:
        given = [await patiently(world, one, ask(f"a{n}", pool="small")) for n in range(5)]
        given += [await patiently(world, two, ask(f"b{n}", pool="small")) for n in range(9)]
        assert len({*map(tuple, given)}) == 14
        assert two._agent.sees_all
        world.clock.time += world.timing.agreed.sight + 1
        world.lines["node-2"].requests.clear()
        await until(lambda: not two._agent.sees_all and len(two._blocks) == 1)
        assert set(two._agent.blocks) == set(two._agent.state.holdings)


async def test_a_node_that_is_updated_finds_what_it_holds(world):
    """Its pods' addresses by its journal, its stock once the controller wrote the labels."""
    join(world, "node-1")
    async with world.node() as addresses:
        kept = texts(await addresses.add(ask("a")))
    stock = world.held("node-1")
    as_earlier(world)
    async with world.node() as addresses, patrolling(world):
        assert texts(await addresses.add(ask("a"))) == kept
        await until(lambda: all(have == wanted for have, wanted in labels(world)))
        sure = addresses._agent.state
        await until(lambda: sum(h.confirmed.bit_count() for h in sure.holdings.values()) == stock)
    assert world.held("node-1") == stock


async def test_a_label_that_another_release_takes_away_is_no_deletion(world, recording):
    """The node reads its block, gives addresses on, and writes the label again."""
    async with world.node() as addresses:
        for n in range(3):
            await served(addresses, ask(f"a{n}"))
            as_earlier(world)
            await until(lambda: all(have == wanted for have, wanted in labels(world)))
        await until(lambda: gives(addresses))
        assert addresses._agent.recall_until < 0
    assert not recording.of("addresses recalled")


async def test_an_address_that_another_node_gives_back_is_asked_back(world):
    """Nothing shows it to the node that lost it: it looks whenever it renews its lease."""
    async with world.node() as addresses:
        (lost,) = texts(await addresses.add(ask("a")))
        for holdings, count in (([{"node": "node-9", "addresses": [lost]}], 1), ([], 0)):
            (document,) = world.server.documents("ipblocks")
            edition = document["spec"]["edition"] + 1
            spec = {**document["spec"], "edition": edition, "holdings": holdings}
            name = document["metadata"]["name"]
            world.server.put(ipam.IP_BLOCK, world.document("IPBlock", name, spec))
            world.clock.time += TIMING.contact / 3
            await until(lambda count=count: gives(addresses, lost=count))


async def test_a_pod_gets_its_last_address_on_a_node_that_did_not_see_it(world):
    """By the label of the pod, in one list."""
    world.pool("wide", subnet="10.64.0.0/10")
    nic = NicRequest("net1", "wide", owner="default/db-0/net1")
    async with world.node("node-1") as one, world.node("node-2") as two:
        first = texts(await one.add(ask("a", nic)))
        await until(lambda: any(pin_label(nic.owner) in have for have, _ in labels(world)))
        await one.delete("a")
        assert await patiently(world, two, ask("b", nic)) == first


async def test_a_node_at_rest_has_nothing_to_do(world):
    """With hundreds of pods, until the cool-down of one ends."""
    world.pool("wide", rest=30, subnet="10.64.0.0/10")
    async with world.node() as addresses:
        for n in range(300):
            await served(addresses, ask(f"a{n}", pool="wide"))
        await until(lambda: next_tick(addresses._agent, world.clock()) == float("inf"))
        await addresses.delete("a7")
        assert next_tick(addresses._agent, world.clock()) == world.clock() + 30


@pytest.mark.parametrize("owner", ["text", "node//10.0.0.0", "a/B/c"])
def test_an_owner_that_is_no_pod_has_no_label(owner):
    assert pin_label(owner) == ""


async def test_a_label_that_is_not_ours_is_no_reason_to_write(world):
    """Else a webhook that labels all objects would have each node write each second."""
    async with world.node() as addresses:
        await served(addresses, ask("a"))
        await until(lambda: next_tick(addresses._agent, world.clock()) == float("inf"))
        (document,) = world.server.documents("ipblocks")
        meta = {**document["metadata"], "labels": {**document["metadata"]["labels"], "team": "a"}}
        world.server.put(ipam.IP_BLOCK, {**document, "metadata": meta})
        version = world.server.documents("ipblocks")[0]["metadata"]["resourceVersion"]
        seen = addresses._agent
        await until(lambda: all(int(b.version) >= int(version) for b in seen.blocks.values()))
        assert next_tick(addresses._agent, world.clock()) == float("inf")


async def test_a_watch_of_all_blocks_that_fails_does_not_keep_a_node_from_its_own(world):
    """It ends with the lack, and the node may take addresses again."""
    world.pool("small", subnet="10.1.0.0/28")
    async with world.node() as addresses:
        for n in range(14):
            await patiently(world, addresses, ask(f"a{n}", pool="small"))
        with pytest.raises(Refused):
            await patiently(world, addresses, ask("b", pool="small"))
        assert addresses._agent.sees_all
        line = world.lines["node-1"]
        meet = line._meet

        def busy(request):
            every = "labelSelector" not in dict(request.query) and request.plural == "ipblocks"
            if every and request.verb in ("list", "watch"):
                raise Unavailable("the list of all blocks takes too long")
            return meet(request)

        line._meet = busy
        line.break_watches()
        await until(addresses._agent.is_watch_interrupted)
        world.clock.time += world.timing.agreed.sight + 1
        await until(lambda: not addresses._agent.is_watch_interrupted())
        await served(addresses, ask("c"))


async def test_what_cannot_be_written_is_tried_more_and_more_rarely(world):
    """As when the agents' policy is of an earlier release, on all nodes at once."""
    failures = set()

    def pause(count):
        failures.add(count)
        return 0.0

    async with world.node() as addresses:
        await served(addresses, ask("a"))
        await until(lambda: next_tick(addresses._agent, world.clock()) == float("inf"))
    world.server.forbidden |= {("update", "ipblocks"), ("create", "ipblocks")}
    world.timing = replace(world.timing, pause=pause)
    async with world.node(ready=False):
        await until(lambda: 9 in failures)


async def test_the_first_pod_of_a_pool_of_slices_ends_its_look_at_all_blocks(world):
    """After a while, with no other news."""
    world.pool("slices", subnet="10.3.0.0/24", perNode={"prefix": 28})
    agreed = replace(TIMING, sight=0.05)
    world.timing = replace(world.timing, agreed=agreed, longest=3600.0)
    async with world.node() as addresses:
        await served(addresses, ask("a", pool="slices"))
        world.clock.time += 1
        await until(lambda: not addresses._agent.sees_all and len(addresses._blocks) == 1)


@pytest.mark.parametrize("entry", [["120-10.0.0.120"], ["120", "121"], ["120", "120"], []])
async def test_a_block_in_another_spelling_is_written_anew(world, entry):
    """Agents may change no text of another node, so a stolen token could keep all others out."""
    join(world, "node-1")
    join(world, "a-node")
    async with world.node() as addresses:
        await addresses.add(ask("a"))
        (document,) = world.server.documents("ipblocks")
        other = {"node": "a-node", "addresses": [f"10.0.0.{each}" for each in entry]}
        spec = {**document["spec"], "edition": document["spec"]["edition"] + 1}
        spec["holdings"] = [*spec["holdings"], other]
        world.server.put(ipam.IP_BLOCK, {**document, "spec": spec})
        (before,) = world.blocks()
        assert not before.is_plain
        async with patrolling(world):
            await until(lambda: all(each.is_plain for each in world.blocks()))
        (after,) = world.blocks()
    assert (after.holdings, world.held("node-1")) == (
        before.holdings,
        before.holdings[-1].bits.bit_count(),
    )
