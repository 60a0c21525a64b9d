"""InfiniBand on the fake kernel, and the real requests where no kernel here can be asked.

There is no InfiniBand that could be emulated, so the fake alone has this contract; what it does
follows drivers/infiniband/ulp/ipoib and drivers/infiniband/core/device.c.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.locks import locked
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_read import decode_device
from kube_rdma.adapters.kernel.netlink.rdma_write import PodRdma
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.adapters.kernel.pod.links import PodLinks, remove_returned, restore_on_node
from kube_rdma.model import pools
from kube_rdma.model.attach.steps import (
    AwaitPartition,
    GiveBackLink,
    GiveBackRdma,
    MakeLink,
    Mark,
    MoveRdma,
    RemoveLink,
    RemoveLinks,
    SetLink,
    TakeLink,
    VirtualKind,
)
from kube_rdma.model.device import PciAddress, PlannedHostLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma_testing.kernel.network import refusal
from kube_rdma_testing.kernel.network_kernel import FakeKernel
from tests.kit.pod_networks import WIDE_MADE

POD = Path("/run/netns/pod")
PHYSICAL, PCI, OTHER = map(PciAddress, ("0000:41:00.0", "0000:41:00.1", "0000:41:00.2"))
OWN, GUID = "02:00:00:00:00:00:41:01", "02:00:0a:00:00:00:00:01"
net1, ib1 = InterfaceName("net1"), InterfaceName("ib1")
MARK = Mark("kube-rdma c/net1")


def address(guid):
    return f"00:00:10:49:fe:80:00:00:00:00:00:00:{guid}"


class World:
    """A card with two functions, one for the pod; `exclusive` is the RDMA namespace mode."""

    def __init__(self, *, exclusive=False):
        self.kernel = FakeKernel(shared=not exclusive)
        facts = {"hardware": INFINIBAND, "kind": "ipoib", "mtu": 2044, "up": True}
        above = self.kernel.add_link("ibs0", mac=address("00"), pci=PHYSICAL, **facts)
        given = replace(WIDE_MADE, node_guid=OWN, port_guid=OWN)
        above.functions = {0: given, 1: given}
        for number, pci in enumerate((PCI, OTHER)):
            own = {**facts, "pci": pci, "physical": above, "number": number}
            link = self.kernel.add_link(f"ibs0v{number}", mac=address(OWN), **own)
            self.kernel.add_rdma(f"mlx5_{number}", link)
            self.kernel.rdma[-1].guid, self.kernel.rdma[-1].partitions = OWN, (0xFFFF, 0x8012)
        self.kernel.add_pod(POD)
        self.above, (self.link, _) = above, [one for one in self.kernel.links if one.physical]
        place = pools.FunctionPlace(PlannedHostLink(above.index, above.name), PHYSICAL, 0)
        wanted = pools.FunctionSettings(node_guid=GUID, port_guid=GUID)
        found = pools.FunctionSettings(node_guid=OWN, port_guid=OWN)
        self.set = pools.SetFunction(place, wanted, found)
        self.reset = pools.ResetFunction(place, found)
        self.rebind = pools.RebindFunction(PCI, PHYSICAL, "mlx5_core", GUID, OWN)
        self.bind_back = replace(self.rebind, guid=OWN, previous=GUID)
        host = PlannedHostLink(self.link.index, "ibs0v0")
        self.take = TakeLink(host, net1, PCI, 2044, self.link.mac, up=True)
        self.give = GiveBackLink(host, net1, PCI, 2044, self.link.mac, up=True)
        self.move, self.bring = MoveRdma("mlx5_0", PCI), GiveBackRdma("mlx5_0", PCI)

    def device(self):
        (found,) = [one for one in self.kernel.rdma if one.pci == PCI]
        return found

    def on_node(self):
        links = self.kernel.within(self.kernel.node)
        return {(one.name, one.mac[-23:], one.mtu, one.up, one.pci) for one in links}


@pytest.fixture(params=[False, True], ids=["shared", "exclusive"])
def world(request):
    return World(exclusive=request.param)


def steps(world):
    moves = [] if world.kernel.shared else [world.move]
    return [world.set, world.rebind, *moves, world.take, SetLink(net1)]


def test_a_function_gets_its_guid_moves_and_comes_home(world):
    """Each step twice, all twice, and the same back."""
    before = world.on_node()
    with world.kernel.open_pod(POD) as pod:
        for step in (*steps(world), *steps(world)):
            pod.run(step)
        (seen,) = [one for one in pod.look().rdma if one.pci == PCI]
        assert (seen.guid, seen.netdev) == (GUID, net1)
        assert seen.name != "mlx5_0"
        for undo in 2 * [world.reset, world.bind_back, world.give]:
            pod.undo(undo)
    assert world.on_node() == before
    assert (world.device().guid, world.device().space) == (OWN, world.kernel.node)


def test_a_name_that_another_function_got_leads_nobody_astray():
    """The RDMA device is found by its function."""
    world = World(exclusive=True)
    with world.kernel.open_pod(POD) as pod:
        pod.run(world.set)
        pod.run(world.rebind)
        (other,) = [one for one in world.kernel.rdma if one.pci == OTHER]
        other.name = "mlx5_0"
        pod.run(world.move)
        assert world.device().space is not world.kernel.node
        assert other.space is world.kernel.node
        pod.undo(world.bring)
        assert world.device().space is world.kernel.node


def test_moving_the_rdma_device_makes_the_interface_anew():
    """On the node, down and under a name that nobody chose."""
    world = World(exclusive=True)
    with world.kernel.open_pod(POD) as pod:
        pod.run(world.move)
        link = world.device().on
        assert link is not world.link
        assert (link.space, link.up, link.pci) == (world.kernel.node, False, PCI)
        pod.run(world.take)
        assert world.device().on.name == "net1"


def test_after_the_end_of_the_namespace_all_is_brought_home(world):
    """The kernel brings device and interface back, with the pod's GUID."""
    before = world.on_node()
    with world.kernel.open_pod(POD) as pod:
        for step in steps(world):
            pod.run(step)
    world.kernel.end(POD)
    with world.kernel.open_pod(None) as pod:
        for undo in 2 * [world.reset, world.bind_back, world.give]:
            pod.undo(undo)
    assert world.on_node() == before


