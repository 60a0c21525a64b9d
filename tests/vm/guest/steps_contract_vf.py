"""What setting up virtual functions means, on a real card (igb) and on the fake kernel.

A world has besides what steps_contract.World has: `place`, that of the virtual function whose link
is `card`, on a physical one whose driver can set MAC, VLAN, spoof check, trust and the highest
rate, and not the link state; `go_down`, which sets a link of the pod down behind our back.
"""

from __future__ import annotations

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model import pools
from kube_rdma.model.attach.steps import SetLink
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.errors import HardwareGone

from .steps_contract import MAC, back, link

WANTED = pools.FunctionSettings(
    vlan=100,
    qos=3,
    protocol=pools.VlanProtocol.CUSTOMER,
    spoof_check=False,
    trust=True,
    max_rate=100,
)
WITH_MAC = pools.FunctionSettings(mac=MAC)


def now(world, pod):
    """What the physical function tells of the virtual one."""
    ((place, settings),) = pod.look((), (world.place,)).functions
    assert place == world.place
    return settings


def setting(world, pod, wanted):
    """The step that leads there from what is now."""
    found = now(world, pod)
    names = [name for name in found.__slots__ if getattr(wanted, name) is not None]
    before = pools.FunctionSettings(**{name: getattr(found, name) for name in names})
    return pools.SetFunction(world.place, wanted, before)


def reset(step):
    return pools.ResetFunction(step.place, step.previous)


class Functions:
    """Settings, the administrative MAC and the way back."""

    def test_a_function_is_set_up_and_set_back_however_often(self, world):
        with world.open() as pod:
            before = now(world, pod)
            step = setting(world, pod, WANTED)
            for _ in range(2):
                pod.run(step)
            after = now(world, pod)
            said = {name: getattr(WANTED, name) for name in WANTED.__slots__}
            assert after == replace(before, **{k: v for k, v in said.items() if v is not None})
            for _ in range(2):
                pod.undo(reset(step))
            assert now(world, pod) == before

    def test_a_function_that_is_no_more_has_no_way_back(self, world):
        """Which is not what one without a driver is told."""
        with world.open() as pod:
            pod.run(world.card)
            world.unplug()
            with pytest.raises(HardwareGone) as caught:
                pod.undo(back(world.card))
        assert caught.value.for_good

    def test_what_was_never_set_is_not_set_back(self, world):
        with world.open() as pod:
            before = now(world, pod)
            pod.undo(reset(setting(world, pod, WANTED)))
            assert now(world, pod) == before

    def test_a_setting_that_the_driver_has_not_is_refused_by_its_name(self, world):
        with world.open() as pod:
            before = now(world, pod)
            step = setting(world, pod, pools.FunctionSettings(link_state=pools.LinkState.ENABLE))
            with pytest.raises(Refused, match="takes no link state enable for its"):
                pod.run(step)
            assert now(world, pod) == before

    @pytest.mark.parametrize("was_up", [False, True])
    def test_the_administrative_mac_is_the_link_s_too_and_both_go_back(self, world, was_up):
        for _ in range(2):  # the second time, the card has a MAC of its own to give back
            with world.open() as pod:
                card = replace(world.card, up=was_up)
                tag = setting(world, pod, pools.FunctionSettings(vlan=7))
                mac = setting(world, pod, WITH_MAC)
                for step in (tag, card, mac, SetLink("net1", mac=MAC)):
                    pod.run(step)
                assert (link(pod).mac, link(pod).up) == (MAC, True)
                assert (now(world, pod).mac, now(world, pod).vlan) == (MAC, 7)
                for undo in (reset(mac), back(card), reset(tag)):
                    pod.undo(undo)
                # igb tells the function's own MAC, which it asked for itself, in the same place.
                assert now(world, pod).mac in (mac.previous.mac, card.mac)
                assert now(world, pod).vlan == 0
            assert world.node_link(card.link.name) == (card.mtu, card.mac, was_up)

    def test_a_link_that_the_pod_has_set_down_gets_its_mac_back(self, world):
        with world.open() as pod:
            mac = setting(world, pod, WITH_MAC)
            for step in (world.card, mac, SetLink("net1", mac=MAC)):
                pod.run(step)
            world.go_down("net1")
            for undo in (reset(mac), back(world.card)):
                pod.undo(undo)
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)

    def test_settings_go_back_when_the_namespace_has_gone(self, world):
        with world.open() as pod:
            before = now(world, pod)
            tag, mac = setting(world, pod, WANTED), setting(world, pod, WITH_MAC)
            for step in (tag, world.card, mac, SetLink("net1", mac=MAC)):
                pod.run(step)
        world.end()
        with world.open_gone() as pod:
            for undo in (reset(mac), back(world.card), reset(tag)):
                pod.undo(undo)
        world.again()
        with world.open() as pod:
            after = now(world, pod)
        assert replace(after, mac=None) == replace(before, mac=None)
        assert after.mac in (before.mac, world.card.mac)

    def test_a_physical_function_is_found_under_another_index(self, world):
        moved = replace(world.place, physical=PlannedHostLink(4711, "elsewhere"))
        with world.open() as pod:
            step = replace(setting(world, pod, pools.FunctionSettings(trust=True)), place=moved)
            pod.run(step)
            assert now(world, pod).trust
            pod.undo(reset(step))
            assert not now(world, pod).trust

    def test_another_card_at_its_index_is_not_taken_for_it(self, world):
        other = replace(world.place, physical=world.parent)
        with world.open() as pod:
            step = replace(setting(world, pod, pools.FunctionSettings(trust=True)), place=other)
            pod.run(step)
            assert now(world, pod).trust
            pod.undo(reset(step))

    def test_a_number_that_is_not_there_can_be_undone_and_not_done(self, world):
        none = replace(world.place, number=6)
        step = pools.SetFunction(none, WITH_MAC, pools.FunctionSettings(mac=world.card.mac))
        with world.open() as pod:
            with pytest.raises(Unavailable, match="no virtual function 6 any more: it has 1"):
                pod.run(step)
            pod.undo(reset(step))
            assert pod.look((), (none,)).functions == ()

    def test_without_the_physical_function_nothing_is_known(self, world):
        gone = replace(world.place, physical=PlannedHostLink(4711, "eth77"), pci="0000:ff:00.0")
        step = pools.SetFunction(gone, WITH_MAC, pools.FunctionSettings(mac=world.card.mac))
        with world.open() as pod:
            for act in (lambda: pod.run(step), lambda: pod.undo(reset(step))):
                with pytest.raises(Unavailable, match="no interface eth77 of 0000:ff:00"):
                    act()
