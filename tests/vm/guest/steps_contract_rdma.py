"""The second half of the contract: virtual links on cards, cards that come home, RDMA devices."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rtnl_write import interim_name
from kube_rdma.model.attach.steps import (
    AddAddress,
    AwaitGid,
    GiveBackRdma,
    MakeLink,
    MakeRdma,
    MoveRdma,
    RemoveLink,
    RemoveLinks,
    RemoveRdma,
    RestoreRdma,
    SetLink,
    VirtualKind,
)
from kube_rdma.model.device import PlannedHostLink

from .steps_contract import ANOTHERS, MAC, MARK, V4, back, link


def macvlan(world, **changes):
    facts = {"mode": "bridge", "mtu": 1400, "mac": MAC} | changes
    return MakeLink(VirtualKind.MACVLAN, world.parent, "net1", MARK, **facts)


class Made:
    """Virtual links on a card; a card that the end of a namespace brings back."""

    def test_a_macvlan_is_made_once_with_all_that_was_asked(self, world):
        with world.open() as pod:
            for _ in range(2):
                pod.run(macvlan(world))
            made = link(pod)
            assert (made.kind, made.parent) == ("macvlan", world.parent.index)
            assert (made.mtu, made.mac, made.alias) == (1400, MAC, MARK)
            for _ in range(2):
                pod.undo(RemoveLink("net1", MARK))
            assert link(pod) is None

    def test_an_ipvlan_has_its_card_s_mac(self, world):
        with world.open() as pod:
            pod.run(MakeLink(VirtualKind.IPVLAN, world.parent, "net1", MARK, mode="l2"))
            pod.run(SetLink("net1"))
            made = link(pod)
            assert (made.kind, made.mac) == ("ipvlan", world.node_link(world.parent.name)[1])

    def test_a_link_whose_maker_died_gets_its_mark(self, world):
        world.half_made(macvlan(world))
        with world.open() as pod:
            assert link(pod).alias == ""
            pod.run(macvlan(world))
            assert link(pod).alias == MARK

    def test_a_link_whose_maker_died_is_removed(self, world):
        world.half_made(macvlan(world))
        with world.open() as pod:
            pod.undo(RemoveLink("net1", MARK))
            assert link(pod) is None

    def test_a_name_that_the_pod_has_is_refused(self, world):
        world.add_link("net1", pod=True)
        with world.open() as pod, pytest.raises(Refused, match="an interface net1 already"):
            pod.run(macvlan(world))

    @pytest.mark.parametrize("old", [False, True])
    def test_a_name_that_the_node_has_is_free_in_the_pod(self, world, old):
        """An old kernel looks for it on the node."""
        world.add_link("net1", pod=False)
        if old:
            world.before_6_15()
        with world.open() as pod:
            for _ in range(2):
                pod.run(macvlan(world))
            assert (link(pod).kind, link(pod).alias) == ("macvlan", MARK)
            pod.undo(RemoveLink("net1", MARK))
            assert link(pod) is None
        assert world.node_link("net1")

    def test_a_link_that_got_no_further_than_another_name_is_found(self, world):
        wanted, there = macvlan(world), interim_name(MARK)
        world.half_made(replace(wanted, name=there))
        world.add_link("net1", pod=False)
        world.before_6_15()
        with world.open() as pod:
            pod.run(wanted)
            assert (link(pod).alias, link(pod, there)) == (MARK, None)
        world.half_made(replace(wanted, name=there))
        for undo in (RemoveLink("net1", MARK), RemoveLinks((RemoveLink("net1", MARK),))):
            with world.open() as pod:
                pod.undo(undo)
                assert (link(pod), link(pod, there)) == (None, None)
            world.half_made(replace(wanted, name=there))

    def test_another_attachment_s_link_is_neither_taken_nor_removed(self, world):
        with world.open() as pod:
            pod.run(macvlan(world))
            with pytest.raises(Refused, match=f"marked '{MARK}'"):
                pod.run(replace(macvlan(world), mark=ANOTHERS))
            pod.undo(RemoveLink("net1", ANOTHERS))
            assert link(pod).alias == MARK

    @pytest.mark.parametrize("others", [(), ("net3",)])
    def test_links_go_at_once_and_one_of_another_attachment_stays(self, world, others):
        names = ("net1", "net2", *others)
        with world.open() as pod:
            for number, name in enumerate(names):
                wanted = macvlan(world, mac=f"02:00:00:00:01:0{number}")
                mark = ANOTHERS if name in others else MARK
                pod.run(replace(wanted, name=name, mark=mark))
            every = RemoveLinks(tuple(RemoveLink(name, MARK) for name in ("net1", "net2", "net3")))
            for _ in range(2):
                pod.undo(every)
                assert [one for one in pod.links() if one.name in names] == [
                    one for one in pod.links() if one.name in others
                ]

    def test_a_name_of_the_node_is_free_in_the_pod(self, world):
        world.add_link("net1", pod=False)
        with world.open() as pod:
            pod.run(macvlan(world))
            assert link(pod).alias == MARK

    def test_an_mtu_above_the_card_s_is_refused_with_both(self, world):
        too_much = "an MTU of 9000: .* below it has 1500"
        with world.open() as pod:
            with pytest.raises(Refused, match=too_much):
                pod.run(macvlan(world, mtu=9000))
            assert link(pod) is None
            pod.run(macvlan(world))
            with pytest.raises(Refused, match=too_much):
                pod.run(SetLink("net1", 9000))

    def test_a_card_that_is_gone_is_unavailable(self, world):
        nobody = replace(macvlan(world), parent=PlannedHostLink(4711, "eth77"))
        with world.open() as pod, pytest.raises(Unavailable, match="no interface eth77"):
            pod.run(nobody)

    def test_a_mode_that_the_kind_does_not_have_is_refused_with_those_it_has(self, world):
        with world.open() as pod, pytest.raises(Refused, match="bridge, private, vepa, passthru"):
            pod.run(macvlan(world, mode="l2"))

    def test_a_card_comes_home_when_the_namespace_ends(self, world):
        with world.open() as pod:
            pod.run(world.card)
            pod.run(SetLink("net1", 1400))
        world.end()
        with world.open_gone() as pod:
            for _ in range(2):
                pod.undo(back(world.card))
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)
        assert world.node_link("net1") is None

    def test_a_card_comes_home_although_its_pod_s_name_was_taken(self, world):
        world.add_link("net1", pod=False)
        with world.open() as pod:
            pod.run(world.card)
        world.end()
        with world.open_gone() as pod:
            pod.undo(back(world.card))
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)
        assert world.node_link("net1")

    def test_a_card_whose_old_name_was_taken_meanwhile_is_broken(self, world):
        with world.open() as pod:
            pod.run(world.card)
        world.add_link(world.card.link.name, pod=False)
        world.end()
        with world.open_gone() as pod, pytest.raises(Broken, match="net1 cannot be called"):
            pod.undo(back(world.card))


def routable(device):
    """Without the link-local one, which the kernel adds by itself."""
    return [(on, address) for on, address in device.gids if not address.is_link_local]


class Rdma:
    """Soft RDMA devices in the pod, GIDs, what cannot be moved."""

    def test_a_soft_device_is_made_once_and_lists_the_address(self, world):
        steps = (
            macvlan(world),
            SetLink("net1"),
            AddAddress("net1", V4, 24),
            MakeRdma("rxe-pod", "rxe", "net1"),
            AwaitGid("rxe-pod", "net1", V4),
        )
        with world.open() as pod:
            for step in (*steps, *steps):
                pod.run(step)
            (device,) = pod.look().rdma
            assert (device.name, device.netdev, device.pci) == ("rxe-pod", "net1", None)
            assert routable(device) == [("net1", V4)]
            for _ in range(2):
                pod.undo(RemoveRdma("rxe-pod"))
            assert pod.look().rdma == ()

    def test_one_interface_has_one_soft_device_and_one_device_one_name(self, world):
        world.add_rdma("rxe-node")
        with world.open() as pod:
            pod.run(macvlan(world))
            with pytest.raises(Refused, match="a device of this name is on another interface"):
                pod.run(MakeRdma("rxe-node", "rxe", "net1"))
            pod.run(MakeRdma("rxe-pod", "rxe", "net1"))
            with pytest.raises(Refused, match="it has rxe-pod already"):
                pod.run(MakeRdma("rxe-two", "rxe", "net1"))

    def test_a_device_of_the_node_is_not_removed(self, world):
        world.add_rdma("rxe-node")
        with world.open() as pod:
            pod.undo(RemoveRdma("rxe-node"))
        assert world.rdma_names() == {"rxe-node"}

    def test_a_soft_device_goes_with_the_namespace(self, world):
        with world.open() as pod:
            pod.run(macvlan(world))
            pod.run(MakeRdma("rxe-pod", "rxe", "net1"))
        world.end()
        assert world.rdma_names() == set()

    def test_a_shared_card_lists_the_pod_s_address_and_tells_the_pod_only_that(self, world):
        world.add_rdma("rxe-node")
        steps = (macvlan(world), SetLink("net1"), AddAddress("net1", V4, 24))
        with world.open() as pod:
            for step in (*steps, AwaitGid("rxe-node", "net1", V4)):
                pod.run(step)
            (device,) = pod.look().rdma
            assert (device.netdev, routable(device)) == (None, [("net1", V4)])

    def test_a_soft_device_that_stood_on_a_card_is_made_again(self, world):
        again = RestoreRdma("rxe-card", "rxe", world.card.link)
        with world.open() as pod:
            pod.run(world.card)
            with pytest.raises(Unavailable, match="the soft RDMA device rxe-card"):
                pod.undo(again)
            for _ in range(2):
                pod.undo(back(world.card))
                pod.undo(again)
        assert world.rdma_names() == {"rxe-card"}
        world.end()
        with world.open_gone() as pod:
            pod.undo(again)

    def test_what_cannot_be_moved_is_refused_with_the_reason(self, world):
        world.add_rdma("rxe-node")
        with world.open() as pod:
            with pytest.raises(Refused, match=r"ib_core\.netns_mode=0"):
                pod.run(MoveRdma("rxe-node", None))
            pod.undo(GiveBackRdma("rxe-node", None))
            for act in (
                lambda: pod.run(MoveRdma("rxe-none", None)),
                lambda: pod.undo(GiveBackRdma("rxe-none", None)),
                lambda: pod.run(AwaitGid("rxe-none", "net1", V4)),
            ):
                with pytest.raises(Unavailable, match="no RDMA device rxe-none"):
                    act()

    def test_a_gid_that_does_not_come_is_unavailable_after_the_time(self, world):
        with world.open(patience=0.2) as pod:
            for step in (macvlan(world), SetLink("net1"), MakeRdma("rxe-pod", "rxe", "net1")):
                pod.run(step)
            with pytest.raises(Unavailable, match=r"no RoCE v2 GID for 10\.9\.0\.1 on net1"):
                pod.run(AwaitGid("rxe-pod", "net1", V4))

    def test_a_full_table_is_refused_with_its_figures(self, world):
        with world.open(patience=0.2) as pod:
            for step in (macvlan(world), SetLink("net1"), MakeRdma("rxe-pod", "rxe", "net1")):
                pod.run(step)
            for number in range(1024):
                pod.run(AddAddress("net1", ip_address("10.20.0.1") + number, 32))
            pod.run(AddAddress("net1", V4, 24))
            with pytest.raises(Refused, match="1024 of 1024 GIDs are used"):
                pod.run(AwaitGid("rxe-pod", "net1", V4))