def child(kind=VirtualKind.IPOIB):
    return MakeLink(kind, PlannedHostLink(1, ib1), net1, MARK, pkey=0x12, inside=True)


def test_a_child_stands_on_the_link_that_was_taken(world):
    """And goes before it."""
    before = world.on_node()
    moves = [] if world.kernel.shared else [world.move]
    back = [] if world.kernel.shared else [world.bring]
    taken = replace(world.take, name=ib1)
    wanted = [AwaitPartition(PCI, 0x12), *moves, taken, SetLink(ib1), child()]
    with world.kernel.open_pod(POD) as pod:
        for step in (*wanted, *wanted):
            pod.run(step)
        seen = {link.name: link for link in pod.links()}
        assert seen[net1].virtual
        assert not seen[ib1].virtual
        for undo in (*back, RemoveLink(net1, MARK), replace(world.give, name=ib1)):
            pod.undo(undo)
    assert world.on_node() == before


def test_a_child_without_its_parent_cannot_be(world):
    with world.kernel.open_pod(POD) as pod, pytest.raises(Unavailable, match="ib1"):
        pod.run(child())


def test_a_child_that_came_back_to_the_node_is_removed(world):
    """IPoIB interfaces do not end with their namespace."""
    step = MakeLink(
        VirtualKind.IPOIB, PlannedHostLink(world.above.index, "ibs0"), net1, MARK, pkey=0x12
    )
    before = world.on_node()
    with world.kernel.open_pod(POD) as pod:
        pod.run(step)
    world.kernel.end(POD)
    assert len(world.on_node()) == len(before) + 1
    with world.kernel.open_pod(None) as pod:
        pod.undo(RemoveLink(net1, Mark("kube-rdma another/net1")))
        assert world.on_node() != before
        pod.undo(RemoveLinks((RemoveLink(net1, MARK),)))
    assert world.on_node() == before


