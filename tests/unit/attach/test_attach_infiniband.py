"""A pod with a function of InfiniBand: what it has, what CHECK says of it, what is refused."""

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.model.pools import Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.model.survey import NamespaceMode, Survey
from tests.unit.attach.network_life import Halting
from tests.unit.attach.network_world import RESOURCE, World, card, config, share

VIRTUAL = card(0, virtual=True, wide=True)
GUID = "02:00:00:00:00:00:00:77"
ASK = f'[{{"name": "net", "infiniband-guid": "{GUID}"}}]'


def offered(mode, attach=None):
    spec = PoolSpec(RESOURCE, mode, "policy:1", attach=attach)
    return Pool(spec, (Share(ShareId(VIRTUAL.id), healthy=True, card=VIRTUAL.id),), (VIRTUAL,))


def made(folder, asks=ASK, *, exclusive=False, cards=(VIRTUAL,), **fields):
    """A world whose pod asks so for the function, and its physical function."""
    granted = [share(each, Mode.SRIOV) for each in cards]
    networks = {"default/net": config("ib-sriov", **fields)}
    world = World(folder, cards, granted, networks, exclusive_rdma=exclusive)
    world.ask(asks)
    world.sandbox()
    return world, world.kernel.named(world.kernel.node, "pf10")


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_function_has_the_guid_that_its_pod_asks_for(tmp_path, exclusive):
    """In the physical function, in the RDMA device, and in the interface's address."""
    world, above = made(tmp_path, exclusive=exclusive)
    await world.add(1)
    assert (above.functions[0].node_guid, above.functions[0].port_guid) == (GUID, GUID)
    (device,) = world.kernel.rdma
    assert (device.guid, device.on.name, device.on.mac[-23:]) == (GUID, "net1", GUID)
    assert (device.space is world.kernel.node) is not exclusive
    await world.holds_and_goes(1)


async def test_the_container_gets_the_device_as_it_is_called_now(tmp_path):
    """Binding the driver has made it anew, under another name."""
    world, _ = made(tmp_path)
    await world.add(1)
    (device,) = world.kernel.rdma
    assert device.name != "mlx5_0"
    ((edits,),) = (bound.values() for bound in world.bound.values())
    assert f"/dev/infiniband/{device.name}" in edits.char_paths
    own = world.node.told["kube-rdma.io/network-status"]
    assert device.name in str(own)


async def test_a_container_that_has_its_device_already_gets_no_new_guid(tmp_path):
    """It would keep the device node of before; the function's own GUID changes nothing."""
    world, _ = made(tmp_path)
    world.node.shares = (share(VIRTUAL, Mode.SRIOV, early=True),)
    await world.refuses(1, "Write attach: auto into its pool in a NodePolicy")
    world.ask("net")
    await world.add(1)
    await world.check(1)


async def test_cards_of_a_mode_that_owns_them_are_the_kubelet_s_to_give():
    """Those that others may use too are not."""
    survey = SurveyCache(lambda: Survey((), None, NamespaceMode.SHARED))
    for mode, owned in ((Mode.SRIOV, ((VIRTUAL, RESOURCE),)), (Mode.HCA, ())):
        asked = NodeViewDependencies(
            None, None, NodeContext({RESOURCE: offered(mode)}), survey, lambda _: ()
        )
        assert (await NodeView(asked).host()).owned == owned


async def test_a_partition_that_the_fabric_has_not_given_is_refused(tmp_path):
    """And the function gets back what it had."""
    world, _ = made(tmp_path, pkey="0x8013")
    await world.refuses(1, r"not in the partition 0x0013: its table has 0xffff, 0x8012")


async def test_one_guid_is_not_given_to_two_pods_at_once(tmp_path):
    """The second asks while the first, whose GUID was found free, has no record of it yet."""
    world, _ = made(tmp_path, cards=(VIRTUAL, card(1, virtual=True, wide=True)))
    world.giver = Halting(replace(pool, cooldown=0.0) for pool in world.node.pools.values())
    world.start()
    new = world.sandbox()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.add(1))
        await world.giver.asked.wait()
        world.node.shares = (world.node.shares[1],)
        with pytest.raises(Refused, match=f"{GUID} is taken, default/train-0 is being given it"):
            await world.add(new)
        world.giver.goes_on.set()
    await world.check(1)
    await world.delete(1)
    await world.add(new)


async def test_a_guid_that_no_pod_got_is_free_again(tmp_path):
    """An ADD that failed after its GUID was found free holds nothing."""
    world, _ = made(tmp_path)
    world.giver.failing = Unavailable("no addresses now.")
    with pytest.raises(Unavailable, match="no addresses now"):
        await world.add(1)
    world.giver.failing = None
    new = world.sandbox()
    await world.add(new)
    await world.check(new)


async def test_a_function_without_a_guid_has_none_again(tmp_path):
    """A fresh one of mlx5 has zeros; all ones are what it gets back."""
    world, above = made(tmp_path)
    zeros = ":".join(["00"] * 8)
    above.functions[0] = replace(above.functions[0], node_guid=zeros, port_guid=zeros)
    device = replace(VIRTUAL.devices[0], node_guid="0000:0000:0000:0000")
    bare = replace(VIRTUAL, devices=(device,))
    (link,) = [one for one in world.kernel.links if one.pci == VIRTUAL.pci]
    link.mac, world.kernel.rdma[0].guid = link.mac[:-23] + zeros, zeros
    world.node.shares = (share(bare, Mode.SRIOV),)
    await world.add(1)
    await world.check(1)
    await world.delete(1)
    ones = ":".join(["ff"] * 8)
    assert (above.functions[0].node_guid, above.functions[0].port_guid) == (ones, ones)
    world.ask("net")
    with pytest.raises(Refused, match="has no GUID"):
        await world.add(1)
