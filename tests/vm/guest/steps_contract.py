"""What running Steps means, said once: on the real kernel of this machine and on the fake one.

A test file brings a fixture `world` with the methods of World, and inherits the tests that its
kernel can run: Links needs any kind of link, those of steps_contract_rdma macvlan and Soft-RoCE.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from ipaddress import ip_address, ip_network
from typing import Protocol

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    GiveBackLink,
    RemoveLink,
    RemoveRdma,
    RemoveRule,
    SetLink,
    SetSysctl,
    TakeLink,
)
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.ipam import InterfaceName

MARK, ANOTHERS = "kube-rdma c1/net1", "kube-rdma c2/net1"
MAC = "02:00:00:00:77:01"
V4, V6 = ip_address("10.9.0.1"), ip_address("fd00:9::1")
TABLE, PRIORITY = 1001, 20000


class World(Protocol):
    """A node with one pod, and what a test does to them behind our back."""

    card: TakeLink  # a link that can be moved into the pod as net1
    parent: PlannedHostLink  # an Ethernet card for virtual links, with an MTU of 1500

    def open(self, **options) -> AbstractContextManager: ...  # the pod's namespace
    def open_gone(self) -> AbstractContextManager: ...  # of a pod whose namespace is gone
    def end(self) -> None: ...  # the pod's namespace goes; what is the node's is back
    def node_link(self, name): ...  # (MTU, MAC, up) of a link of the node, None when not there
    def node_addresses(self, name): ...  # "10.9.0.1/24" and such; none that the kernel made itself
    def node_ways(self, name): ...  # of a link: {(to, via, table)}, and {(source, table)} of all
    def forget_rule(self, rule): ...  # of the node: it does not go with a link
    def add_link(self, name, *, pod): ...  # a link of somebody else, in the pod or on the node
    def half_made(self, step): ...  # its maker dies after the first message
    def moved_only(self, step): ...  # the card's link is in the pod, still under its old name
    def rename(self, old, new): ...  # a link of the node
    def call_also(self, name, also, *, pod): ...  # an alternative name, as systemd-udevd gives
    def add_rdma(self, name): ...  # a soft device on the parent
    def rdma_names(self): ...  # of the node
    def unplug(self): ...  # the card is taken out of the machine
    def before_6_15(self): ...  # from now on the node's names are in the way of the pod's


def link(pod, name="net1"):
    return next((one for one in pod.look().links if one.name == name), None)


def back(card):
    return GiveBackLink(card.link, card.name, card.pci, card.mtu, card.mac, card.up)


class Links:
    """A card's own link moved in and home; addresses, routes, rules, sysctls."""

    def test_a_card_s_link_moves_once_and_is_renamed(self, world):
        with world.open() as pod:
            for _ in range(2):
                pod.run(world.card)
            assert link(pod).mac == world.card.mac
            assert link(pod).alias == ""
        assert world.node_link(world.card.link.name) is None

    def test_a_link_comes_home_as_it_was_found(self, world):
        with world.open() as pod:
            pod.run(world.card)
            pod.run(SetLink("net1", 1400))
            pod.run(AddAddress("net1", V4, 24))
            for _ in range(2):
                pod.undo(back(world.card))
            assert link(pod) is None
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)

    def test_a_link_that_was_up_is_up_again(self, world):
        with world.open() as pod:
            pod.run(world.card)
            pod.undo(replace(back(world.card), up=True))
        assert world.node_link(world.card.link.name)[2]

    def test_addresses_that_the_link_had_are_there_again(self, world):
        home = replace(back(world.card), up=True, addresses=((V4, 24), (V6, 64)))
        with world.open() as pod:
            pod.run(world.card)
            pod.run(AddAddress("net1", ip_address("10.9.0.9"), 24))
            for _ in range(2):
                pod.undo(home)
                assert world.node_addresses(world.card.link.name) == {f"{V4}/24", f"{V6}/64"}

    def test_routes_and_rules_of_the_node_are_there_again(self, world):
        """A card with a /32 behind a router, as a cloud gives it, and a table of its own."""
        name, hop = InterfaceName(world.card.link.name), ip_address("10.9.7.1")
        routes = (
            AddRoute(name, ip_network(f"{hop}/32")),
            AddRoute(name, ip_network("10.9.7.0/24"), hop),
            AddRoute(name, ip_network("10.9.8.0/24"), hop, V4, None, True, 50),
            AddRoute(name, ip_network("0.0.0.0/0"), hop, None, TABLE, True),
        )
        rule = AddRule(V4, TABLE, PRIORITY)
        home = replace(back(world.card), up=True, addresses=((V4, 32),), routes=routes)
        wanted = {(str(one.to), str(one.via or ""), one.table or 254) for one in routes}
        try:
            with world.open() as pod:
                pod.run(world.card)
                for _ in range(2):
                    pod.undo(replace(home, rules=(rule,)))
                    shown, rules = world.node_ways(name)
                    assert shown == wanted
                    assert (str(V4), TABLE) in rules
        finally:
            world.forget_rule(rule)

    def test_a_link_that_was_down_gets_no_route(self, world):
        """The kernel takes none, and had none."""
        name = InterfaceName(world.card.link.name)
        route = AddRoute(name, ip_network("10.9.7.0/24"))
        with world.open() as pod:
            pod.run(world.card)
            pod.undo(replace(back(world.card), routes=(route,)))
        assert world.node_ways(name)[0] == set()

    def test_what_was_never_moved_is_only_restored(self, world):
        with world.open() as pod:
            pod.undo(back(world.card))
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)

    def test_a_link_that_has_moved_and_kept_its_name_is_renamed(self, world):
        world.moved_only(world.card)
        with world.open() as pod:
            pod.run(world.card)
            assert link(pod).mac == world.card.mac
            pod.undo(back(world.card))
        assert world.node_link(world.card.link.name)

    def test_a_link_with_another_name_on_the_node_is_found(self, world):
        world.rename(world.card.link.name, "elsewhere")
        with world.open() as pod:
            pod.run(world.card)
            assert link(pod).mac == world.card.mac
            pod.undo(back(world.card))

    def test_a_name_that_the_pod_has_is_refused_and_the_card_stays(self, world):
        world.add_link("net1", pod=True)
        with world.open() as pod, pytest.raises(Refused, match="an interface net1 already"):
            pod.run(world.card)
        assert world.node_link(world.card.link.name)

    def test_an_old_name_that_another_took_is_broken_and_the_link_stays(self, world):
        with world.open() as pod:
            pod.run(world.card)
            world.add_link(world.card.link.name, pod=False)
            with pytest.raises(Broken, match=f"cannot be called {world.card.link.name} again"):
                pod.undo(back(world.card))
            assert link(pod)

    def test_an_old_name_that_another_took_leaves_only_the_name_wrong(self, world):
        """Again and again, and the link stays up meanwhile."""
        world.rename(world.card.link.name, "elsewhere")
        world.add_link(world.card.link.name, pod=False)
        home = replace(back(world.card), mtu=1400, up=True, addresses=((V4, 24),))
        with world.open_gone() as pod:
            for _ in range(2):
                with pytest.raises(Broken, match="elsewhere cannot be called"):
                    pod.undo(home)
                assert world.node_link("elsewhere") == (1400, world.card.mac, True)
                assert world.node_addresses("elsewhere") == {f"{V4}/24"}

    @pytest.mark.parametrize("moved", [False, True])
    def test_a_link_takes_a_name_that_it_has_as_an_alternative(self, world, moved):
        """Before its way into the pod, and between the way and the new name."""
        world.call_also(world.card.link.name, "net1", pod=False)
        if moved:
            world.moved_only(world.card)
        with world.open() as pod:
            pod.run(world.card)
            assert link(pod).mac == world.card.mac
            pod.undo(back(world.card))
        assert world.node_link(world.card.link.name)

    def test_a_link_comes_home_whose_old_name_is_its_alternative(self, world):
        with world.open() as pod:
            pod.run(world.card)
            world.call_also("net1", world.card.link.name, pod=True)
            for _ in range(2):
                pod.undo(back(world.card))
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)

    def test_a_link_that_came_home_by_itself_gets_its_old_name(self, world):
        """udev has kept the pod's name, and made the predictable one an alternative."""
        world.rename(world.card.link.name, "net1")
        world.call_also("net1", world.card.link.name, pod=False)
        with world.open_gone() as pod:
            for _ in range(2):
                pod.undo(replace(back(world.card), mtu=1400, up=True))
        assert world.node_link(world.card.link.name) == (1400, world.card.mac, True)

    def test_a_card_that_is_nowhere_is_unavailable(self, world):
        lost = replace(
            world.card, link=PlannedHostLink(4711, "eth77"), pci=None, mac="02:00:00:00:99:99"
        )
        with world.open() as pod:
            with pytest.raises(Unavailable, match="eth77 is neither"):
                pod.run(lost)
            with pytest.raises(Unavailable, match="eth77 is neither"):
                pod.undo(back(lost))

    def test_addresses_routes_and_rules_are_there_once(self, world):
        steps = (
            world.card,
            SetLink("net1", 1400),
            AddAddress("net1", V4, 24),
            AddAddress("net1", V6, 64),
            AddRoute("net1", ip_network("10.9.0.0/24"), None, V4, TABLE),
            AddRoute("net1", ip_network("0.0.0.0/0"), ip_address("10.9.0.254"), None, TABLE),
            AddRoute("net1", ip_network("fd00:10::/64"), ip_address("fd00:9::2")),
            AddRule(V4, TABLE, PRIORITY),
            AddRule(V6, TABLE, PRIORITY),
        )
        with world.open() as pod:
            for step in (*steps, *steps):
                pod.run(step)
            seen = pod.look()
            (net1,) = [one for one in seen.links if one.name == "net1"]
            assert (net1.mtu, net1.up) == (1400, True)
            given = [one for one in net1.addresses if not one[0].is_link_local]
            assert given == [(V4, 24), (V6, 64)]
            routes = [(str(r.to), str(r.via), r.table) for r in seen.routes if r.name == "net1"]
            assert routes.count(("10.9.0.0/24", "None", TABLE)) == 1
            assert routes.count(("0.0.0.0/0", "10.9.0.254", TABLE)) == 1
            assert routes.count(("fd00:10::/64", "fd00:9::2", None)) == 1
            assert routes.count(("10.9.0.0/24", "None", None)) == 1
            assert {(r.source, r.table, r.priority) for r in seen.rules} == {
                (V4, TABLE, PRIORITY),
                (V6, TABLE, PRIORITY),
            }
            pod.undo(back(world.card))
            assert [r for r in pod.look().routes if r.name == "net1"] == []

    def test_a_route_takes_the_place_of_one_to_the_same_destination(self, world):
        everywhere = ip_network("0.0.0.0/0")
        with world.open() as pod:
            for step in (world.card, SetLink("net1"), AddAddress("net1", V4, 24)):
                pod.run(step)
            for gateway in ("10.9.0.2", "10.9.0.3"):
                pod.run(AddRoute("net1", everywhere, ip_address(gateway)))
            assert [str(r.via) for r in pod.look().routes if r.to == everywhere] == ["10.9.0.3"]

    def test_a_gateway_out_of_reach_is_refused_unless_it_is_said_to_be_on_the_link(self, world):
        far, gateway = ip_network("10.8.0.0/16"), ip_address("10.77.0.1")
        with world.open() as pod:
            for step in (world.card, SetLink("net1"), AddAddress("net1", V4, 24)):
                pod.run(step)
            with pytest.raises(Refused, match="subnet of the gateway"):
                pod.run(AddRoute("net1", far, gateway))
            for table in (None, TABLE):
                pod.run(AddRoute("net1", far, gateway, None, table, onlink=True))
            found = {(one.via, one.table) for one in pod.look().routes if one.to == far}
            assert found == {(gateway, None), (gateway, TABLE)}

    def test_a_mac_is_set_and_set_again_while_the_link_is_up(self, world):
        with world.open() as pod:
            pod.run(world.card)
            for _ in range(2):
                pod.run(SetLink("net1", 1400, MAC))
            assert (link(pod).mac, link(pod).up) == (MAC, True)
            pod.undo(back(world.card))
        assert world.node_link(world.card.link.name) == (world.card.mtu, world.card.mac, False)

    def test_a_rule_is_removed_once(self, world):
        with world.open() as pod:
            pod.run(AddRule(V4, TABLE, PRIORITY))
            for _ in range(2):
                pod.undo(RemoveRule(V4, TABLE, PRIORITY))
            assert pod.look().rules == ()

    def test_steps_on_a_link_that_is_not_there_are_unavailable(self, world):
        with world.open() as pod:
            for step in (
                SetLink("net7"),
                AddAddress("net7", V4, 24),
                AddRoute("net7", ip_network("10.9.0.0/24")),
            ):
                with pytest.raises(Unavailable, match="no interface net7"):
                    pod.run(step)

    def test_a_multicast_mac_is_refused(self, world):
        with world.open() as pod:
            pod.run(world.card)
            with pytest.raises(Refused, match="unicast MAC"):
                pod.run(SetLink("net1", mac="01:00:5e:00:00:01"))
            with pytest.raises(Refused, match="is not a MAC"):
                pod.run(SetLink("net1", mac="somebody"))

    def test_an_mtu_that_no_card_has_is_refused(self, world):
        with world.open() as pod:
            pod.run(world.card)
            with pytest.raises(Refused, match="setting net1"):
                pod.run(SetLink("net1", 70000))

    @pytest.mark.parametrize(
        "path", ["net/ipv4/conf/net1/arp_ignore", "net/ipv6/conf/net1/disable_ipv6"]
    )
    def test_a_sysctl_is_the_pod_s_own(self, world, path):
        with world.open() as pod:
            pod.run(world.card)
            for _ in range(2):
                pod.run(SetSysctl(path, "1"))
            assert pod.look((path, "net/ipv4/conf/net7/arp_ignore")).sysctls == ((path, "1"),)
            with pytest.raises(Refused, match="no sysctl"):
                pod.run(SetSysctl("net/ipv4/conf/net7/arp_ignore", "1"))
            with pytest.raises(Refused, match="does not take the value"):
                pod.run(SetSysctl(path, "much"))

    @pytest.mark.parametrize("path", ["kernel/panic", "net/../kernel/panic", "net", "net//core"])
    def test_what_is_no_network_sysctl_is_refused(self, world, path):
        with world.open() as pod, pytest.raises(Refused, match="not a network sysctl"):
            pod.run(SetSysctl(path, "1"))

    def test_an_announcement_is_never_refused(self, world):
        with world.open() as pod:
            pod.run(Announce("net1", V4))
            for step in (world.card, SetLink("net1"), AddAddress("net1", V6, 64)):
                pod.run(step)
            for address in (V4, V6):
                pod.run(Announce("net1", address))

    def test_another_s_link_is_not_removed(self, world):
        world.add_link("net1", pod=True)
        with world.open() as pod:
            pod.undo(RemoveLink("net1", MARK))
            assert link(pod)
            with pytest.raises(Refused, match="an interface net1 already"):
                pod.run(world.card)

    def test_a_namespace_that_is_gone_is_unavailable(self, world):
        with world.open() as pod:
            assert pod.inode
        world.end()
        with pytest.raises(Unavailable, match="is gone"), world.open():
            pass
        with world.open_gone() as pod:
            assert pod.inode is None
            for act in (lambda: pod.run(SetLink("net1")), pod.look):
                with pytest.raises(Unavailable, match="is gone"):
                    act()
            for undo in (RemoveLink("net1", MARK), RemoveRule(V4, 1, 1), RemoveRdma("rxe0")):
                pod.undo(undo)