def test_who_is_in_no_partition_is_refused(world):
    with world.kernel.open_pod(POD) as pod, pytest.raises(Refused, match="partition 0x0099"):
        pod.run(AwaitPartition(PCI, 0x99))


def test_a_function_is_taken_when_its_port_is_active(world):
    """Its physical one gives it a link, the subnet manager the rest."""
    waits = replace(world.take, active=True)
    now = world.above.functions[0]
    with world.kernel.open_pod(POD) as pod:
        world.above.functions[0] = replace(now, link_state=pools.LinkState.DISABLE)
        with pytest.raises(Refused, match="is DOWN after"):
            pod.run(waits)
        world.above.functions[0] = now
        world.device().managed = False
        with pytest.raises(Refused, match="is INIT after"):
            pod.run(waits)
        assert world.link.space is world.kernel.node
        world.device().managed = True
        for _ in range(2):
            pod.run(waits)
        assert world.link.name == "net1"


def test_a_function_that_is_gone_is_told(world):
    world.kernel.rdma.remove(world.device())
    with world.kernel.open_pod(POD) as pod, pytest.raises(Unavailable, match="is gone"):
        pod.run(world.rebind)


# The real requests, to sockets whose other end is the test.


class Kernel:
    """Answers GETLINK with these interfaces and RDMA's GET with these devices; keeps the rest."""

    def __init__(self, *interfaces, devices=()):
        self.interfaces, self.devices, self.sent = interfaces, devices, []

    def ask(self, kind, body=b"", *, dump=False, more=0):
        if kind == (5 << 10) | 1:
            return tuple(self.devices)
        if kind == 18:
            if dump:
                return self.interfaces
            index = struct.unpack_from("=BxHiII", body)[2]
            if index:
                found = [one for one in self.interfaces if struct.pack("=i", index) == one[4:8]]
            else:
                (name,) = [one for one in (b"ib1", b"net1") if one + b"\0" in body]
                found = [one for one in self.interfaces if name + b"\0" in one]
            if not found:
                raise refusal(errno.ENODEV)
            return tuple(found)
        self.sent.append((kind, body))
        return ()


def interface(name, index, *more, hardware=INFINIBAND, mac=OWN):
    """An answer to GETLINK about an IPoIB interface."""
    head = struct.pack("=BxHiII", 0, hardware, index, 1, 0)
    octets = bytes.fromhex(address(mac).replace(":", ""))
    info = encode_attributes([Attribute(1, b"ipoib\0")])
    found = [Attribute(3, name + b"\0"), Attribute(1, octets), Attribute(18, info)]
    found += [Attribute(4, struct.pack("=I", 2044)), *more]
    return head + encode_attributes(found)


POSITION = (Attribute(56, PCI.encode() + b"\0"), Attribute(57, b"pci\0"))


def test_a_child_in_the_pod_is_asked_for_there():
    """With the parent's index of the pod, and the number of the partition."""
    node, pod = Kernel(), Kernel(interface(b"ib1", 9, *POSITION), interface(b"net1", 10))
    PodLinks(node, pod, 3, 4).make(child())
    assert node.sent == []
    (kind, body), _ = pod.sent
    assert kind == 16
    assert struct.pack("=HHI", 8, 5, 9) in body
    # strace of iproute2 6.1 shows "\x06\x00\x01\x00\x12\x80" for pkey 0x8012; the kernel sets that
    # bit itself (ipoib_ndo_init).
    assert struct.pack("=HHH", 6, 1, 0x12) in body


class Refusing(Kernel):
    """Answers EIO to all that is no question."""

    def ask(self, kind, body=b"", **how):
        if kind != 18:
            raise refusal(errno.EIO)
        return super().ask(kind, body, **how)


def test_a_link_without_a_mac_that_cannot_be_set_is_told_once():
    head = struct.pack("=BxHiII", 0, 519, 9, 1, 0)  # ARPHRD_RAWIP: it has no address
    found = [Attribute(3, b"net1\0"), Attribute(4, struct.pack("=I", 1500))]
    pod = Refusing(head + encode_attributes(found))
    with pytest.raises(Unavailable, match="setting net1"):
        PodLinks(Kernel(), pod, 3, 4).set(SetLink(net1, 9000))


