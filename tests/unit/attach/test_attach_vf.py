"""A pod with a virtual function: what it is set to, what CHECK says of it, what is refused."""

import pytest

from kube_base.errors import Refused
from kube_rdma.model.pools import Mode
from tests.unit.attach.delegate_world import DelegateWorld
from tests.unit.attach.network_world import World, card, config, share

VIRTUAL = card(0, virtual=True)
MAC = "02:00:00:00:09:01"
FIELDS = {"vlan": 100, "trust": "on", "mac": MAC}


def made(folder, **fields):
    """A world whose pod asks for the function with these fields, and its physical function."""
    granted = [share(VIRTUAL, Mode.SRIOV)]
    world = World(folder, [VIRTUAL], granted, {"default/net": config("sriov", **fields)})
    world.ask("net")
    world.sandbox()
    return world, world.kernel.named(world.kernel.node, "pf10")


async def test_a_setting_that_the_card_has_not_leaves_nothing_behind(tmp_path):
    """What was set before it is set back, addresses are given back."""
    world, above = made(tmp_path, link_state="enable", **FIELDS)
    above.cannot = frozenset({"link_state"})
    await world.refuses(1, "pf10 takes no link state enable for its virtual functions")


def by_address(folder):
    """A world whose network names the function itself, and no resource."""
    _, text = config("sriov", deviceID=VIRTUAL.pci)
    networks = {"default/net": config("sriov"), "default/own": (None, text)}
    return World(folder, [VIRTUAL], [share(VIRTUAL, Mode.SRIOV)], networks)


async def test_a_function_of_a_pool_is_for_pods_with_a_share_of_it(tmp_path):
    """Another would take it from the pod that the kubelet gives it to."""
    world = by_address(tmp_path)
    world.ask("own")
    world.sandbox()
    held, world.node.shares = world.node.shares, ()
    await world.refuses(1, "device: ens0f0 belongs to rdma/hca, and the pod holds no")
    world.node.shares = held
    await world.add(1)
    await world.check(1)


@pytest.mark.parametrize("name", ["net", "own"])
async def test_whoever_comes_second_hears_which_pod_has_the_function(tmp_path, name):
    """By the share that it holds too, or by the address alone."""
    world = by_address(tmp_path)
    world.ask("net")
    world.sandbox()
    await world.add(1)
    new = world.sandbox()
    world.ask(name)
    if name == "own":
        world.node.shares = ()
    with pytest.raises(Refused, match=r"is in the pod default/train-0. Wait until the pod that"):
        await world.add(new)
    await world.check(1)


async def test_a_meta_plugin_hears_which_pod_has_the_function(tmp_path):
    """Each of its calls is about one interface."""
    world = DelegateWorld(tmp_path, [VIRTUAL], [share(VIRTUAL, Mode.SRIOV)], {})
    await world.meta("ADD", world.sandbox())
    with pytest.raises(Refused, match=r"mlx5_0 is in the pod default/train-0. Wait until the pod"):
        await world.meta("ADD", world.sandbox())
