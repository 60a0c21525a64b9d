"""What NodeAddresses do: the real ones, against a fake API server, and that in memory."""

from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused
from kube_rdma.model.ipam import IPPool, IPRange, NicRequest
from kube_rdma_testing.ipam import FakeAddresses
from tests.unit.ipam.conftest import ask, texts


@pytest.fixture(params=["node", "fake"])
async def provider(request, world):
    world.pool("small", subnet="10.1.0.0/29")
    world.pool("team", namespaces=("a", "b"), subnet="10.2.0.0/29")
    if request.param == "fake":
        pools = {"p": "10.0.0.0/24", "small": "10.1.0.0/29"}
        team = IPPool("team", (IPRange(ip_network("10.2.0.0/29")),), namespaces=("a", "b"))
        yield FakeAddresses(
            [
                team,
                *(
                    IPPool(name, (IPRange(ip_network(subnet)),), cooldown=0.0)
                    for name, subnet in pools.items()
                ),
            ]
        )
        return
    async with world.node() as addresses:
        yield addresses


async def test_every_nic_gets_an_address_of_its_own(provider):
    """Two NICs of one request and one of another have three addresses of the pool."""
    two = await provider.add(ask("c1", NicRequest("net1", "p"), NicRequest("net2", "p")))
    one = await provider.add(ask("c2"))
    found = {*texts(two), *texts(one)}
    assert len(found) == 3
    assert all(ip_address(each) in ip_network("10.0.0.0/24") for each in found)


async def test_the_same_request_gets_the_same(provider):
    first = await provider.add(ask("c1"))
    assert texts(await provider.add(ask("c1"))) == texts(first)


async def test_what_was_deleted_is_given_again(provider):
    """A pool of six serves its seventh pod after one is gone; an unknown container is no error."""
    for number in range(6):
        await provider.add(ask(f"c{number}", pool="small"))
    await provider.delete("nobody")
    await provider.delete("c3")
    await provider.add(ask("c6", pool="small"))


async def test_one_interface_can_be_deleted(provider):
    both = ask("c1", NicRequest("net1", "p"), NicRequest("net2", "p"))
    before = texts(await provider.add(both))
    await provider.delete("c1", "net1")
    assert texts(await provider.add(both))[1] == before[1]


async def test_a_static_address(provider):
    """It is given once, and one outside of the pool never."""
    static = NicRequest("net1", "p", addresses=(ip_address("10.0.0.77"),))
    assert texts(await provider.add(ask("c1", static))) == ["10.0.0.77"]
    outside = NicRequest("net1", "p", addresses=(ip_address("10.9.0.1"),))
    with pytest.raises(Refused, match=r"IPPool p does not give 10\.9\.0\.1"):
        await provider.add(ask("c2", outside))


async def test_refusals(provider):
    """A pool that is not there, and one that is full."""
    with pytest.raises(Refused, match="there is no IPPool nothing"):
        await provider.add(ask("c1", pool="nothing"))


async def test_a_pool_of_namespaces(provider):
    """It gives to their pods and refuses others; a pool without namespaces gives to all."""
    for namespace in ("c", ""):
        with pytest.raises(Refused, match="IPPool team is for pods of a, b"):
            await provider.add(ask("c1", pool="team", namespace=namespace))
    both = (NicRequest("net1", "p"), NicRequest("net2", "team"))
    with pytest.raises(Refused, match="interface net2: IPPool team"):
        await provider.add(ask("c1", *both, namespace="c"))
    assert len(texts(await provider.add(ask("c1", *both, namespace="b")))) == 2
    assert texts(await provider.add(ask("c2", namespace="c")))


async def test_only_what_was_there_before_is_collected(provider, world):
    """Who lives or came after the runtime was asked keeps its address; the dead one's is free."""
    await provider.add(ask("dead", pool="small"))
    names = ["alive", "late-1", "late-2", "late-3", "late-4"]
    before = texts(await provider.add(ask("alive", pool="small")))
    world.clock.time += 1
    since = provider.now()
    for name in names[1:]:
        before += texts(await provider.add(ask(name, pool="small")))
    await provider.collect(frozenset({"alive"}), since)
    await provider.add(ask("new", pool="small"))
    after = [text for name in names for text in texts(await provider.add(ask(name, pool="small")))]
    assert after == before


async def test_nothing_is_lost(provider):
    await provider.add(ask("c1"))
    assert await provider.check() == ()