def test_a_card_s_own_ipoib_interface_is_found():
    """Although the kernel says ipoib of it; a child of the same function is not it."""
    own = interface(b"ibs0v0", 9, *POSITION)
    node = Kernel(interface(b"x", 8, Attribute(5, struct.pack("=I", 9)), *POSITION), own)
    taken = TakeLink(PlannedHostLink(8, "ibs0v0"), net1, PCI, 2044, address(OWN), up=True)
    PodLinks(node, Kernel(), 3, 4).take(taken)
    ((kind, body),) = node.sent
    assert (kind, body[:16]) == (19, struct.pack("=BxHiII", 0, 0, 9, 0, 0))


def test_the_address_of_an_ipoib_interface_is_not_set_back():
    """It has the number of a queue pair in it, which is another one each time."""
    node = Kernel(interface(b"ibs0v0", 9, *POSITION, mac=GUID))
    restore_on_node(
        node, GiveBackLink(PlannedHostLink(8, "ibs0v0"), net1, PCI, 2044, address(OWN), up=True)
    )
    assert node.sent == []


def test_only_our_children_are_removed_from_the_node():
    """By their mark, and by their parent."""
    parent = Attribute(5, struct.pack("=I", 8))
    alias = Attribute(20, MARK.encode() + b"\0")
    ours = interface(b"net1", 12, parent, alias)
    node = Kernel(interface(b"a", 10, parent), interface(b"b", 11, alias), ours)
    remove_returned(node, RemoveLink(net1, MARK))
    assert node.sent == [(17, struct.pack("=BxHiII", 0, 0, 12, 0, 0))]


def device(index, name, guid=0):
    number = struct.pack("=I", index)
    found = [
        Attribute(1, number),
        Attribute(2, name + b"\0"),
        Attribute(6, struct.pack("=Q", guid)),
    ]
    return encode_attributes(found)


def test_rdma_netlink_tells_the_guid_of_a_node():
    """As a number of the host (fill_dev_info, drivers/infiniband/core/nldev.c)."""
    assert decode_device(device(0, b"mlx5_0", 0x02000A0000000001)).guid == GUID


def test_an_rdma_device_is_moved_by_its_function(tmp_path):
    """Whatever it is called now."""
    at = {"mlx5_0": OTHER, "mlx5_7": PCI}
    node = Kernel(devices=[device(1, b"mlx5_0"), device(7, b"mlx5_7")])
    both = PodRdma(node, Kernel(), at.get, tmp_path)
    both.move(MoveRdma("mlx5_0", PCI), 3)
    ((kind, body),) = node.sent
    assert (kind, body[:8]) == ((5 << 10) | 2, struct.pack("=HHI", 8, 1, 7))
    with pytest.raises(Unavailable, match="no RDMA device"):
        both.move(MoveRdma("mlx5_0", PHYSICAL), 3)


def test_one_rdma_device_of_the_node_moves_at_a_time(tmp_path):
    """Another process has the lock; each device gets the numbers that it has left free."""
    node = Kernel(devices=[device(1, b"mlx5_0")])
    both = PodRdma(node, Kernel(), {"mlx5_0": PCI}.get, tmp_path, patience=0.0)
    with locked(tmp_path, 0.0, "busy", Unavailable("gone")):
        for act in (
            lambda: both.move(MoveRdma("mlx5_0", PCI), 3),
            lambda: both.give_back(GiveBackRdma("mlx5_0", PCI), 3),
        ):
            with pytest.raises(Unavailable, match="other RDMA devices of this node have moved"):
                act()
    assert node.sent == []
    both.move(MoveRdma("mlx5_0", PCI), 3)
    assert len(node.sent) == 1


def test_a_node_without_rdma_has_nothing_to_move(tmp_path):
    both = PodRdma(Kernel(), Kernel(), {}.get, tmp_path / "infiniband")
    with pytest.raises(Unavailable, match="no RDMA device mlx5_0"):
        both.move(MoveRdma("mlx5_0", PCI), 3)
