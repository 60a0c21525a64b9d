"""A pod ends although its card is gone: pulled out, without a driver, or stuck in the pod."""

import pytest

from kube_base.errors import Broken
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.errors import HardwareGone
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import World, card, config, container, share
from tests.unit.attach.test_attach_faults import PLANS

CARD, FUNCTION = card(0), card(0, virtual=True)
PHYSICAL = FUNCTION.position.physical_function
KINDS = {
    "a whole card": ("kube-rdma", Mode.EXCLUSIVE, CARD, {}),
    "a virtual function": ("kube-rdma", Mode.SRIOV, FUNCTION, {}),
    "a virtual function that is set up": ("sriov", Mode.SRIOV, FUNCTION, {"vlan": 7}),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
async def made(request, tmp_path):
    kind, mode, of, fields = request.param
    world = World(tmp_path, [of], [share(of, mode)], {"default/net": config(kind, **fields)})
    world.ask("net")
    world.sandbox()
    await world.add(1)
    return world, of


@pytest.fixture(params=[False, True], ids=["namespace there", "namespace gone"])
def ended(request):
    """Whether the pod's namespace ends before its DEL."""
    return request.param


async def test_what_was_pulled_out_needs_no_way_back(made, ended):
    world, of = made
    for pci in filter(None, (of.pci, of.position.physical_function)):
        world.kernel.unplug(pci)
    if ended:
        world.end(1)
    assert await world.delete(1) == CniResult()
    assert (world.held, world.bound, world.disk.names()) == ({}, {}, ())


async def test_a_card_without_a_driver_is_given_back_when_it_has_one(made, ended):
    """Its pod does not wait: addresses are free at once, and the record waits for the card."""
    world, of = made
    (link,) = (one for one in world.kernel.links if one.pci == of.pci)
    world.kernel.links.remove(link)
    if ended:
        world.end(1)
    assert await world.delete(1) == CniResult()
    assert (world.held, world.bound) == ({}, {})
    assert world.disk.names()
    with pytest.raises(HardwareGone, match="neither in the pod"):
        await world.networks.end_lost(container(1))
    link.space, link.up, link.addresses = world.kernel.node, False, []
    world.kernel.links.insert(1, link)
    await world.networks.end_lost(container(1))
    assert world.disk.names() == ()
    (now,) = (one for one in world.kernel.links if one.pci == of.pci)
    assert (now.name, now.mtu, now.up) == (of.function.netdevs[0].name, 9000, True)


async def test_a_card_that_is_lost_holds_no_other_back(tmp_path):
    cards = [card(0), card(1)]
    shares = [share(each, Mode.EXCLUSIVE) for each in cards]
    world = World(tmp_path, cards, shares, {"default/net": config("kube-rdma")})
    world.ask("net,net")
    world.sandbox()
    await world.add(1)
    world.kernel.unplug(cards[1].pci)  # that of net2, which is taken back first
    await world.delete(1)
    assert "ens0f0" in {one.name for one in world.kernel.within(world.kernel.node)}
    assert (world.held, world.disk.names()) == ({}, ())


async def test_a_function_that_cannot_leave_the_pod_keeps_its_vlan(tmp_path):
    shares = [share(FUNCTION, Mode.SRIOV)]
    networks = {"default/net": config("sriov", vlan=7)}
    world = World(tmp_path, [FUNCTION], shares, networks)
    world.ask("net")
    world.sandbox()
    await world.add(1)
    (netdev,) = FUNCTION.function.netdevs
    another = world.kernel.add_link(netdev.name, mac="02:00:00:00:99:99", kind="dummy")
    (above,) = (one for one in world.kernel.links if one.pci == PHYSICAL)
    with pytest.raises(Broken, match=f"cannot be called {netdev.name} again"):
        await world.delete(1)
    assert above.functions[0].vlan == 7
    assert world.held
    world.kernel.remove(another)
    await world.goes(1)


async def test_a_refusal_of_what_is_asked_for_writes_nothing(tmp_path):
    world = PLANS["macvlan on RDMA hardware"](tmp_path)
    world.sandbox()
    world.ask("nowhere")
    await world.refuses(1, "nowhere")
    assert "create" not in world.life.acts
